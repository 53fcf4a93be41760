"""Shares tasks among processes that take turns on one device. A task that crashes or hangs costs that task alone."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")
R = TypeVar("R")

Turn: TypeAlias = "Callable[[], None]"
"""Waits until no other process has the device. The process keeps it until its task ends."""

Work: TypeAlias = "Callable[[T, Turn], tuple[R, bool]]"
"""Does a task. It gives the result, and whether its process can do more."""

ENDING_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Lost:
    """A task without a result. reason: how its process ended."""

    reason: str


@dataclass(slots=True)
class _Worker(Generic[T]):
    process: Any
    connection: Connection
    task: T | None = None
    deadline: float | None = field(default=None)

    def end(self) -> None:
        """End the process, by force where it does not end by itself."""
        self.connection.close()
        self.process.join(ENDING_SECONDS if self.task is None else 0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def share_out(
    tasks: Sequence[T], work: Work[T, R], *, jobs: int, limit: float, environment: Mapping[str, str]
) -> Generator[tuple[T, R | Lost]]:
    """Each task with its result, as they end.

    work: a function of a module, which new processes import. jobs: processes at once. limit: seconds that a task may take before its
    turn on the device, and again from then on. environment: variables of the processes beside this one's.
    """
    if jobs < 1 or limit <= 0:
        raise ValueError(f"there are one or more jobs, and seconds for each task, got {jobs} and {limit}")
    left, workers, asking = deque(tasks), list[_Worker[T]](), deque[_Worker[T]]()
    holder: _Worker[T] | None = None

    def retire(worker: _Worker[T]) -> None:
        nonlocal holder
        workers.remove(worker)
        if worker in asking:
            asking.remove(worker)
        if worker is holder:
            holder = None
        worker.end()

    try:
        while left or any(worker.task is not None for worker in workers):
            while left and (idle := _idle(workers, jobs, work, environment)):
                idle.task, idle.deadline = left.popleft(), time.monotonic() + limit
                idle.connection.send(idle.task)
            if holder is None and asking:
                holder = asking.popleft()
                holder.deadline = time.monotonic() + limit
                holder.connection.send(None)
            for worker in _heard(workers):
                task = worker.task
                assert task is not None
                try:
                    kind, value = worker.connection.recv()
                except (EOFError, OSError):
                    worker.process.join(ENDING_SECONDS)
                    retire(worker)
                    yield task, Lost(f"the process ended with exit code {worker.process.exitcode}")
                    continue
                if kind == "turn":
                    worker.deadline = None
                    asking.append(worker)
                    continue
                worker.task = worker.deadline = None
                if worker is holder:
                    holder = None
                if kind == "last":
                    retire(worker)
                yield task, value
            for worker in [each for each in workers if each.deadline is not None and each.deadline < time.monotonic()]:
                task = worker.task
                assert task is not None
                retire(worker)
                yield task, Lost(f"it took longer than {limit:g} s")
    finally:
        for worker in workers:
            worker.end()


def _idle(
    workers: list[_Worker[T]], jobs: int, work: Work[T, Any], environment: Mapping[str, str]
) -> _Worker[T] | None:
    """A worker without a task, a new one where there may be more; None where all are busy."""
    for worker in workers:
        if worker.task is None:
            return worker
    if len(workers) == jobs:
        return None
    # A process with a CUDA context cannot be forked.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work, dict(environment)), daemon=True)
    process.start()
    theirs.close()
    workers.append(_Worker(process, ours))
    return workers[-1]


def _heard(workers: Sequence[_Worker[T]]) -> list[_Worker[T]]:
    """Workers that say something or have ended. Waits until there is one, or until a deadline."""
    busy = {worker.connection: worker for worker in workers if worker.task is not None}
    deadlines = [worker.deadline for worker in busy.values() if worker.deadline is not None]
    ready = wait(list(busy), max(0.0, min(deadlines) - time.monotonic()) if deadlines else None)
    return [worker for connection, worker in busy.items() if connection in ready]


def _serve(connection: Connection, work: Work[T, R], environment: Mapping[str, str]) -> None:
    """The process: tasks in, results out, until the connection is closed."""
    os.environ.update(environment)
    # Standard output is the command's; compilers and kernels print too.
    os.dup2(2, 1)

    def turn() -> None:
        connection.send(("turn", None))
        connection.recv()

    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        result, more = work(task, turn)
        connection.send(("done" if more else "last", result))
        if not more:
            return
