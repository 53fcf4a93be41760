"""`louver roofline`: the limit of products of vectors N:M@L on CUDA cores, by NM-SpMM's analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from louver.formats.pattern import Pattern
from louver.isa.targets import SM_90A
from louver.library.blocking import F32, TABLE_I, Blocking, Step
from louver.measure.report.roofline import ROOFS, Roof
from louver.measure.report.table import Column, Result, Table, right

DEVICE = "NVIDIA H200"
"""The device of the roofline."""

LEGEND = (
    "ks: depth of a step in columns of A; ws: kept columns of it. KiB: shared memory of a step.",
    "columns of A: share of A's columns that the weight's rows need. packs: whether packing only these helps.",
    "FLOP/B: products for each byte that a step loads, equation (3) of NM-SpMM; C once: with the output counted once;",
    "packed: with only the needed columns of A loaded. CMAR: products for each load from shared memory, equation (6).",
    "limit: memory, or FMA (the CUDA cores). bound: TFLOP/s of kept products at that limit; no kernel is faster.",
)
"""The meaning of the columns."""


def parse_blocking(text: str) -> Blocking:
    """A name of Table I, or ms,ns,mr,nr,mt,nt. Raises ValueError for other text."""
    if text in TABLE_I:
        return TABLE_I[text]
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 6 or not all(part.isascii() and part.isdigit() and len(part) < 6 for part in parts):
        raise ValueError(
            f"a blocking is {', '.join(TABLE_I)}, or ms,ns,mr,nr,mt,nt, such as 64,128,32,64,8,8, got {text[:80]!r}"
        )
    return Blocking(*map(int, parts))


@dataclass(frozen=True, slots=True)
class Row:
    """A pattern with a blocking: its step, and FLOP per byte by equation (3), with C counted once, and with A packed."""

    name: str
    step: Step
    printed: float
    whole: float
    packed: float

    @classmethod
    def of(cls, name: str, pattern: Pattern, k: int) -> Row:
        blocking = parse_blocking(name)
        step = Step(blocking, pattern, blocking.depth(pattern, k, SM_90A))
        steps = ceil(k / step.ks)
        whole, packed = (step.intensity(kept, steps) / F32 for kept in (1.0, step.kept))
        return cls(name, step, step.intensity() / F32, whole, packed)

    def packs(self, ridge: float) -> bool:
        """Whether to load only the kept columns of A: memory is the limit, and the savings exceed the lists of columns."""
        return self.whole < ridge and self.step.packing_saves

    def bound(self, roof: Roof) -> float:
        """The most TFLOP/s of kept products that the limit allows, in the better way."""
        return min(self.packed * roof.bytes_per_second, roof.f32_ridge * roof.bytes_per_second) * 1e-12

    def limit(self, ridge: float) -> str:
        """The limit of the product in the better way."""
        return "memory" if self.packed < ridge else "FMA"


def roofline(patterns: Sequence[str], blockings: Sequence[str], k: int) -> Result:
    """The analysis of each pattern with each blocking. Raises ValueError for an illegal one."""
    roof = ROOFS[DEVICE]
    ridge = roof.f32_ridge
    rows = [Row.of(name, Pattern.parse(pattern), k) for pattern in patterns for name in blockings]
    data = {
        "device": DEVICE,
        "k": k,
        "ridge": ridge,
        "rows": [
            {
                "pattern": str(row.step.pattern),
                "blocking": row.name,
                "ks": row.step.ks,
                "ws": row.step.ws,
                "qs": row.step.qs,
                "shared_bytes": row.step.shared_bytes,
                "kept": row.step.kept,
                "intensity": row.printed,
                "intensity_c_once": row.whole,
                "intensity_packed": row.packed,
                "packs": row.packs(ridge),
                "limit": row.limit(ridge),
                "bound_tflops": row.bound(roof),
                "cmar": row.step.blocking.cmar(),
            }
            for row in rows
        ],
    }
    step = right("ks", "ws", "KiB (4)", "columns of A", "FLOP/B (3)", "C once", "packed", "packs")
    columns = (Column("pattern"), Column("blocking"), *step, *right("limit", "bound", "CMAR (6)"))
    title = f"f32 on CUDA cores of {DEVICE}, K = {k}; memory is the limit below {ridge:.1f} FLOP/B"
    return Result("roofline", data, [Table(title, columns, [_cells(row, roof) for row in rows]), *LEGEND])


def _cells(row: Row, roof: Roof) -> tuple[str, ...]:
    step, ridge = row.step, roof.f32_ridge
    return (
        str(step.pattern),
        row.name,
        str(step.ks),
        str(step.ws),
        f"{step.shared_bytes / 1024:.0f}",
        f"{step.kept:.0%}",
        *(f"{each:.1f}" for each in (row.printed, row.whole, row.packed)),
        "yes" if row.packs(ridge) else "no",
        row.limit(ridge),
        f"{row.bound(roof):.1f}",
        f"{step.blocking.cmar():.1f}",
    )
