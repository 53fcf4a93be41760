"""`louver.advise`: origins, intervals, the order of formats, losses, and bad input."""

from __future__ import annotations

import re
import statistics
from dataclasses import replace
from typing import Any

import pytest

import louver
from louver.advice.formats import DEFAULT, Format, Losses, losses
from louver.advice.product import compare, device_named
from louver.advice.rates import LIMITS, Fitted, Known, Recorded, Residuals, Time, kernel_of, known, predicted
from louver.choose.times import H200

NAME = "NVIDIA H200"


def test_a_recorded_product_comes_from_the_table() -> None:
    advice = louver.advise(4096, 256, 4096, device="H200")
    recorded = known()[NAME].table[Format("f16", "2:4"), 4096, 256, 4096]
    us, spread = recorded.us, recorded.spread
    row = advice["f16 2:4"]
    assert row.time == Time(us, us * (1 - spread), us * (1 + spread), "table")
    assert advice["bf16 4:8@128"].time is not None and advice["bf16 4:8@128"].time.origin == "model"
    times = [each.time.us for each in advice.rows if each.time is not None]
    assert times == sorted(times) and advice.best is advice.rows[0]
    assert any("h200/gemm-tokens.json" in note for note in advice.notes)


def test_measured_times_come_first_and_unknown_gpus_have_no_others() -> None:
    sizes, taken = (4096, 256, 4096), Time(3.0, 2.9, 3.1, "measured")
    measured = {(Format("f16"), *sizes): taken}
    assert compare(*sizes, None, NAME, measured).best == compare(*sizes, None, NAME, measured)["f16"]
    advice = compare(*sizes, ["f16", "e4m3"], "NVIDIA A100", {})
    assert advice.best is None and advice.close == () and all(row.limit == "" for row in advice.rows)
    assert advice.notes == ("no times of NVIDIA A100 are recorded: measure them here, with --measure",)
    there = compare(
        *sizes, ["f16", "e4m3", "s8"], "NVIDIA A100", {**measured, (Format("e4m3"), *sizes): "no such kernel"}
    )
    assert there["f16"].time == taken and there.notes == ()
    assert there["e4m3"].refusal == "no such kernel" and there["s8"].refusal == "not measured"


def test_predictions_lie_beside_the_records() -> None:
    device = known()[NAME]
    ratios: list[float] = []
    inside: list[bool] = []
    for format, m, n, k in list(device.table)[::7]:
        time, us = predicted(format, m, n, k, device), device.table[format, m, n, k].us
        ratios.append(abs(time.us / us - 1))
        inside.append(time.low <= us <= time.high)
    assert statistics.median(ratios) < 0.03 and statistics.fmean(inside) > 0.85


def test_intervals_are_wider_where_no_record_is_alike() -> None:
    half, whole = Residuals(0.9, 1.2, 0), Residuals(0.9, 1.2, 5)
    fitted = {("dense", "f16"): Fitted("dense", "f16", H200, half, whole)}
    sizes = [(Format("f16"), 1024, 300, 1024), (Format("f16"), 4096, 8192, 4096)]
    device = Known("X", {}, fitted, dict.fromkeys(((f, m, n, k) for f, m, n, k in sizes), Recorded(1.0, 0.0, 1.0)), {})
    for strange, note in (
        ((Format("f16"), 2048, 100, 2048), "no record of up to 256 tokens"),
        ((Format("e4m3"), 2048, 300, 2048), "no record of e4m3, rates of f16"),
        ((Format("f16"), 64, 512, 64), "no record of a weight of so few elements"),
        ((Format("f16"), 4096, 512, 4112), "no record of a weight of so many elements"),
        ((Format("f16"), 4096, 9000, 4096), "no record of more than 8192 tokens"),
    ):
        time = predicted(*strange, device)
        assert time.note == note
        assert (time.low / time.us, time.high / time.us) == pytest.approx((0.9**2, 1.2**2))
    time = predicted(Format("f16"), 2048, 300, 2048, device)
    assert time.note == "" and (time.low / time.us, time.high / time.us) == pytest.approx((0.9, 1.2))


def test_the_limit_is_what_the_time_follows() -> None:
    assert kernel_of(Format("f16"), 28672, 1, 8192).limit(H200) == "memory"
    assert kernel_of(Format("f16"), 8192, 8192, 8192).limit(H200) == "power"
    assert kernel_of(Format("f16", "2:4"), 64, 1, 64).limit(H200) == "launch"
    narrow = replace(H200, gather=H200.gather / 50)
    assert kernel_of(Format("bf16", "4:8@128"), 8192, 4096, 8192).limit(narrow) == "gathering"
    assert set(LIMITS) >= {"memory", "power", "launch", "gathering", "tensor cores"}


def test_formats_that_are_close_are_named() -> None:
    advice = louver.advise(4096, 300, 5120, device=NAME)
    best = advice.best
    assert best is not None and best.time is not None
    for row in advice.rows[1:]:
        assert row.time is not None and (row in advice.close) == (row.time.low < best.time.high)
    assert advice.fastest(["f16", "bf16 2:4"]) == advice["bf16 2:4"]
    with pytest.raises(KeyError, match="f16 4:8 was not compared; the formats are"):
        advice.fastest(["f16 4:8"])


def test_every_gpu_has_rates_for_each_kind() -> None:
    assert set(known()) == {NAME, "NVIDIA H100 80GB HBM3"}
    for device in known().values():
        for format in DEFAULT:
            assert device.fitted_for(format)[0].kind == format.kind
            assert 0 < predicted(format, 5120, 100, 4096, device).us < 1000
    assert device_named("h100") == "NVIDIA H100 80GB HBM3"
    with pytest.raises(
        ValueError, match="device is one GPU, got 'nvidia', which is a word of NVIDIA H100 80GB HBM3, NVIDIA H"
    ):
        device_named("nvidia")
    with pytest.raises(TypeError, match='device is the name of a GPU, such as "H100", got 3'):
        device_named(3)  # type: ignore[arg-type]


def test_losses_are_the_least_of_the_record() -> None:
    record = Losses("m", "d", [("dense", "e4m3", 1.1), ("2:4", "A", 2.0), ("2:4", "B", 1.5), ("2:4", "B, e4m3", 1.6)])
    found = [record.of(Format.parse(text)) for text in ("e4m3", "f16 2:4", "e4m3 2:4", "s8 2:4", "bf16 4:8@128")]
    assert [None if each is None else (each.ratio, each.method) for each in found] == [
        (1.1, "e4m3"),
        (1.5, "B"),
        (1.6, "B, e4m3"),
        None,
        None,
    ]
    dense = losses().of(Format("f16"))
    assert dense is not None and dense.ratio == 1


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"m": 0}, ValueError, "m is an integer from 1 to 2147483647, got 0"),
        ({"n": -3}, ValueError, "n is an integer from 1 to 2147483647, got -3"),
        ({"k": 2**31}, ValueError, "k is an integer from 1 to 2147483647, got 2147483648"),
        ({"k": 4096.0}, TypeError, "k is an integer from 1 to 2147483647, got float"),
        ({"n": True}, TypeError, "n is an integer from 1 to 2147483647, got bool"),
        ({"formats": ["f64"]}, ValueError, "formats have elements of f16, bf16, e4m3, s8, got 'f64'"),
        ({"formats": "e4m3"}, ValueError, "formats are a list"),
        (
            {"device": "A100"},
            ValueError,
            "times of NVIDIA H100 80GB HBM3, NVIDIA H200 are recorded, got 'A100': run louver advise --measure on that GPU",
        ),
        ({"measure": 1}, TypeError, "measure is True or False, got an object of type int"),
        (
            {"measure": True, "device": "H200"},
            ValueError,
            "formats are measured on the GPU at hand: leave out measure or device, got 'H200'",
        ),
    ],
)
def test_bad_input(change: Any, error: type[Exception], message: str) -> None:
    given: dict[str, Any] = {"m": 64, "n": 1, "k": 64, **change}
    with pytest.raises(error, match=re.escape(message)):
        louver.advise(given.pop("m"), given.pop("n"), given.pop("k"), **given)


def test_records_validate_themselves() -> None:
    with pytest.raises(ValueError, match="a time is positive and inside its interval"):
        Time(2.0, 2.1, 3.0, "model")
    with pytest.raises(ValueError, match="residuals are positive, low to high, of 0 rows or more"):
        Residuals(1.1, 0.9, 3)


def test_advice_prints_a_line_for_each_format() -> None:
    text = str(louver.advise(4096, 8, 4096, device=NAME, formats=["f16 2:4", "s8"]))
    assert text.startswith("4096×8×4096 on NVIDIA H200\n  f16 2:4 ")
    assert "s8             PyTorch's dense product of s8 needs 17 tokens or more" in text


def test_a_file_of_rates_is_read_as_written() -> None:
    text = (
        '{"device": "X", "records": {"x/a.json": "2026-01-02T00"}, "conversion": {}, "fitted": [{"kind": "dense", "element": '
        '"f16", "rates": {"begin": 1755.0}, "few": [0.9, 1.1, 3], "many": [0.8, 1.2, 0]}], "table": [["f16", 8, 8, 8, 1.5, 0.1, 1.4]]}'
    )
    found = Known.of(text)
    assert found.fitted_for(Format("f16"))[0].rates == replace(H200, begin=1755.0)
    assert found.table == {(Format("f16"), 8, 8, 8): Recorded(1.5, 0.1, 1.4)}
    assert found.unlike(Format("f16"), 8, 8, 8) == "" and found.unlike(Format("e4m3"), 8, 8, 8) != ""
