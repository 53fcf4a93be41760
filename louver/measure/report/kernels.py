"""The record of users' kernels and Triton's dense ones.

The file is JSON:
`{"schema": 1, "kind": "kernels", "device": …, "versions": {…}, "date": …, "protocol": …, "general": false, "rows": […],
"summary": {…}}`.
- Every row has `form`, `kind`, `tile` and `sizes`, both [M, N, K]. Without times it has a message `refused` or
  `failed`.
- Times: `louver_us`, `louver_spread`, the same for `triton` and `cublas`, `times_dense` (Triton's time over Louver's),
  `tflops`, `options` of Triton's best kernel, `compile_s`, `first_call_s`.
- Kernel: `grid`, `family`, `unit` (matrix products in the code by name), `registers`, `spilled_bytes`, `warnings` (of
  the first call: why the dense kernel may be faster), `other_kernel` (times of another kernel than the facts).
- `general`: all kernels ran by register tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from louver.measure.report.canvas import COLORS, INK, clean, figure, foot, head, write
from louver.measure.report.header import Header, header_of, read_record
from louver.measure.report.table import NONE, Column, Table, folded, grouped, number, right

WARPGROUP = "GMMA.SP"
"""The end of the opcode of all sparse warpgroup products."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A call. us: microseconds by contender. problem: the reason if there are no times. family: of a compiled kernel."""

    form: str
    kind: str
    tile: tuple[int, int, int]
    us: Mapping[str, float]
    unit: Mapping[str, int]
    sizes: tuple[int, int, int]
    family: str | None = None
    problem: str | None = None

    def __post_init__(self) -> None:
        if ("louver" in self.us) == (self.problem is not None):
            raise ValueError(f"{self.label} has times or a message, got {dict(self.us)} and {self.problem!r}")
        if any(not (math.isfinite(each) and each > 0) for each in self.us.values()):
            raise ValueError(f"times are positive numbers of microseconds, got {dict(self.us)}")

    @property
    def label(self) -> str:
        return f"{self.form} {'×'.join(map(str, self.tile))}"

    @property
    def times_dense(self) -> float | None:
        return self.times("triton")

    def times(self, contender: str) -> float | None:
        """A contender's time over Louver's; None if either is missing."""
        return self.us[contender] / self.us["louver"] if {contender, "louver"} <= set(self.us) else None

    @property
    def tile_class(self) -> str:
        """Tiles that are compared together."""
        m, n, _ = self.tile
        return "128×128 and more" if min(m, n) >= 128 else "64×64" if m == n == 64 else "other tiles"

    @property
    def units(self) -> str:
        """The units, sparse ones first."""
        return ", ".join(sorted(self.unit, key=lambda name: (not name.upper().endswith(".SP"), name))) or NONE


@dataclass(frozen=True, slots=True)
class KernelsRecord(Header):
    """A whole file."""

    general: bool
    rows: tuple[KernelRow, ...]


def row_of(found: Mapping[str, Any]) -> KernelRow:
    """A row from its JSON values. A row that failed after it was timed has only the message."""
    problem = found.get("refused", found.get("failed"))
    names = () if problem is not None else ("louver", "triton", "cublas")
    us = {name: float(found[f"{name}_us"]) for name in names if f"{name}_us" in found}
    (m, n, k), (rows, columns, depth) = ((int(size) for size in found[name]) for name in ("tile", "sizes"))
    return KernelRow(
        str(found["form"]),
        str(found["kind"]),
        (m, n, k),
        us,
        found.get("unit", {}),
        (rows, columns, depth),
        found.get("family"),
        problem,
    )


def read_kernels(path: Path) -> KernelsRecord:
    """Read and check a record. Raises ValueError with the file's name and the broken rule."""

    def made(data: Mapping[str, Any]) -> KernelsRecord:
        return KernelsRecord(*header_of(data, "kernels"), bool(data["general"]), tuple(map(row_of, data["rows"])))

    return read_record(path, "kernels", made)


def summarize(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Geometric mean and least speed relative to dense kernels, by group of a record's rows, and counts of forms.

    times_dense, times_best: over Triton at the same tile, and best tile over best tile. times_cublas: over cuBLAS.
    slower: calls for which Triton's dense kernel is faster. unexpected: those without a warning.
    """
    rows = [row_of(each) for each in found]
    groups = {"all": rows}
    groups |= grouped(rows, lambda row: row.kind) | grouped(rows, lambda row: row.tile_class)
    groups |= grouped((row for row in rows if row.family is not None), lambda row: f"by {_plural(row.family)}")
    dense = {name: _mean(row.times_dense for row in each) for name, each in groups.items()}
    cublas = {name: _mean(row.times("cublas") for row in each) for name, each in groups.items()}
    best = {
        name: _mean(_best_tiles(each)) for name, each in {"all": rows, **grouped(rows, lambda row: row.kind)}.items()
    }
    forms = grouped(rows, lambda row: row.form)
    refused = {each["form"] for each in found if "refused" in each}
    failed = {each["form"] for each in found if "failed" in each} - refused
    accepted = [each for name, each in forms.items() if name not in refused | failed]
    slower = [each for each, row in zip(found, rows, strict=True) if (row.times_dense or 1) < 1]
    return {
        "slower": len(slower),
        "unexpected": sum(not each.get("warnings") for each in slower),
        "times_dense": {name: mean for name, mean in dense.items() if mean is not None},
        "times_best": {name: mean for name, mean in best.items() if mean is not None},
        "times_cublas": {name: mean for name, mean in cublas.items() if mean is not None},
        "forms": len(forms),
        "accepted": len(accepted),
        "refused": len(refused),
        "failed": len(failed),
        "sparse_by_warpgroup": sum(
            all(any(WARPGROUP in unit for unit in row.unit) for row in each) for each in accepted
        ),
    }


def _plural(family: str | None) -> str:
    return "products" if family == "product" else str(family)


def _best_tiles(rows: Iterable[KernelRow]) -> Iterable[float | None]:
    """Triton's least time over Louver's, for each form and size with several timed tiles."""
    timed = (row for row in rows if row.times_dense is not None)
    for same in grouped(timed, lambda row: f"{row.form} {row.sizes}").values():
        if len(same) > 1:
            yield min(row.us["triton"] for row in same) / min(row.us["louver"] for row in same)


def _mean(found: Iterable[float | None]) -> dict[str, float | int] | None:
    """Count, geometric mean and least of the numbers; None without numbers."""
    speeds = [each for each in found if each is not None]
    if not speeds:
        return None
    return {"calls": len(speeds), "mean": round(geometric_mean(speeds), 3), "least": round(min(speeds), 3)}


def kernels_tables(found: Sequence[Mapping[str, Any]], title: str) -> list[Table | str]:
    """The calls, fastest first; means by group; each message on a line."""
    rows = [row_of(each) for each in found]
    timed = sorted((row for row in rows if row.problem is None), key=lambda row: -(row.times_dense or 0))
    names = (*folded("form"), Column("tile"), Column("kind"), *folded("units"))
    numbers = right("µs", "Triton µs", "cuBLAS µs", "× Triton")
    cells = [
        (
            row.form,
            "×".join(map(str, row.tile)),
            row.kind,
            row.units,
            *(number(row.us.get(name), ".1f") for name in ("louver", "triton", "cublas")),
            number(row.times_dense, ".2f"),
        )
        for row in timed
    ]
    summary = summarize(found)
    baselines = {"times_dense": "Triton", "times_best": "Triton at its best tile", "times_cublas": "cuBLAS"}
    means = [
        (baseline, name, str(each["calls"]), f"{each['mean']:.2f}", f"{each['least']:.2f}")
        for key, baseline in baselines.items()
        for name, each in summary[key].items()
    ]
    columns = (Column("times"), Column("group"), *right("calls", "geometric mean", "least"))
    counts = (
        f"{summary['forms']} forms: {summary['accepted']} accepted and right, {summary['sparse_by_warpgroup']} of them by sparse "
        f"warpgroup products; {summary['refused']} refused, {summary['failed']} failed. Slower than dense: {summary['slower']}, "
        f"{summary['unexpected']} of them without a warning"
    )
    messages = [f"{row.label}: {row.problem}" for row in rows if row.problem is not None]
    return [Table(title, (*names, *numbers), cells), Table("", columns, means), counts, *messages]


WIDTH = 11.0
BAR_HEIGHT = 0.2
HEAD, FOOT = 0.5, 0.7
"""Inches above and below the bars."""

LEFT = 0.3
"""The end of the labels, as a fraction of the picture's width."""

FOOT_COLUMNS = 210
TITLE = "Users' kernels with a sparse tensor, beside the dense ones by Triton at the same tile"


def plot_kernels(record: KernelsRecord, path: Path) -> Path:
    """Bars by kind, fastest first. Bars below 1 are pale. Returns `path`.

    Raises ValueError without a call that Triton ran too, and ModuleNotFoundError without Matplotlib.
    """
    timed = [(row.times_dense, row) for row in record.rows if row.times_dense is not None]
    kinds = grouped(timed, lambda each: each[1].kind)
    if not kinds:
        raise ValueError("a plot of kernels needs calls timed beside Triton's, got none: see the record's messages")
    count = sum(map(len, kinds.values()))
    height = BAR_HEIGHT * (count + len(kinds)) + 1 + HEAD + FOOT
    made = figure(WIDTH, height)
    head(made, TITLE, 1 - 0.5 * HEAD / height, 13)
    axes = made.subplots()
    place, ticks = 0, dict[int, str]()
    for kind, calls in kinds.items():
        axes.text(0, place, f" {kind}", va="center", fontsize=8, color=INK, weight="bold")
        place += 1
        for speed, row in sorted(calls, key=lambda each: -each[0]):
            axes.barh(place, speed, 0.72, color=COLORS["ours" if speed >= 1 else "cublas"])
            axes.text(speed, place, f" {speed:.2f}", va="center", fontsize=6, color=INK)
            ticks[place] = row.label
            place += 1
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_yticks(list(ticks), list(ticks.values()), fontsize=6)
    axes.set_ylim(place, -1)
    axes.margins(x=0.08)
    axes.set_xlabel("times the dense kernel's speed", fontsize=8, color=INK)
    clean(axes, grid="x")
    axes.tick_params(axis="y", labelsize=6)
    how = " Every kernel by register tiles." if record.general else ""
    foot(made, f"{record.foot}{how}", FOOT_COLUMNS, FOOT / height)
    made.subplots_adjust(LEFT, (FOOT + 0.5) / height, 0.98, 1 - HEAD / height)
    return write(made, path)
