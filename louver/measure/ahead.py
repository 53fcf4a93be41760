"""Compiles Louver's kernels of several problems in parallel, before the first problem is measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from louver.compile.plan.register_tiles import AnySchedule
from louver.frontend.problem import Problem
from louver.library.execute import schedule_for
from louver.measure.launches import compile_all
from louver.measure.measurement import has_n_major
from louver.measure.problems import FEW_TOKENS, GemmProblem
from louver.runtime.device import Device


def kernels_of(problem: GemmProblem, place: Device) -> Iterator[tuple[Problem, AnySchedule]]:
    """The kernels that `louver.measure.gemm.measure` runs for a problem, perhaps twice. Plans also have unaligned ones."""
    product, sizes = problem.product, problem.shape
    yield product, schedule_for(product, *sizes, place, aligned_output=True)
    if problem.n <= FEW_TOKENS:
        for aligned in (True, False):
            yield product, schedule_for(product, *sizes, place, aligned_output=aligned, dependent=True)
    if has_n_major(problem):
        turned = replace(product, kind="matmul")
        yield turned, schedule_for(turned, *sizes, place, aligned_output=True)


def compile_ahead(problems: Iterable[GemmProblem], place: Device) -> int:
    """Compile the kernels of these problems into the cache; returns their number. A measurement reports errors."""
    wanted = dict.fromkeys(kernel for problem in problems for kernel in kernels_of(problem, place))
    compile_all(wanted, place.target)
    return len(wanted)
