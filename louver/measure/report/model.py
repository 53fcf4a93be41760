"""The record of a language model's blocks, dense and sparse.

The file is JSON:
`{"schema": 1, "kind": "model", "device": …, "versions": {…}, "protocol": …, "blocks": 4, "head": false, "facts": {…},
"rows": [{"model": "Llama 3 8B", "mode": "compiled", "case": "decode 1", "tokens": 1, "ms": {"dense bf16": 1.0, …},
"reasons": {"sparse e4m3": …}}, …]}`.
A side without time has a reason. facts: `compress_seconds_cold`, `compress_seconds_cached`; `dense_bytes` of the
swapped weights and `held_bytes` of each sparse side, derived forms included; `joules_a_token` of each side;
`torchao_reason`, `joules_reason`: why such numbers were left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from louver.measure.report.canvas import COLORS, INK, clean, figure, foot, head, titles, write
from louver.measure.report.header import Header, header_of, read_record
from louver.measure.report.table import Table, folded, number, right

DENSE_BF16, SPARSE_BF16, DENSE_E4M3, SPARSE_E4M3 = "dense bf16", "sparse bf16", "dense e4m3", "sparse e4m3"
TORCHAO: Final = "torchao e4m3 2:4"
SIDES: Final = (DENSE_BF16, SPARSE_BF16, DENSE_E4M3, SPARSE_E4M3)
FASTER: Final[Mapping[str, tuple[str, ...]]] = {
    SPARSE_BF16: (DENSE_BF16,),
    SPARSE_E4M3: (DENSE_BF16, DENSE_E4M3, TORCHAO),
}
"""The sides that each sparse side is compared with: the fastest of them."""


def speedups(ms: Mapping[str, float], over: Mapping[str, tuple[str, ...]] = FASTER) -> dict[str, float]:
    """The speed of each sparse side over the fastest side that it is compared with."""
    others = {side: [ms[each] for each in names if each in ms] for side, names in over.items() if side in ms}
    return {side: min(times) / ms[side] for side, times in others.items() if times}


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A case: milliseconds and reasons by side."""

    model: str
    mode: str
    case: str
    tokens: int
    ms: Mapping[str, float]
    reasons: Mapping[str, str]

    def __post_init__(self) -> None:
        for side, each in self.ms.items():
            if not (math.isfinite(each) and each > 0):
                raise ValueError(f"ms is a positive number of milliseconds, got {each} of {side}")

    @property
    def title(self) -> str:
        return f"{self.model}, {self.mode}, {self.case}"


@dataclass(frozen=True, slots=True)
class ModelRecord(Header):
    """A whole file."""

    blocks: int
    head: bool
    facts: Mapping[str, Any]
    rows: tuple[ModelRow, ...]


def row_of(found: Mapping[str, Any]) -> ModelRow:
    """A row from its JSON values."""
    ms = {str(side): float(each) for side, each in found["ms"].items()}
    model, mode, case = (str(found[name]) for name in ("model", "mode", "case"))
    return ModelRow(model, mode, case, int(found["tokens"]), ms, dict(found["reasons"]))


def read_model(path: Path) -> ModelRecord:
    """Read and check a record. Raises ValueError with the file's name and the broken rule."""

    def made(data: Mapping[str, Any]) -> ModelRecord:
        rows = tuple(map(row_of, data["rows"]))
        return ModelRecord(*header_of(data, "model"), int(data["blocks"]), bool(data["head"]), data["facts"], rows)

    return read_record(path, "model", made)


def model_tables(rows: Sequence[ModelRow], facts: Mapping[str, Any], device: str) -> list[Table | str]:
    """The times with speedups, the other facts, and the reasons of missing times."""
    sides = (*SIDES, *([TORCHAO] if any(TORCHAO in row.ms for row in rows) else []))
    columns = (*folded("case"), *right(*(f"{side} ms" for side in sides), *(f"{side} ×" for side in FASTER)))
    cells = [
        (
            row.title,
            *(number(row.ms.get(side), ".3f") for side in sides),
            *(number(speedups(row.ms).get(side), ".3f") for side in FASTER),
        )
        for row in rows
    ]
    reasons = dict.fromkeys(f"{side}: {reason}" for row in rows for side, reason in row.reasons.items())
    return [Table(f"Blocks dense and sparse on {device}", columns, cells), *fact_lines(facts), *reasons]


def fact_lines(facts: Mapping[str, Any]) -> list[str]:
    """Memory, energy and the time of the swap, as sentences."""
    lines: list[str] = []
    for side, held in facts.get("held_bytes", {}).items():
        part = held / facts["dense_bytes"]
        lines.append(f"Swapped weights of {side}: {part:.3f} of dense bf16, {held / 1e6:,.0f} MB with derived forms.")
    joules = facts.get("joules_a_token", {})
    for side, each in joules.items():
        over = f", {each / joules[DENSE_BF16]:.3f} of dense bf16" if DENSE_BF16 in joules else ""
        lines.append(f"Prefill of {side}: {each * 1e3:.3f} mJ a token{over}.")
    if "compress_seconds_cold" in facts and "compress_seconds_cached" in facts:
        cold, cached = facts["compress_seconds_cold"], facts["compress_seconds_cached"]
        lines.append(f"compress_: {cold:.2f} s without kernels in the cache, {cached:.2f} s with them.")
    lines += [f"Left out: {facts[name]}." for name in ("torchao_reason", "joules_reason") if name in facts]
    return lines


WIDTH, CASE_HEIGHT = 10.0, 0.5
HEAD, FOOT = 0.55, 1.0
"""Inches above and below the panel."""

FOOT_COLUMNS = 190
BARS = dict(zip(FASTER, (COLORS["ours"], COLORS["cusparselt"]), strict=True))


def plot_model(record: ModelRecord, path: Path) -> Path:
    """Speed of each sparse side over the fastest dense one, a bar for each case. Returns `path`.

    Raises ValueError without a speedup and ModuleNotFoundError without Matplotlib.
    """
    rows = [row for row in record.rows if speedups(row.ms)]
    if not rows:
        raise ValueError("a plot of a model needs a case with a dense and a sparse time, got none")
    height = CASE_HEIGHT * len(rows) + 0.6 + HEAD + FOOT
    made = figure(WIDTH, height)
    head(made, "A language model with 2:4 weights", 1 - 0.5 * HEAD / height)
    axes = made.subplots()
    for shift, (side, color) in enumerate(BARS.items()):
        places = [(place, speedups(row.ms)[side]) for place, row in enumerate(rows) if side in speedups(row.ms)]
        if places:
            at = [place + 0.38 * (shift - 0.5) for place, _ in places]
            gains = [gain for _, gain in places]
            axes.barh(at, gains, 0.36, color=color, label=side)
            for place, gain in zip(at, gains, strict=True):
                axes.text(gain + 0.01, place, f"{gain:.2f}", va="center", fontsize=7, color=INK)
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(rows)), [row.title for row in rows], fontsize=7)
    axes.invert_yaxis()
    clean(axes, "x")
    titles(axes, f"{record.blocks} blocks{' and head' if record.head else ''}", "× the fastest dense side")
    axes.set_xlim(0, 1.08 * max(gain for row in rows for gain in speedups(row.ms).values()))
    place = (0.99, 1 - 0.5 * HEAD / height)
    made.legend(loc="center right", bbox_to_anchor=place, ncols=len(BARS), frameon=False, fontsize=9)
    foot(made, f"{record.foot} {' '.join(fact_lines(record.facts))}", FOOT_COLUMNS, FOOT / height)
    made.tight_layout(rect=(0, FOOT / height, 1, 1 - HEAD / height))
    return write(made, path)
