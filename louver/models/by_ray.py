"""Runs the tasks of a run on a cluster by Ray, which schedules and repeats them. Weights stay in files: a task is sent as a
few kilobytes, and its facts come back.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from louver.models.workers import ONE, Needs, T, Task, Workers, WorkersError
from louver.runtime.cache import source_hash

RETRIES: Final = 20
"""How often a task is repeated whose process or machine was lost. One that crashes its process itself ends the run."""

STOP: Final = 60.0
"""Seconds for which the end of a run waits for the processes that it ended."""


class LostError(WorkersError):
    """A task that Ray gave up."""


@contextmanager
def cluster(address: str) -> Generator[Workers]:
    """The workers of a cluster. address: "ray" for the one that Ray finds: that of the program, of RAY_ADDRESS, of this
    machine, or a new one on this machine; or "ray://HOST:PORT". Raises ModuleNotFoundError without Ray, and OSError.
    """
    ray: Any = import_module("ray")
    if address == "ray" and ray.is_initialized():
        yield Cluster(ray, _remote(ray))
        return
    try:
        # A connection that fails leaves Ray's state as a client, in which no other one can be made.
        ray.init(None if address == "ray" else address, logging_level=logging.ERROR, log_to_driver=False)
        yield Cluster(ray, _remote(ray))
    finally:
        ray.shutdown()


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that this process is connected to. ray: the module. remote: runs a task on a machine."""

    ray: Any
    remote: Any

    def each(self, tasks: Sequence[Task[T]], needs: Needs = ONE) -> Generator[tuple[int, Iterable[T]]]:
        running: dict[Any, int] = {}
        self._check(needs)
        options = {"num_cpus": needs.cpus, "num_gpus": needs.gpus}
        try:
            running |= {self._send(task, **options): number for number, task in enumerate(tasks)}
            while running:
                (ready, *_), _ = self.ray.wait([*running])
                yield running.pop(ready), self._facts(ready)
        finally:
            for each in running:
                self.ray.cancel(each, force=True)
            if running:
                self.ray.wait([*running], num_returns=len(running), timeout=STOP)

    def everywhere(self, task: Task[Any]) -> None:
        place: Any = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        # A head without processors runs no tasks.
        machines = [node["NodeID"] for node in self._machines() if node["Resources"].get("CPU")]
        # Also where other programs have all processors.
        sent = [self._send(task, num_cpus=0, scheduling_strategy=place(each, soft=False)) for each in machines]
        for each in sent:
            # A machine that was lost meanwhile takes no tasks. If it comes back, each task looks again.
            with suppress(LostError):
                self._facts(each)

    def _check(self, needs: Needs) -> None:
        """Raises WorkersError for what no machine has: Ray would wait for one for ever."""
        resources = [node["Resources"] for node in self._machines()]
        found = [(int(each.get("CPU", 0)), int(each.get("GPU", 0))) for each in resources]
        if needs != ONE and not any(cpus >= needs.cpus and gpus >= needs.gpus for cpus, gpus in found):
            raise WorkersError(
                f"a task takes {needs.cpus} processors, the threads of this process, and {needs.gpus} GPUs of one machine, got "
                f"machines with {', '.join(f'{cpus} and {gpus}' for cpus, gpus in found)}: set OMP_NUM_THREADS, or give "
                "another --device"
            )

    def _machines(self) -> list[Any]:
        return [node for node in self.ray.nodes() if node["Alive"]]

    def _send(self, task: Task[Any], **options: Any) -> Any:
        # In a list, so that the machine reads it after it has compared the hash.
        return self.remote.options(**options).remote(source_hash(), [self.ray.put(task)])

    def _facts(self, sent: Any) -> Any:
        """The facts of a task. Raises its error."""
        errors: Any = import_module("ray.exceptions")
        try:
            machine, facts = self.ray.get(sent)
        except errors.RayTaskError as error:
            raise error.cause from None
        except errors.RayError as error:
            raise LostError(f"Ray lost a task: {error}: the same command goes on") from error
        if facts is None:
            raise WorkersError(
                f"Louver is not installed on machine {machine}, or in another version than here: install the same on all "
                "machines"
            )
        return facts


def _remote(ray: Any) -> Any:
    """What a machine runs."""

    def run(louver: str, task: list[Any]) -> tuple[str, tuple[Any, ...] | None]:
        # Functions in functions travel by value, so this one can say that the machine has no Louver, or another one.
        import platform

        try:
            from louver.runtime.cache import source_hash

            if source_hash() != louver:
                return platform.node(), None
        except ImportError:
            return platform.node(), None
        from importlib import import_module

        from louver.models.workers import done

        try:
            return platform.node(), done(import_module("ray").get(task[0]))
        except Exception as error:
            error.add_note(f"(on machine {platform.node()})")
            raise

    return ray.remote(num_cpus=1, max_retries=RETRIES)(run)
