"""Draws weights of vectors N:M@L and V:N:M on the GPU. Checks contenders that multiply them, and times them in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from louver.choose.demand import Demand
from louver.choose.ranges import Cutting
from louver.compile.plan.schedule import Schedule
from louver.formats.compress import from_indices
from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.formats.tensor import SparseTensor
from louver.frontend.problem import Problem
from louver.ir.product import unit_of
from louver.library.compiled import loaded
from louver.library.forms import Operand, forms_of
from louver.library.launch import Launcher
from louver.library.numerics import accumulation
from louver.library.state import TensorState
from louver.measure.contenders import Copies
from louver.measure.launches import launches, rows_of
from louver.measure.operands import beside_float64, converted, poison
from louver.measure.protocol import Protocol, median
from louver.measure.sustained import prepare, take_turns
from louver.runtime.device import Device

SAMPLE = 64
"""Number of random output rows that are compared."""

NO_COPIES: Mapping[str, Copies] = {}


@dataclass(frozen=True, slots=True)
class Drawn:
    """A weight. sparse: the library's tensor, on the host. dense: a torch tensor [M, K] on the GPU."""

    sparse: SparseTensor
    dense: Any

    @property
    def pattern(self) -> Pattern:
        return self.sparse.pattern

    def operand(self, schedule: Schedule, place: Device) -> Operand:
        return self.sparse.derived.of(TensorState).operand(self.sparse, place.ordinal, forms_of(schedule, self.sparse))


def drawn(torch: Any, generator: Any, m: int, k: int, pattern: Pattern, dtype: str) -> Drawn:
    """Normal values at random columns for each window. Rows of V:N:M keep N of the window's columns."""
    windows, groups = -(-m // pattern.length), pattern.groups(k)

    def first(rows: int, among: int, count: int) -> Any:
        order = torch.rand(rows, groups, among, generator=generator, device="cuda").argsort(dim=2)
        return order[:, :, :count].sort(dim=2).values

    kept = first(windows, pattern.m, pattern.shared)
    indices = kept
    if pattern.shared > pattern.n:
        own = first(m, pattern.shared, pattern.n)
        indices = kept.repeat_interleave(pattern.length, dim=0)[:m].gather(2, own)
    index = (indices + torch.arange(groups, device="cuda")[:, None] * pattern.m).reshape(len(indices), -1)
    if len(indices) < m:
        index = index.repeat_interleave(pattern.length, dim=0)[:m]
    values = converted(torch, torch.randn(m, index.shape[1], generator=generator, device="cuda"), dtype)
    # Raw bits, because PyTorch cannot scatter 8-bit floats.
    raw = values.view(_raw(torch, dtype)).masked_fill(index >= k, 0)
    dense = torch.zeros(m, groups * pattern.m, device="cuda", dtype=raw.dtype).scatter_(1, index, raw)
    given = indices.reshape(len(indices), -1).cpu().numpy()
    s = from_indices(on_host(torch, raw, dtype), given, pattern, (m, k))
    return Drawn(s, dense[:, :k].contiguous().view(values.dtype))


def on_host(torch: Any, tensor: Any, dtype: str) -> NDArray[Any]:
    """A torch tensor as a NumPy array."""
    return tensor.cpu().view(_raw(torch, dtype)).numpy().view(element_type(dtype).numpy)


def _raw(torch: Any, dtype: str) -> Any:
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32}[element_type(dtype).bytes]


@dataclass(frozen=True, slots=True)
class Multiplied:
    """A contender. dense: its weight [M, K]. call: launches it with weight `index % sets`. y: its output as [M, N]."""

    dense: Any
    call: Callable[[int], object]
    y: Any
    sets: int = 1


def launched(
    torch: Any, operand: Operand, problem: Problem, schedule: Schedule, place: Device, dense: Any, b: Any, y: Any
) -> Multiplied:
    """A schedule's product of a weight [M, K], as `operand` and `dense`, with b [K, N]. Raises ValueError if illegal."""
    cutting = Cutting.of(Demand.of_problem(problem), schedule) if schedule.cuts else None
    launcher = Launcher(loaded(problem, schedule, place.ordinal), operand, tuple(dense.shape), cutting)
    return Multiplied(dense, launches(torch, [launcher], b.shape[1], rows_of(b), rows_of(y)), y)


def microseconds(
    torch: Any,
    contenders: Mapping[str, Multiplied],
    b: Any,
    dtype: str,
    pattern: str,
    protocol: Protocol,
    copies: Mapping[str, Copies] = NO_COPIES,
) -> dict[str, float]:
    """Microseconds of a launch of each contender and each copy, in interleaved bursts. Raises ArithmeticError if one is
    wrong.

    b: tokens [K, N]. dtype: of the operands. pattern: of the sparse weights; its multiplier sets the error bound.
    """
    accumulate = accumulation(dtype, unit=unit_of(pattern, dtype))
    for name, contender in contenders.items():
        out = element_type(contender.y.dtype)
        for index in range(contender.sets):
            contender.y.fill_(poison(out))
            contender.call(index)
            rows = torch.randint(len(contender.y), (SAMPLE,), device="cuda")
            agreement = beside_float64(contender.dense, b.t(), contender.y, rows, out.name, accumulate)
            if not agreement.ok:
                sizes = "×".join(map(str, (len(contender.y), b.shape[1], len(b))))
                raise ArithmeticError(
                    f"{name} computes wrongly at {sizes}, {pattern}: {agreement.violations} sampled elements are out of bounds, the worst "
                    f"{agreement.worst:.3g} times"
                )
    loads = {
        name: prepare(torch, each.call, each.sets, protocol) for name, each in (*contenders.items(), *copies.items())
    }
    return {name: round(median(taken) * 1e6, 3) for name, taken in take_turns(loads, protocol).items()}
