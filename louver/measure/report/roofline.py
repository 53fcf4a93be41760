"""Limits of a product's speed on a device: the tensor cores' peak, the peak at the power-limited clock, and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from louver.formats.dtypes import element_type
from louver.measure.report.canvas import COLORS, INK, clean, titles
from louver.measure.report.gemm import CONTENDERS, GemmRecord, GemmRow, SustainedRow, compressed_bytes


@dataclass(frozen=True, slots=True)
class Roof:
    """A device's ceilings.

    sms: streaming multiprocessors. clock_mhz: greatest clock. watts: power limit. flops_per_clock: of an SM with 2:4
    operands, dense-equivalent, by bits of an operand's element. bytes_per_second: read plus written by a copy in
    memory. f32_flops_per_clock: of an SM's CUDA cores.
    """

    sms: int
    clock_mhz: float
    flops_per_clock: Mapping[int, int]
    bytes_per_second: float
    watts: float
    f32_flops_per_clock: int

    def peak(self, bits: int, clock_mhz: float | None = None) -> float:
        """Dense-equivalent TFLOP/s of 2:4 products at a clock; default: the greatest."""
        return self.sms * self.flops_per_clock[bits] * (clock_mhz or self.clock_mhz) * 1e-6

    @property
    def f32_ridge(self) -> float:
        """FLOP per byte from which memory does not limit CUDA cores at the greatest clock."""
        return self.sms * self.f32_flops_per_clock * self.clock_mhz * 1e6 / self.bytes_per_second

    def ridge(self, bits: int) -> float:
        """FLOP per byte from which memory does not limit 2:4 products at the greatest clock."""
        return self.peak(bits) * 1e12 / self.bytes_per_second


ROOFS: Mapping[str, Roof] = {"NVIDIA H200": Roof(132, 1980.0, {32: 4096, 16: 8192, 8: 16384}, 4.3e12, 700.0, 256)}
"""By device name. Sources: NVIDIA's H200 data sheet (132 SMs, 700 W, 67 TFLOP/s of f32); a measured copy in memory."""


DATASHEET: Mapping[str, Mapping[int, float]] = {"NVIDIA H200": {16: 1979.0, 8: 3958.0}}
"""TFLOP/s of 2:4 products in NVIDIA's data sheet, by device name and bits of an operand's element."""


def intensity(row: GemmRow, contender: str) -> float:
    """Dense-equivalent FLOP per byte of operands and result, each moved once. cuBLAS moves the dense weight."""
    m, n, k = row.shape
    bits = element_type(row.dtype).bits
    weight = m * k * bits // 8 if contender == "cublas" else compressed_bytes(m, k, row.dtype)
    out_bits = element_type(row.out or row.dtype).bits
    return 2 * m * n * k / (weight + (n * k * bits + m * n * out_bits) / 8)


def capped_clock(rows: Sequence[SustainedRow]) -> float | None:
    """Mean clock in MHz of sustained 2:4 products: Louver's, else cuSPARSELt's; None without readings."""
    for contender in ("ours", "cusparselt"):
        clocks = [row.clock_mhz for row in rows if row.contender == contender and row.clock_mhz is not None]
        if clocks:
            return sum(clocks) / len(clocks)
    return None


MARKS = {"ours": "o", "cublas": "s", "cusparselt": "D"}
"""Different shapes, so that the picture works without colours."""

LEFT_OF_RIDGE = 0.5
"""The picture's left end relative to the ridge, if no product lies further left."""

ROOF_COLOR, POWER_COLOR = INK, "#b45309"


@dataclass(frozen=True, slots=True)
class _Mark:
    """A product: FLOP per byte, TFLOP/s."""

    x: float
    y: float
    contender: str
    sustained: bool


def draw_roofline(axes: Any, record: GemmRecord, roof: Roof, bits: int) -> None:
    """Speed over intensity of the rows with this operand width, both logarithmic."""
    marks = _marks(record, bits)
    ridge, peak = roof.ridge(bits), roof.peak(bits)
    left = min([ridge * LEFT_OF_RIDGE, *(0.8 * mark.x for mark in marks)])
    right = 1.2 * max([2 * ridge, *(mark.x for mark in marks)])
    start = peak * left / ridge
    low, high = 0.85 * min([start, *(mark.y for mark in marks)]), 1.22 * peak
    _frame(axes, (left, right), (low, high))
    axes.plot([left, ridge, right], [start, peak, peak], color=ROOF_COLOR, linewidth=1.6)
    _say(axes, right, peak, f"2:4 peak at {roof.clock_mhz:,.0f} MHz: {peak:,.0f}", ROOF_COLOR)
    memory = f"memory, {roof.bytes_per_second / 1e12:.1f} TB/s"
    # No product can be left of the line.
    axes.annotate(
        memory, (0.85 * ridge, 0.85 * peak), (-5, 0), textcoords="offset points", fontsize=7.5, color=ROOF_COLOR,
        ha="right", va="center",
    )  # fmt: skip
    clock = capped_clock([row for row in record.sustained if element_type(row.row.dtype).bits == bits])
    if clock is not None:
        capped = roof.peak(bits, clock)
        axes.plot(
            [ridge * capped / peak, right], [capped, capped], color=POWER_COLOR, linewidth=1.4, linestyle=(0, (5, 2))
        )
        said = f"the same at {clock:,.0f} MHz, the clock that {roof.watts:.0f} W allows: {capped:,.0f}"
        _say(axes, right, capped, said, POWER_COLOR)
    for mark in marks:
        _draw(axes, mark)
    said = "filled: bursts, hollow: sustained" if any(mark.sustained for mark in marks) else ""
    titles(axes, f"{bits}-bit operands under the roof", said)


def _marks(record: GemmRecord, bits: int) -> list[_Mark]:
    """Bursts first, Louver's marks last."""
    found: list[_Mark] = []
    for contender in reversed(CONTENDERS):
        rows = [row for row in record.rows if element_type(row.dtype).bits == bits]
        speeds = [(row, row.tflops(contender)) for row in rows]
        found += [_Mark(intensity(r, contender), y, contender, False) for r, y in speeds if y is not None]
        long = [t for t in record.sustained if t.contender == contender and element_type(t.row.dtype).bits == bits]
        found += [_Mark(intensity(t.row, contender), t.tflops, contender, True) for t in long]
    return sorted(found, key=lambda mark: (mark.contender == "ours", mark.sustained))


def _frame(axes: Any, horizontal: tuple[float, float], vertical: tuple[float, float]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*horizontal)
    axes.set_ylim(*vertical)
    axes.set_xlabel("dense-equivalent FLOP for each byte of operands and result", fontsize=8, color=INK)
    axes.set_ylabel("dense-equivalent TFLOP/s", fontsize=8, color=INK)
    clean(axes, grid="both")
    axes.minorticks_off()
    speeds = [n * 10**p for p in range(4) for n in (1, 1.5, 2, 3, 5, 7) if vertical[0] <= n * 10**p <= vertical[1]]
    axes.set_yticks(speeds, [f"{tick:,.0f}" for tick in speeds])
    intensities = [
        n
        for n in (4, 8, 16, 32, 64, 125, 250, 500, 1000, 2000, 4000, 8000, 16000)
        if horizontal[0] <= n <= horizontal[1]
    ]
    axes.set_xticks(intensities, [f"{mark:,}" for mark in intensities])


def _say(axes: Any, x: float, y: float, text: str, color: str) -> None:
    axes.annotate(text, (x, y), (-2, 3), textcoords="offset points", ha="right", fontsize=7.5, color=color)


def _draw(axes: Any, mark: _Mark) -> None:
    color = COLORS[mark.contender]
    face, edge = ("white", color) if mark.sustained else (color, "white")
    axes.plot(
        mark.x, mark.y, MARKS[mark.contender], markersize=6.5, markerfacecolor=face, markeredgecolor=edge,
        mew=1.4 if mark.sustained else 0.6,
    )  # fmt: skip
