"""Weights of vectors N:M@L, drawn on the GPU, and contenders that multiply them: each checked, then timed in turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.compile.plan.schedule import Schedule, list_rows
from louver.formats.compress import from_indices
from louver.formats.dtypes import element_type
from louver.formats.lists import gathered_rows, picks
from louver.formats.pattern import Pattern
from louver.formats.tensor import SparseTensor
from louver.frontend.problem import Problem
from louver.ir.product import unit_of
from louver.library.compiled import loaded
from louver.library.configure import Demand
from louver.library.forms import Operand
from louver.library.launch import Launcher
from louver.library.numerics import accumulation
from louver.library.ranges import Cutting
from louver.measure.graph import prepare, take_turns
from louver.measure.launches import launches, rows_of
from louver.measure.operands import NEVER, converted, placed
from louver.measure.protocol import Protocol, median
from louver.measure.verify import beside_float64
from louver.runtime.device import Device

SAMPLE = 64
"""Rows of the output that are compared, drawn at random."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A weight. values: [M, kept] on the host. windows: [windows, kept] as `gathered_rows` takes them. dense: [M, K], a torch tensor on
    the GPU.
    """

    pattern: Pattern
    dtype: str
    values: NDArray[Any]
    windows: NDArray[np.int64]
    dense: Any

    def sparse(self) -> SparseTensor:
        """The weight as the library takes it, on the host."""
        return from_indices(self.values, self.windows % self.pattern.m, self.pattern, self.dense.shape)

    def operand(self, problem: Problem, schedule: Schedule, place: Device) -> Operand:
        """The arrays that a product of it reads, by gathered rows or by picked ones."""
        if schedule.ring.metadata != "global":
            return placed(
                self.values, picks(self.windows, self.pattern, len(self.values), schedule.tile.k), place.ordinal
            )
        rows = list_rows(str(problem.pattern), schedule)
        made = gathered_rows(self.values, self.windows, self.pattern.length, self.dense.shape[1], rows)
        return placed(made.values, made.lists, place.ordinal)


def drawn(torch: Any, generator: Any, m: int, k: int, pattern: Pattern, dtype: str) -> Drawn:
    """Normal values, in rows of K that are drawn at random for each window. generator: PyTorch's, on the GPU."""
    windows, groups = -(-m // pattern.length), pattern.groups(k)
    order = torch.rand(windows, groups, pattern.m, generator=generator, device="cuda").argsort(dim=2)
    kept = order[:, :, : pattern.n].sort(dim=2).values
    rows = (kept + torch.arange(groups, device="cuda")[:, None] * pattern.m).reshape(windows, -1)
    values = converted(torch, torch.randn(m, rows.shape[1], generator=generator, device="cuda"), dtype)
    index = rows.repeat_interleave(pattern.length, dim=0)[:m]
    # As raw bits: PyTorch scatters no 8-bit floats.
    raw = values.view(_raw(torch, dtype)).masked_fill(index >= k, 0)
    dense = torch.zeros(m, groups * pattern.m, device="cuda", dtype=raw.dtype).scatter_(1, index, raw)
    dense = dense[:, :k].contiguous().view(values.dtype)
    return Drawn(pattern, dtype, on_host(torch, raw, dtype), rows.cpu().numpy(), dense)


def on_host(torch: Any, tensor: Any, dtype: str) -> NDArray[Any]:
    """A torch tensor as a NumPy array."""
    return tensor.cpu().view(_raw(torch, dtype)).numpy().view(element_type(dtype).numpy)


def _raw(torch: Any, dtype: str) -> Any:
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32}[element_type(dtype).bytes]


@dataclass(frozen=True, slots=True)
class Multiplied:
    """A contender. dense: its weight, [M, K]. call: launches it. y: its output as [M, N], maybe a view."""

    dense: Any
    call: Callable[[int], object]
    y: Any


def launched(
    torch: Any, operand: Operand, problem: Problem, schedule: Schedule, place: Device, dense: Any, b: Any, y: Any
) -> Multiplied:
    """The product of a weight [M, K], given as `operand` and as `dense`, with b [K, N], by a schedule. Raises ValueError for one that is
    not legal.
    """
    cutting = Cutting.of(Demand.of_problem(problem), schedule) if schedule.cuts else None
    launcher = Launcher(loaded(problem, schedule, place.ordinal), operand, tuple(dense.shape), cutting)
    return Multiplied(dense, launches(torch, [launcher], b.shape[1], rows_of(b), rows_of(y)), y)


def microseconds(
    torch: Any, contenders: Mapping[str, Multiplied], b: Any, dtype: str, pattern: str, protocol: Protocol
) -> dict[str, float]:
    """Microseconds of a launch of each contender, in bursts, interleaved, the operands the same in each launch.

    b: tokens [K, N]. dtype: of the operands. pattern: of the sparse weights; its multiplier gives the bound of errors. Raises ArithmeticError
    for a wrong result.
    """
    accumulate = accumulation(dtype, unit=unit_of(pattern, dtype))
    for name, contender in contenders.items():
        out = element_type(contender.y.dtype)
        contender.y.fill_(math.nan if out.floating else NEVER)
        contender.call(0)
        rows = torch.randint(len(contender.y), (SAMPLE,), device="cuda")
        agreement = beside_float64(contender.dense, b.t(), contender.y, rows, out.name, accumulate)
        if not agreement.ok:
            sizes = "×".join(map(str, (len(contender.y), b.shape[1], len(b))))
            raise ArithmeticError(
                f"{name} computes wrongly at {sizes}, {pattern}: {agreement.violations} sampled elements are out of bounds, the worst "
                f"{agreement.worst:.3g} times"
            )
    loads = {name: prepare(torch, each.call, 1, protocol) for name, each in contenders.items()}
    return {name: round(median(taken) * 1e6, 3) for name, taken in take_turns(loads, protocol).items()}
