"""Records of products of vectors N:M@L and of cuBLAS: the figures of NM-SpMM (docs/nm.md).

The files are JSON:
`{"schema": 1, "kind": "nm", "device": …, "versions": {…}, "protocol": …, "rows": [{"shape": [M, N, K], "pattern":
"8:32@32", "us": {"matmul": 1.0, "linear": 1.0, "cublas matmul": 3.0, "cublas linear": 3.0}, "flop_per_byte": 20.0, …},
…]}`. Tokens are [K, N] in `matmul` and [N, K] in `linear`. For few tokens `us` has `copy`, a copy of as many bytes. A
row of kind "nm-ladder" has "us": {"cublas": 3.0, "V1": 2.0, …} of best tiles, "tiles": {"V1": "256×128×32", …} and
"case".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from louver.formats.pattern import Pattern
from louver.frontend.problem import Kind
from louver.measure.report.header import Header, header_of, read_record
from louver.measure.report.table import NONE, Column, Table, grouped, right

KINDS: tuple[Kind, ...] = ("matmul", "linear")

CUBLAS, COPY = "cublas", "copy"


@dataclass(frozen=True, slots=True)
class NmRow:
    """A point. shape: (M, N, K). us: microseconds of each contender. case, tiles: of a ladder."""

    shape: tuple[int, int, int]
    pattern: Pattern
    us: Mapping[str, float]
    flop_per_byte: float = math.nan
    case: str = ""
    tiles: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        if not all(math.isfinite(us) and us > 0 for us in self.us.values()):
            raise ValueError(f"us are positive numbers of microseconds, got {dict(self.us)}")

    def speedup(self, name: str) -> float | None:
        """Speed relative to cuBLAS with the same token layout; None if the contender was not measured."""
        dense = self.us.get(f"{CUBLAS} {name}", self.us.get(CUBLAS))
        return dense / self.us[name] if name in self.us and dense is not None else None

    def copy_share(self, name: str) -> float | None:
        """Fraction of a copy's speed; None without a copy."""
        return self.us[COPY] / self.us[name] if COPY in self.us and name in self.us else None

    def tflops(self, name: str) -> float:
        """TFLOP/s, zeros not counted."""
        return 2 * math.prod(self.shape) / self.pattern.rescaling / self.us[name] * 1e-6

    @property
    def sparsity(self) -> str:
        return f"{100 * (1 - self.pattern.n / self.pattern.m):g}%"


@dataclass(frozen=True, slots=True)
class NmRecord(Header):
    """A whole file. dtype: the element type of all operands."""

    rows: tuple[NmRow, ...]
    dtype: str = "f32"

    @property
    def title(self) -> str:
        return f"{self.dtype} vectors N:M@L, times as fast as cuBLAS {self.dtype}"


def nm_record(data: Mapping[str, Any]) -> NmRecord:
    """A record from its JSON values. Raises KeyError, TypeError or ValueError for other data."""
    return NmRecord(*header_of(data, "nm", "nm-ladder"), tuple(map(_row, data["rows"])), data.get("dtype", "f32"))


def _row(row: Mapping[str, Any]) -> NmRow:
    m, n, k = (int(size) for size in row["shape"])
    us = {str(name): float(time) for name, time in row["us"].items()}
    more = row.get("case", ""), row.get("tiles", {})
    return NmRow((m, n, k), Pattern.parse(row["pattern"]), us, row.get("flop_per_byte", math.nan), *more)


def read_nm(path: Path) -> NmRecord:
    """Read and check a record. Raises ValueError with the file's name and the broken rule."""
    return read_record(path, "nm", nm_record)


def by_pattern(rows: Sequence[NmRow]) -> dict[Pattern, list[NmRow]]:
    """The rows of each pattern in the paper's order: by tokens, then by weight."""
    return grouped(sorted(rows, key=lambda row: row.shape[1]), lambda row: row.pattern)


def nm_table(record: NmRecord) -> Table:
    """Speed over cuBLAS by pattern and layout: geometric mean, least, greatest, and the mean for each number of tokens.

    If a copy was measured, the table also has the mean fraction of its speed.
    """
    tokens = sorted({row.shape[1] for row in record.rows})
    copied = sorted({row.shape[1] for row in record.rows if COPY in row.us})
    headings = (*(f"N={n}" for n in tokens), *(f"of a copy, N={n}" for n in copied))
    columns = (Column("pattern"), Column("product"), *right("points", "mean", "least", "most", "M/N", *headings))
    shown: list[tuple[str, ...]] = []
    for pattern, rows in by_pattern(record.rows).items():
        for kind in KINDS:
            found = [(row.shape[1], speed) for row in rows if (speed := row.speedup(kind)) is not None]
            speeds = [speed for _, speed in found]
            means = [[speed for n, speed in found if n == count] for count in tokens]
            numbers = (geometric_mean(speeds), min(speeds), max(speeds), pattern.rescaling)
            cells = [f"{number:.2f}" for number in numbers]
            cells += [f"{geometric_mean(each):.2f}" if each else NONE for each in means]
            shares = [[row.copy_share(kind) or 0.0 for row in rows if row.shape[1] == n] for n in copied]
            cells += [f"{geometric_mean(each):.0%}" if each else NONE for each in shares]
            shown.append((str(pattern), kind, str(len(speeds)), *cells))
    return Table(f"{record.title}, on {record.device}", columns, shown)


def versions_of(record: NmRecord) -> list[str]:
    """The measured versions of a ladder, in order."""
    return list(dict.fromkeys(name for row in record.rows for name in row.us if name != CUBLAS))


def ladder_table(record: NmRecord) -> Table:
    """Speed of each version's best tile over cuBLAS, by case and pattern."""
    names = versions_of(record)
    columns = (Column("case"), *right("M×N×K"), Column("pattern"), *right(*names))
    rows = [
        (
            row.case,
            "×".join(map(str, row.shape)),
            str(row.pattern),
            *(NONE if (s := row.speedup(n)) is None else f"{s:.2f} ({row.tiles.get(n, NONE)})" for n in names),
        )
        for row in record.rows
    ]
    return Table(f"NM-SpMM's versions, times as fast as cuBLAS f32 (tile), on {record.device}", columns, rows)
