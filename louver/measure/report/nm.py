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
from louver.measure.report.canvas import COLORS, INK, MUTED, clean, figure, foot, head, titles, write
from louver.measure.report.header import Header, header_of, read_record
from louver.measure.report.roofline import ROOFS, Roof
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


WIDTH, PANEL, HEAD, FOOT = 12.0, 2.6, 0.6, 0.7
"""Inches: the picture's width, the height of a row of panels, of the head and of the foot."""

FOOT_COLUMNS = 230
MARGINS = {"left": 0.05, "right": 0.99, "top": 0.88, "bottom": 0.18}
TITLE_LADDER = "NM-SpMM's versions, times as fast as cuBLAS f32"
LAYOUTS = {"matmul": "tokens [K, N]", "linear": "tokens [N, K]"}
STYLES = {"matmul": "-", "linear": ":"}
SHADES = ("#b0b7c0", "#6b8fb5", "#0f766e", "#b45309")

FEW = 20
"""Most points of a line that are marked."""

ROOFLINE_SHAPE = (4096, 4096, 4096)
"""The product of Figure 10."""


def plot_nm(record: NmRecord, path: Path) -> Path:
    """A panel for each sparsity, with points by tokens, then by weight. Below, a roofline if its product was measured.

    Returns `path`. Raises ValueError without rows and ModuleNotFoundError without Matplotlib.
    """
    panels, roof = by_pattern(_rows(record)), ROOFS.get(record.device) if record.dtype == "f32" else None
    roofed = [row for row in record.rows if row.shape == ROOFLINE_SHAPE and "matmul" in row.us]
    lines = -(-len(panels) // 2)
    bands = _bands(record, lines + bool(roof and roofed), record.title)
    for axes, (pattern, rows) in zip(_panels(bands, len(panels)), panels.items(), strict=True):
        _speeds(axes, pattern, rows)
        _legend(bands, axes)
    if roof and roofed:
        axes = bands[1 + lines].subplots()
        bands[1 + lines].subplots_adjust(**MARGINS)
        _roofline(axes, roof, roofed)
    return write(bands[0].figure, path)


def _rows(record: NmRecord) -> tuple[NmRow, ...]:
    if not record.rows:
        raise ValueError("a plot of vectors needs at least one row, got none: run louver bench nm first")
    return record.rows


def _bands(record: NmRecord, count: int, title: str) -> Any:
    """The head, rows of panels and foot of a new figure."""
    made = figure(WIDTH, PANEL * count + HEAD + FOOT)
    bands = made.subfigures(count + 2, 1, height_ratios=[HEAD, *[PANEL] * count, FOOT])
    head(bands[0], title)
    foot(bands[-1], record.foot, FOOT_COLUMNS)
    return bands


def _panels(bands: Any, count: int) -> list[Any]:
    """The first `count` panels, two in a band."""
    found: list[Any] = []
    for band in bands[1 : 1 + -(-count // 2)]:
        found += list(band.subplots(1, 2))
        band.subplots_adjust(wspace=0.12, **MARGINS)
    for spare in found[count:]:
        spare.set_visible(False)
    return found[:count]


def _legend(bands: Any, axes: Any) -> None:
    """Name the lines or bars of a panel in the head, once."""
    if not bands[0].legends:
        place = {"loc": "center right", "bbox_to_anchor": (0.99, 0.5), "ncols": 4}
        bands[0].legend(*axes.get_legend_handles_labels(), frameon=False, fontsize=8, **place)


def _speeds(axes: Any, pattern: Pattern, rows: list[NmRow]) -> None:
    for kind in KINDS:
        found = [(place, speed) for place, row in enumerate(rows) if (speed := row.speedup(kind)) is not None]
        places, speeds = zip(*found, strict=True)
        look = {"color": COLORS["ours"], "linewidth": 1.4, "marker": "o" if len(places) <= FEW else None}
        axes.plot(places, speeds, STYLES[kind], label=LAYOUTS[kind], **look)
    axes.axhline(1, color=COLORS["cublas"], linestyle="--", label="cuBLAS")
    axes.axhline(pattern.rescaling, color=COLORS["cusparselt"], linestyle="--", label="ideal, M / N")
    counts = [row.shape[1] for row in rows]
    groups = {n: [place for place, count in enumerate(counts) if count == n] for n in dict.fromkeys(counts)}
    for places in list(groups.values())[1:]:
        axes.axvline(places[0] - 0.5, color=MUTED, linewidth=0.6)
    axes.set_xticks([(places[0] + places[-1]) / 2 for places in groups.values()], [f"{n:,}" for n in groups])
    axes.set_xlabel("tokens, each with the weights in their order", fontsize=8, color=INK)
    axes.set_ylim(0, 1.15 * max(pattern.rescaling, *axes.get_ylim()))
    clean(axes, grid="y")
    titles(axes, f"{rows[0].sparsity}: {pattern}")


def _roofline(axes: Any, roof: Roof, rows: list[NmRow]) -> None:
    ridge, peak = roof.f32_ridge, roof.f32_ridge * roof.bytes_per_second / 1e12
    points = [(row.flop_per_byte, row.tflops("matmul"), row) for row in rows]
    left, right = 0.6 * min(ridge, *(x for x, _, _ in points)), 1.6 * max(ridge, *(x for x, _, _ in points))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.plot([left, ridge, right], [peak * left / ridge, peak, peak], color=INK, linewidth=1.6)
    axes.plot([x for x, _, _ in points], [y for _, y, _ in points], "o", color=COLORS["ours"], markersize=6)
    for x, y, row in points:
        said = f"{row.sparsity}\n{y:.1f} TFLOP/s\n{y / peak:.0%} of peak"
        axes.annotate(said, (x, y), (0, -34), textcoords="offset points", ha="center", fontsize=7, color=INK)
    axes.set_xlim(left, right)
    axes.set_ylim(0.35 * min(peak * left / ridge, *(y for _, y, _ in points)), 1.5 * peak)
    titles(
        axes,
        f"Roofline of CUDA cores at {'×'.join(map(str, ROOFLINE_SHAPE))}",
        f"peak {peak:.1f} TFLOP/s at {roof.clock_mhz:,.0f} MHz; memory {roof.bytes_per_second / 1e12:.1f} TB/s",
    )
    axes.set_xlabel("FLOP for each byte by equation (3), C moved once", fontsize=8, color=INK)
    axes.set_ylabel("TFLOP/s, zeros not counted", fontsize=8, color=INK)
    clean(axes, grid="both")
    axes.minorticks_off()
    for axis, ticks in ((axes.xaxis, (4, 8, 16, 32, 64)), (axes.yaxis, (5, 10, 20, 40, 80))):
        low, high = axis.get_view_interval()
        axis.set_ticks([tick for tick in ticks if low <= tick <= high], minor=False)
        axis.set_major_formatter("{x:g}")


def plot_nm_ladder(record: NmRecord, path: Path) -> Path:
    """A panel for each case, with a group of bars for each sparsity. Returns `path`. Raises as `plot_nm`."""
    names, cases = versions_of(record), list(dict.fromkeys(row.case for row in _rows(record)))
    bands, width = _bands(record, -(-len(cases) // 2), TITLE_LADDER), 0.84 / len(names)
    for axes, case in zip(_panels(bands, len(cases)), cases, strict=True):
        rows = [row for row in record.rows if row.case == case]
        for number, name in enumerate(names):
            places = [place + (number - (len(names) - 1) / 2) * width for place in range(len(rows))]
            speeds = [row.speedup(name) or 0.0 for row in rows]
            axes.bar(places, speeds, width * 0.92, color=SHADES[number % len(SHADES)], label=name)
            for at, speed in zip(places, speeds, strict=True):
                said = f"{speed:.1f}" if speed else "–"
                axes.annotate(said, (at, speed), ha="center", va="bottom", fontsize=6, color=INK)
        axes.set_ylim(0, 1.12 * axes.get_ylim()[1])
        axes.axhline(1, color=MUTED, linewidth=0.8)
        axes.set_xticks(range(len(rows)), [row.sparsity for row in rows])
        titles(axes, f"{case}: {'×'.join(map(str, rows[0].shape))}")
        clean(axes, grid="y")
        _legend(bands, axes)
    return write(bands[0].figure, path)
