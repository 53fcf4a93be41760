"""Compiles the kernels of schedules in parallel, and launches them in turns."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

from louver.compile.plan.register_tiles import AnySchedule
from louver.frontend.problem import Problem
from louver.library.compiled import record_of
from louver.library.execute import schedule_for
from louver.library.fused import NOTHING_BOUND, Bound
from louver.library.launch import Launcher
from louver.library.rows import Rows
from louver.measure.measurement import has_n_major
from louver.measure.problems import FEW_TOKENS, GemmProblem
from louver.runtime.arrays import view
from louver.runtime.device import Device


def compile_all(wanted: Iterable[tuple[Problem, AnySchedule]], name: str) -> dict[tuple[Problem, AnySchedule], str]:
    """Compile in parallel into the cache for a target, half a second a kernel. Returns the errors of refused kernels."""
    pairs = list(wanted)
    if not pairs:
        return {}
    # A fork of a process with threads and a GPU context may hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(len(pairs), os.cpu_count() or 1), mp_context=context) as pool:
        reasons = pool.map(_refusal, *zip(*pairs, strict=True), [name] * len(pairs))
        return {pair: reason for pair, reason in zip(pairs, reasons, strict=True) if reason}


def _refusal(problem: Problem, schedule: AnySchedule, name: str) -> str:
    """Compile into the cache. Returns the error, or ""."""
    try:
        record_of(problem, schedule, name)
    except (ValueError, RuntimeError) as error:
        return str(error)
    return ""


def launches(
    torch: Any, launchers: Sequence[Launcher], n: int, dense: Rows, out: Rows, bound: Bound = NOTHING_BOUND
) -> Callable[[int], None]:
    """A call that runs launcher `index % len(launchers)` on PyTorch's current stream, with N columns of `dense`, to
    `out`.
    """
    made = [each.bound(each.sized(n, dense, out), dense, out, bound) for each in launchers]

    # Launchers keep the operands' memory alive; bound launches have only its address.
    def call(index: int, held: Any = (launchers, made)) -> None:
        held[1][index % len(launchers)].on(torch.cuda.current_stream().cuda_stream)()

    return call


def rows_of(tensor: Any) -> Rows:
    """A matrix with contiguous rows, or a batch of such matrices, in an array of PyTorch or of Louver."""
    array = view(tensor)
    *batch, rows, inner = array.shape
    width = array.element.bytes
    entries = (batch[0], array.strides[0] * width) if batch else ()
    return Rows(array.address, inner, rows, max(array.strides[-2], inner) * width, width, tensor, *entries)


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
