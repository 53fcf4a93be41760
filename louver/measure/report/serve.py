"""The record of a layer's products as a server calls them, dense and sparse.

The file is JSON: `{"schema": 1, "kind": "serve", "device": …, "versions": {…}, "protocol": …, "facts": {…}, "rows": […]}`,
with rows as those of `louver.measure.report.model`: `case` is a product or "layer", `tokens` their number, `ms` of one
call. facts: `difference`, the greatest of each side's outputs from those of dense bf16, relative to their norm;
`kernels`, the number of Louver's kernels; `missing`, the numbers of tokens for which no time was left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from louver.measure.report.header import Header, header_of, read_record
from louver.measure.report.model import DENSE_BF16, DENSE_E4M3, SPARSE_BF16, SPARSE_E4M3, ModelRow, row_of, speedups
from louver.measure.report.table import Column, Table, number, right

TOKENS: Final = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
"""The numbers of tokens that vLLM captures by default. Other numbers are padded to the next of them."""

LAYER: Final = "layer"
CASES: Final[tuple[str, ...]] = ("qkv", "o", "gate_up", "down", LAYER)
OVER: Final[Mapping[str, tuple[str, ...]]] = {SPARSE_BF16: (DENSE_BF16,), SPARSE_E4M3: (DENSE_E4M3,)}
"""The dense side of the same type as each sparse side."""


@dataclass(frozen=True, slots=True)
class ServeRecord(Header):
    """A whole file."""

    facts: Mapping[str, Any]
    rows: tuple[ModelRow, ...]


@dataclass(frozen=True, slots=True)
class Ratios:
    """The speed of a sparse side over the dense one of its type in a case, by tokens. case: "products" is all four."""

    side: str
    case: str
    found: Sequence[tuple[int, float]]

    @property
    def mean(self) -> float:
        """The geometric mean."""
        return math.exp(sum(math.log(each) for _, each in self.found) / len(self.found))

    @property
    def least(self) -> tuple[int, float]:
        """The least ratio, and its number of tokens before it."""
        return min(self.found, key=lambda each: each[1])


def read_serve(path: Path) -> ServeRecord:
    """Read and check a record. Raises ValueError with the file's name and the broken rule."""

    def made(data: Mapping[str, Any]) -> ServeRecord:
        return ServeRecord(*header_of(data, "serve"), data["facts"], tuple(map(row_of, data["rows"])))

    return read_record(path, "serve", made)


def ratios(rows: Sequence[ModelRow]) -> list[Ratios]:
    """The ratios of each side and case that has some, by tokens in order."""
    groups = {case: (case,) for case in CASES[:-1]} | {"products": CASES[:-1], LAYER: (LAYER,)}
    found: list[Ratios] = []
    for side in OVER:
        for name, cases in groups.items():
            times = [(row.tokens, speedups(row.ms, OVER)) for row in rows if row.case in cases]
            mine = sorted((tokens, gains[side]) for tokens, gains in times if side in gains)
            found += [Ratios(side, name, mine)] if mine else []
    return found


def serve_tables(rows: Sequence[ModelRow], facts: Mapping[str, Any], device: str) -> list[Table | str]:
    """The ratios by tokens, their means and least values, and the reasons of missing times."""
    gains = {(row.tokens, row.case): speedups(row.ms, OVER) for row in rows}
    heads = right("tokens", *(f"{side.removeprefix('sparse ')} {case} ×" for side in OVER for case in CASES))
    cells = [
        (f"{n:,}", *(number(gains.get((n, case), {}).get(side), ".3f") for side in OVER for case in CASES))
        for n in sorted({row.tokens for row in rows})
    ]
    title = f"A layer's products sparse, over dense ones of the same type, on {device}"
    names = ("side", "case", "mean ×", "least ×", "at tokens", "numbers of tokens")
    summary = [
        (each.side, each.case, f"{each.mean:.3f}", f"{each.least[1]:.3f}", f"{each.least[0]:,}", f"{len(each.found)}")
        for each in ratios(rows)
    ]
    missing = facts.get("missing", [])
    ended = [f"No time was left for {', '.join(map(str, missing))} tokens."] if missing else []
    reasons = dict.fromkeys(f"{side}: {reason}" for row in rows for side, reason in row.reasons.items())
    return [
        Table(title, heads, cells),
        Table("Geometric means", tuple(Column(name, right=place > 1) for place, name in enumerate(names)), summary),
        *ended,
        *reasons,
    ]
