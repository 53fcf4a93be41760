"""Ends a run in the middle, as a signal would that no handler sees."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from louver.formats.regular import write_all


class KilledError(BaseException):
    """Ends a run at once, as SIGKILL does: no clean-up that catches an Exception runs."""


def killed_after(limit: int, run: Callable[[], object]) -> bool:
    """Whether a run was killed, which happens when it changes files for the time after `limit`."""
    count = itertools.count()

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if next(count) >= limit:
                raise KilledError
            return real(*arguments, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for module in ("louver.formats.writer", "louver.formats.regular", "louver.models.journal"):
            patch.setattr(f"{module}.write_all", counted(write_all))
        for owner, name in ((Path, "replace"), (Path, "unlink"), (os, "fsync")):
            patch.setattr(owner, name, counted(getattr(owner, name)))
        try:
            run()
        except KilledError:
            return True
    return False
