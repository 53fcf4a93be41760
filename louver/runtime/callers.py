"""Finds the caller of the package, for the location of a warning."""

from __future__ import annotations

import sys


def callers_level() -> int:
    """The `stacklevel` for `warnings.warn` in the calling function: frames up to the first one outside the package."""
    level, frame = 1, sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "louver":
        level, frame = level + 1, frame.f_back
    return level
