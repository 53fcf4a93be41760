"""Our kernels of a list of problems, compiled side by side before the first of them is measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.library.execute import schedule_for
from louver.measure.launches import compile_all
from louver.measure.n_major import has_n_major
from louver.measure.problems import FEW_TOKENS, GemmProblem
from louver.runtime.device import Device


def kernels_of(problem: GemmProblem, place: Device) -> Iterator[tuple[Problem, Schedule]]:
    """The kernels that `louver.measure.gemm.measure` has the library run for a problem. Some may come twice.

    Measured outputs are aligned: their rows are whole multiples of 16 bytes. A plan has kernels for others too.
    """
    product, sizes = problem.product, problem.shape
    yield product, schedule_for(product, *sizes, place, aligned_output=True)
    if problem.n <= FEW_TOKENS:
        for aligned in (True, False):
            yield product, schedule_for(product, *sizes, place, aligned_output=aligned, dependent=True)
    if has_n_major(problem):
        turned = replace(product, kind="matmul")
        yield turned, schedule_for(turned, *sizes, place, aligned_output=True)


def compile_ahead(problems: Iterable[GemmProblem], place: Device) -> int:
    """Compile the kernels of these problems into the cache; returns their number. A problem whose kernel is refused says so itself."""
    wanted = dict.fromkeys(kernel for problem in problems for kernel in kernels_of(problem, place))
    compile_all(wanted, place.target)
    return len(wanted)
