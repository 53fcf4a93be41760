"""Who runs the tasks of a run: this process, processes of this machine, or a cluster by Ray. Tasks read and write files,
and give back only small facts of them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import resource_tracker
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class WorkersError(OSError):
    """Workers that are gone, or that cannot take part. It says nothing about the checkpoint, so what other workers wrote
    stays: the same command goes on.
    """


@dataclass(frozen=True, slots=True)
class Needs:
    """What a task takes of a machine of a cluster: processors and GPUs."""

    cpus: int = 1
    gpus: int = 0


ONE = Needs()


class Task(Protocol[T_co]):
    """A part of a run, as a small record that can be sent to another process. Running it again gives the same files."""

    def run(self) -> Generator[T_co]:
        """Do it. Yields facts for the process that started the run."""
        ...


class Workers(Protocol):
    """Runs tasks."""

    def each(self, tasks: Sequence[Task[T]], needs: Needs = ONE) -> Generator[tuple[int, Iterable[T]]]:
        """The number of each task and its facts, in any order. needs: of each task. Raises the first error of a task, and
        WorkersError. When the generator ends, no task runs.
        """
        ...

    def everywhere(self, task: Task[Any]) -> None:
        """Run a task on every machine that may run others. Raises the first error, and WorkersError."""
        ...


@dataclass(frozen=True, slots=True)
class Here:
    """Runs tasks in this process, in their order."""

    def each(self, tasks: Sequence[Task[T]], needs: Needs = ONE) -> Generator[tuple[int, Iterable[T]]]:
        for number, task in enumerate(tasks):
            with closing(task.run()) as facts:
                yield number, facts

    def everywhere(self, task: Task[Any]) -> None:
        for _ in task.run():
            pass


HERE = Here()


@dataclass(frozen=True, slots=True)
class Processes:
    """Runs tasks in processes of this machine. A process that crashes ends the run."""

    pool: ProcessPoolExecutor

    def each(self, tasks: Sequence[Task[T]], needs: Needs = ONE) -> Generator[tuple[int, Iterable[T]]]:
        try:
            with _interruptions_held():
                numbers = {self.pool.submit(done, task): number for number, task in enumerate(tasks)}
            for future in as_completed(numbers):
                yield numbers[future], future.result()
        except BaseException as error:
            # Waits for tasks that run. `Future.cancel` before it would hang where the pool is broken.
            self.pool.shutdown(cancel_futures=True)
            if isinstance(error, BrokenProcessPool):
                raise WorkersError("a process of the run was killed or crashed: the same command goes on") from error
            raise

    def everywhere(self, task: Task[Any]) -> None:
        HERE.everywhere(task)


def workers_of(text: int | str) -> AbstractContextManager[Workers]:
    """The workers that a user names: a number of processes, "ray" or "ray://HOST:PORT". Raises ValueError for other texts,
    and ModuleNotFoundError without Ray.
    """
    if str(text) == "ray" or str(text).startswith("ray://"):
        return import_module("louver.models.by_ray").cluster(str(text))
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise ValueError(f"workers are a number of processes from 1, ray, or ray://HOST:PORT, got {text!r}")
    return _processes(count)


@contextmanager
def _processes(count: int) -> Generator[Workers]:
    if count == 1:
        yield HERE
        return
    # A fork of a process with threads may hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context, initializer=_prepare) as pool:
        yield Processes(pool)


HOLDS: Final = hasattr(signal, "pthread_sigmask")
"""Whether this system can hold signals back."""


@contextmanager
def _interruptions_held() -> Generator[None]:
    """Processes that begin meanwhile see no interruption before `_prepare`; this one sees it afterwards."""
    if not HOLDS:
        yield
        return
    # The first process starts the tracker, which would let interruptions through.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prepare() -> None:
    """End this worker at an interruption without a trace, and with the process that started it, whose files it locks."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if HOLDS:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def done(task: Task[T]) -> tuple[T, ...]:
    """The facts of a task that is run to its end."""
    return tuple(task.run())
