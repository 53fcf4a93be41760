"""The times of one problem, their row of a record, and the transposing copy of 8-bit operands along N."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import louver
from louver.measure.operands import Operands, verify
from louver.measure.problems import GemmProblem
from louver.measure.protocol import Protocol, median
from louver.measure.report.gemm import CONTENDERS, TIMED, GemmRow, row_of, sustained_of
from louver.measure.sustained import Sustained, prepare, take_turns
from louver.runtime.copy2d import bound_copy


@dataclass(frozen=True, slots=True)
class NMajor:
    """`louver.matmul(s, b)` with 8-bit b [K, N] with contiguous rows. Tensor cores cannot read this layout.

    copy_us: microseconds of the copy to [N, K]. product_us: of the product that reads the copy. copied_bytes: K·N.
    """

    copy_us: float
    product_us: float
    copied_bytes: int

    @property
    def share(self) -> float:
        """The copy's fraction of the total time, 0 to 1."""
        return self.copy_us / (self.copy_us + self.product_us)

    @property
    def gigabytes_per_second(self) -> float:
        """The copy's rate, for bytes read plus written."""
        return 2 * self.copied_bytes / self.copy_us * 1e-3

    def to_json(self) -> dict[str, float]:
        return {
            "copy_us": self.copy_us,
            "product_us": self.product_us,
            "copy_gigabytes_per_second": round(self.gigabytes_per_second, 1),
        }


def has_n_major(problem: GemmProblem) -> bool:
    """Whether a row of this problem has this measurement."""
    return problem.bits == 8 and problem.accumulate == "auto" and problem.n == problem.padded_n


def measure_n_major(torch: Any, operands: Operands, protocol: Protocol) -> NMajor:
    """Time copy and product in bursts, in turns. Raises ArithmeticError if a result is wrong."""
    problem = operands.problem
    k_major = operands.x.t()
    # PyTorch can transpose bytes, but not every 8-bit type.
    n_major = operands.x.view(torch.uint8).t().contiguous().view(operands.x.dtype)
    product = torch.empty(problem.m, problem.n, dtype=operands.y.dtype, device=operands.y.device)
    for b in (n_major, k_major):
        replace(operands, y=product).poison()
        louver.matmul(operands.sparse[0], b, out=product)
        agreement = verify(torch, operands, 0, product.t())
        if not agreement.ok:
            raise ArithmeticError(
                f"louver.matmul is wrong for {problem}, strides {list(b.stride())}: {agreement.violations} sampled elements "
                f"are out of bounds, the worst {agreement.worst:.3g} times"
            )
    turned = torch.empty_like(operands.x)
    calls: dict[str, tuple[Callable[[int], object], int]] = {
        "copy": (lambda _: _turn(torch, n_major, turned), 1),
        "product": (lambda i: louver.matmul(operands.sparse[i % operands.sets], k_major, out=product), operands.sets),
    }
    loads = {name: prepare(torch, call, sets, protocol) for name, (call, sets) in calls.items()}
    us = {name: round(median(taken) * 1e6, 3) for name, taken in take_turns(loads, protocol).items()}
    return NMajor(us["copy"], us["product"], problem.k * problem.n)


def _turn(torch: Any, source: Any, target: Any) -> None:
    """Copy [K, N] with contiguous rows to [N, K], as products do."""
    inner, rows = source.shape
    bound_copy(
        source=source.data_ptr(),
        shape=(rows, inner),
        strides=(1, rows),
        element_bytes=1,
        destination=target.data_ptr(),
        pitch=inner,
        ordinal=target.device.index,
        stream=torch.cuda.current_stream().cuda_stream,
    )()


@dataclass(frozen=True, slots=True)
class Measurement:
    """The times of a problem, with further facts for the record.

    notes, sustained: by contender. n_major: of 8-bit operands. date, commit: of the run; "" if equal to the record's.
    seconds: of measuring, by phase. The phase "libraries" includes "algorithms" and "ranking" of cuSPARSELt.
    """

    row: GemmRow
    notes: Mapping[str, Mapping[str, Any]]
    sustained: Mapping[str, Sustained]
    n_major: NMajor | None = None
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    date: str = ""
    commit: str = ""

    @property
    def flops(self) -> float:
        """Operations of the product, zeros included."""
        return 2.0 * math.prod(self.row.shape)

    def to_json(self) -> dict[str, Any]:
        taken = self.row.times_us
        times = {f"{name}_us": taken.get(name) for name in TIMED if name in CONTENDERS or name in taken}
        base = {
            "shape": list(self.row.shape),
            "dtype": self.row.dtype,
            "out": self.row.out,
            "product": self.row.product,
            "accumulate": self.row.accumulate,
        }
        sustained = {name: taken.to_json(self.flops) for name, taken in self.sustained.items()}
        more = {} if self.n_major is None else {"n_major": self.n_major.to_json()}
        notes = {name: dict(facts) for name, facts in self.notes.items()}
        run = {name: said for name, said in (("date", self.date), ("commit", self.commit)) if said}
        return {
            **base,
            **times,
            "notes": notes,
            "sustained": sustained,
            **more,
            "measuring_seconds": dict(self.seconds),
            **run,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Measurement:
        """Read a row that `to_json` wrote. Raises KeyError, TypeError or ValueError for other rows."""
        row = row_of(found)
        sustained = {
            s.contender: Sustained(s.us, s.clock_mhz, s.power_w) for s in sustained_of(row, found["sustained"])
        }
        _, n, k = row.shape
        turned = found.get("n_major")
        n_major = None if turned is None else NMajor(float(turned["copy_us"]), float(turned["product_us"]), n * k)
        run = found.get("date", ""), found.get("commit", "")
        return cls(row, found["notes"], sustained, n_major, found["measuring_seconds"], *run)
