"""Distributes tasks over processes that use one device in turns. A task that crashes or hangs affects no other task."""

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
"""Waits until no other process uses the device. The process keeps the device until its task ends."""

Work: TypeAlias = "Callable[[T, Turn], tuple[R, bool]]"
"""Runs a task. Returns the result, and whether the process can run more tasks."""

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
        self.connection.close()
        self.process.join(ENDING_SECONDS if self.task is None else 0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def share_out(
    tasks: Sequence[T], work: Work[T, R], *, jobs: int, limit: float, environment: Mapping[str, str]
) -> Generator[tuple[T, R | Lost]]:
    """Each task with its result, in the order of completion.

    work: a function of a module, because new processes import it. jobs: number of processes. limit: most seconds of a
    task before its turn on the device, and again after. environment: additional variables of the processes.
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
    """A worker without a task, perhaps a new one; None if all are busy."""
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
    """Wait for workers that send something or end, or for a deadline."""
    busy = {worker.connection: worker for worker in workers if worker.task is not None}
    deadlines = [worker.deadline for worker in busy.values() if worker.deadline is not None]
    ready = wait(list(busy), max(0.0, min(deadlines) - time.monotonic()) if deadlines else None)
    return [worker for connection, worker in busy.items() if connection in ready]


def _serve(connection: Connection, work: Work[T, R], environment: Mapping[str, str]) -> None:
    """The loop of a process: receive tasks and send results, until the connection is closed."""
    os.environ.update(environment)
    # Standard output belongs to the command, and compilers and kernels print too.
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
