"""Draws the figures of NM-SpMM: speed over cuBLAS and a roofline (Figures 9 and 10), and its versions (Figure 7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from louver.formats.pattern import Pattern
from louver.measure.report.canvas import COLORS, INK, MUTED, clean, figure, foot, head, titles, write
from louver.measure.report.nm import KINDS, NmRecord, NmRow, by_pattern, versions_of
from louver.measure.report.roofline import ROOFS, Roof

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
