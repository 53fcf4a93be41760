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

from louver.measure.report.canvas import COLORS, INK, clean, figure, foot, head, titles, write
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


WIDTH, HEIGHT = 10.0, 4.6
HEAD, FOOT = 0.55, 1.0
"""Inches above and below the panels."""

FOOT_COLUMNS = 190
STYLES: Final[Mapping[str, str]] = dict(zip(CASES, ("-", "--", "-.", ":", "-"), strict=True))


def plot_serve(record: ServeRecord, path: Path) -> Path:
    """Ratios by tokens. Returns `path`. Raises ValueError without a ratio and ModuleNotFoundError without Matplotlib."""
    found = ratios(record.rows)
    if not found:
        raise ValueError("a plot of served products needs a dense and a sparse time, got none")
    sides = list(dict.fromkeys(each.side for each in found))
    made = figure(WIDTH, HEIGHT)
    head(made, "A layer's 2:4 products under CUDA graphs", 1 - 0.5 * HEAD / HEIGHT)
    grid = made.subplots(1, len(sides), squeeze=False, sharey=True)[0]
    for side, axes in zip(sides, grid, strict=True):
        mine = {each.case: each for each in found if each.side == side}
        for case in (case for case in CASES if case in mine):
            whole = case == LAYER
            style = {"color": COLORS["ours"] if whole else INK, "linewidth": 2.2 if whole else 1.0}
            style |= {"marker": "o", "markersize": 4} if whole else {}
            label = f"{case}, mean {mine[case].mean:.2f}"
            axes.plot(*zip(*mine[case].found, strict=True), STYLES[case], label=label, **style)
        axes.axhline(1, color=INK, linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel("tokens", fontsize=8, color=INK)
        clean(axes, grid="both")
        titles(axes, side, f"× {side.replace('sparse', 'dense')}")
        axes.legend(frameon=False, fontsize=7)
    foot(made, record.foot, FOOT_COLUMNS, FOOT / HEIGHT)
    made.tight_layout(rect=(0, FOOT / HEIGHT, 1, 1 - HEAD / HEIGHT))
    return write(made, path)
