"""Workers in this process that behave as others might: tasks travel as bytes, and end in another order."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from louver.models.workers import HERE, ONE, Needs, Task, Workers


class _Plain(pickle.Pickler):
    """Refuses numbers in bulk: they pass by files."""

    def reducer_override(self, obj: Any) -> Any:
        torch: Any = sys.modules.get("torch")
        assert not isinstance(obj, np.ndarray) and not (torch and isinstance(obj, torch.Tensor)), "weights are sent"
        return NotImplemented


def sent(what: object) -> bytes:
    """As bytes, without a tensor."""
    file = io.BytesIO()
    _Plain(file).dump(what)
    return file.getvalue()


@dataclass(frozen=True)
class Elsewhere:
    """Workers that send tasks and facts as bytes and work backwards, as other processes might."""

    changed: Callable[[Any], Any] = lambda task: task
    sizes: list[int] | None = None

    def each(self, tasks: Sequence[Task[Any]], needs: Needs = ONE) -> Generator[tuple[int, Iterable[Any]]]:
        for number, task in [*enumerate(tasks)][::-1]:
            there = sent(task)
            facts = sent(tuple(self.changed(pickle.loads(there)).run()))
            if self.sizes is not None:
                self.sizes.extend((len(there), len(facts)))
            yield number, pickle.loads(facts)

    def everywhere(self, task: Task[Any]) -> None:
        HERE.everywhere(pickle.loads(sent(task)))


class Open:
    """Takes the place of `workers_of(…)`."""

    def __init__(self, them: Workers) -> None:
        self.them = them

    def __enter__(self) -> Workers:
        return self.them

    def __exit__(self, *_: object) -> None:
        pass


def let_run(monkeypatch: pytest.MonkeyPatch, them: Workers, *modules: str) -> None:
    """Let any run that these modules begin be done by these workers."""
    for module in modules:
        monkeypatch.setattr(f"{module}.workers_of", lambda text: Open(them))
