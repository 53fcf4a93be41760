"""Limits of a product's speed on a device: the tensor cores' peak, the peak at the power-limited clock, and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from louver.formats.dtypes import element_type
from louver.measure.report.gemm import GemmRow, SustainedRow, compressed_bytes


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
