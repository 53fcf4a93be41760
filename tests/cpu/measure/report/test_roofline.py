from __future__ import annotations

import pytest

from louver.measure.report.gemm import GemmRow, SustainedRow
from louver.measure.report.roofline import ROOFS, capped_clock, intensity

H200 = ROOFS["NVIDIA H200"]
ROW = GemmRow((4096, 8192, 2048), "f16", "linear", {"ours": 1.0})


@pytest.mark.parametrize(("bits", "peak"), [(32, 1071), (16, 2141), (8, 4282)])
def test_the_peak_follows_the_clock(bits: int, peak: int) -> None:
    assert round(H200.peak(bits)) == peak
    assert H200.peak(bits, 990) == pytest.approx(peak / 2, rel=1e-3)


def test_roofs_meet_at_the_ridge() -> None:
    assert H200.ridge(16) * H200.bytes_per_second == pytest.approx(H200.peak(16) * 1e12)


def test_intensity_counts_what_each_contender_must_move() -> None:
    flops = 2 * 4096 * 8192 * 2048
    tokens, result = 8192 * 2048 * 2, 8192 * 4096 * 2
    assert intensity(ROW, "cublas") == pytest.approx(flops / (4096 * 2048 * 2 + tokens + result))
    assert intensity(ROW, "ours") == pytest.approx(flops / (4096 * 2048 * 9 / 8 + tokens + result))
    integers = GemmRow(ROW.shape, "s8", "linear", {}, "s32")
    assert intensity(integers, "ours") == pytest.approx(flops / (4096 * 2048 * 5 / 8 + tokens / 2 + 2 * result))


def test_the_clock_is_that_of_2_4_products_ours_first() -> None:
    def row(contender: str, clock: float | None) -> SustainedRow:
        return SustainedRow(ROW, contender, 1.0, clock, None)

    others = [row("cublas", 1450.0), row("cusparselt", 1400.0)]
    assert capped_clock([*others, row("ours", 1300.0), row("ours", 1320.0)]) == 1310
    assert capped_clock([*others, row("ours", None)]) == 1400
    assert capped_clock(others[:1]) is None
