"""A benchmark's record of products: Louver and the vendor's libraries, on one machine, in one process.

The file is JSON:
`{"schema": 1, "kind": "gemm", "device": …, "versions": {…}, "protocol": …, "rows": [{"shape": [M, N, K], "dtype":
"f16", "out": "f16", "product": "linear", "ours_us": 1.0, "cublas_us": 1.0, "cusparselt_us": null, "dependent_us": 1.0,
"copy_us": 1.0, "sustained": {"ours": {"us": 1.0, "clock_mhz": 1400.0, "power_w": 690.0}, …}}, …]}`.
M is rows of the sparse weight, N is tokens. A time that was not taken is null. Rows and header may hold more keys.
Optional: `sustained`, `out` (default: `dtype`, the operands' type), `accumulate` (default: "auto", else in a separate
file), `dependent_us` (plans with dependent launches), `copy_us` (a copy of as many bytes), `date` of a later run,
`commit` if another one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from louver.formats.codes import index_bytes
from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern, lifted_pattern
from louver.measure.report.header import Header, header_of, read_record
from louver.measure.report.table import Column, Table, grouped, number, right

CONTENDERS = ("ours", "cublas", "cusparselt")
PRODUCTS = (*CONTENDERS, "dependent")
"""Contenders, and Louver's product with dependent launches, which is measured for few tokens."""
TIMED = (*PRODUCTS, "copy")
"""Products, and a copy that moves as many bytes as the product."""
LABELS: Mapping[str, str] = {
    "ours": "Louver 2:4",
    "dependent": "Louver dependent",
    "cublas": "cuBLAS dense",
    "cusparselt": "cuSPARSELt 2:4",
}


def types_of(dtype: str, out: str | None, accumulate: str = "auto") -> str:
    """Element types and special accumulation: "f16", "s8→s32", "e4m3→f16, promoted". out: None for `dtype`."""
    types = dtype if out in (None, dtype) else f"{dtype}→{out}"
    return types if accumulate == "auto" else f"{types}, {ACCUMULATED.get(accumulate, accumulate)}"


def compressed_bytes(m: int, k: int, dtype: str) -> int:
    """Bytes of a compressed weight [m, k] of the pattern that tensor cores lift: half of the values, and the codes."""
    pattern = Pattern.parse(lifted_pattern(dtype))
    groups = pattern.groups(k)
    return m * (groups * pattern.n * element_type(dtype).bytes + index_bytes(pattern, groups))


ACCUMULATED: Mapping[str, str] = {"f16": "sums in f16", "promoted": "promoted"}


@dataclass(frozen=True, slots=True)
class GemmRow:
    """One problem. shape: (M, N, K) in elements. times_us: microseconds by contender, without missing ones.

    out: the result's element type, None for `dtype`. accumulate: of Louver's product.
    """

    shape: tuple[int, int, int]
    dtype: str
    product: str
    times_us: Mapping[str, float]
    out: str | None = None
    accumulate: str = "auto"

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise ValueError(f"shape is [M, N, K], each at least 1, got {list(self.shape)}")
        for name, time in self.times_us.items():
            if not (math.isfinite(time) and time > 0):
                raise ValueError(f"{name}_us is a positive number of microseconds or null, got {time}")

    @property
    def types(self) -> str:
        return types_of(self.dtype, self.out, self.accumulate)

    def tflops(self, contender: str) -> float | None:
        """Dense-equivalent TFLOP/s: 2·M·N·K over the time, zeros included; None if it was not timed."""
        time = self.times_us.get(contender)
        return None if time is None else 2 * math.prod(self.shape) / time * 1e-6


@dataclass(frozen=True, slots=True)
class SustainedRow:
    """A contender under sustained load. us: microseconds of a launch. clock_mhz, power_w: means, None without readings."""

    row: GemmRow
    contender: str
    us: float
    clock_mhz: float | None
    power_w: float | None

    def __post_init__(self) -> None:
        for name, value in (("us", self.us), ("clock_mhz", self.clock_mhz), ("power_w", self.power_w)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} of sustained {self.contender} is a positive number, got {value}")

    @property
    def tflops(self) -> float:
        """Dense-equivalent TFLOP/s."""
        return 2 * math.prod(self.row.shape) / self.us * 1e-6


@dataclass(frozen=True, slots=True)
class GemmRecord(Header):
    """A whole file."""

    rows: tuple[GemmRow, ...]
    sustained: tuple[SustainedRow, ...] = ()


def read_gemm(path: Path) -> GemmRecord:
    """Read and check a record. Raises ValueError with the file's name and the broken rule."""
    return read_record(path, "gemm", _record)


def _record(data: Mapping[str, Any]) -> GemmRecord:
    header, rows = header_of(data, "gemm"), tuple(row_of(row) for row in data["rows"])
    pairs = zip(rows, data["rows"], strict=True)
    sustained = tuple(taken for row, found in pairs for taken in sustained_of(row, found.get("sustained", {})))
    return GemmRecord(*header, rows, sustained)


def row_of(row: Mapping[str, Any]) -> GemmRow:
    """The times of a row of the file. Raises KeyError, TypeError or ValueError for a row that breaks a rule."""
    m, n, k = (int(size) for size in row["shape"])
    taken = {name: float(row[f"{name}_us"]) for name in TIMED if row.get(f"{name}_us") is not None}
    dtype = str(row["dtype"])
    usual = {"product": "linear", "out": dtype, "accumulate": "auto"}
    product, out, accumulate = (str(row.get(name, value)) for name, value in usual.items())
    return GemmRow((m, n, k), dtype, product, taken, out, accumulate)


def sustained_of(row: GemmRow, found: Mapping[str, Mapping[str, Any]]) -> list[SustainedRow]:
    """A row's `sustained` in the file. Raises as `row_of`."""

    def number(value: Any) -> float | None:
        return None if value is None else float(value)

    return [
        SustainedRow(row, name, float(taken["us"]), number(taken.get("clock_mhz")), number(taken.get("power_w")))
        for name, taken in found.items()
        if name in CONTENDERS
    ]


def factor(row: GemmRow, over: str) -> float | None:
    """Louver's speed relative to a contender; None if one of them was not timed."""
    ours, other = row.times_us.get("ours"), row.times_us.get(over)
    return None if ours is None or other is None else other / ours


def mean_factor(rows: Sequence[GemmRow], over: str) -> float | None:
    """Geometric mean of Louver's factors over a contender; None without factors."""
    found = [value for value in (factor(row, over) for row in rows) if value is not None]
    return geometric_mean(found) if found else None


def gemm_table(record: GemmRecord, title: str) -> Table:
    """Rows by element types, each group with its geometric means. Dependent launches have a column if they were timed."""
    timed = {name for row in record.rows for name in row.times_us}
    products = [name for name in PRODUCTS if name in CONTENDERS or name in timed]
    speeds = right(*(f"{LABELS[product]} TFLOP/s" for product in products))
    factors = right(*(f"× {LABELS[over]}" for over in CONTENDERS[1:]))
    shown: list[tuple[str, ...]] = []
    for types, rows in grouped(record.rows, lambda row: row.types).items():
        for row in rows:
            numbers = [number(row.tflops(product), ".0f") for product in products]
            numbers += [number(factor(row, over), ".2f") for over in CONTENDERS[1:]]
            shown.append(("×".join(map(str, row.shape)), types, *numbers))
        means = [number(mean_factor(rows, over), ".2f") for over in CONTENDERS[1:]]
        shown.append(("geomean", types, *[""] * len(products), *means))
    return Table(title, (*right("M×N×K"), Column("type"), *speeds, *factors), shown)
