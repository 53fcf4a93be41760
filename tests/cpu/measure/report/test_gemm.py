from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from louver.measure.report.gemm import GemmRow, read_gemm
from louver.measure.report.gemm_plot import over_tokens, plot_gemm
from louver.measure.report.records import draw


def a_record() -> dict[str, Any]:
    return {
        "schema": 1,
        "kind": "gemm",
        "device": "NVIDIA H200",
        "versions": {"driver": "580", "ptxas": "13.5.37"},
        "protocol": "graph replays of at most 0.1 s",
        "rows": [
            {"shape": [4096, 256, 4096], "dtype": "f16", "ours_us": 20.0, "cublas_us": 18.5, "cusparselt_us": 15.25},
            {"shape": [4097, 8, 192], "dtype": "bf16", "ours_us": 4.0, "cublas_us": 8.0, "cusparselt_us": None},
        ],
    }


def write(path: Path, record: Any) -> Path:
    path.write_text(json.dumps(record))
    return path


def test_reads_rows_and_leaves_out_what_was_not_timed(tmp_path: Path) -> None:
    record = read_gemm(write(tmp_path / "g.json", a_record()))
    assert record.rows[0].shape == (4096, 256, 4096)
    assert record.rows[0].tflops("ours") == pytest.approx(2 * 4096 * 256 * 4096 / 20e-6 / 1e12)
    assert record.rows[1].tflops("cusparselt") is None
    assert record.versions["ptxas"] == "13.5.37"


def test_another_way_to_accumulate_shows(tmp_path: Path) -> None:
    record = a_record()
    record["rows"][0]["accumulate"] = "f16"
    rows = read_gemm(write(tmp_path / "g.json", record)).rows
    assert [row.types for row in rows] == ["f16, sums in f16", "bf16"]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"schema": 2}, "expected schema 1"),
        ({"kind": "skinny"}, "expected schema 1 and kind 'gemm'"),
        ({"rows": [{"shape": [1, 2], "dtype": "f16"}]}, "not a gemm record"),
        ({"rows": [{"shape": [0, 2, 3], "dtype": "f16"}]}, "each at least 1"),
        ({"rows": [{"shape": [5, 2, 3], "dtype": "f16", "ours_us": -1}]}, "positive number"),
        ({"rows": [{"shape": [5, 2, 3]}]}, "needs 'dtype'"),
        ({"rows": 3}, "not a gemm record"),
    ],
)
def test_refuses_what_breaks_the_schema(tmp_path: Path, change: dict[str, Any], rule: str) -> None:
    path = write(tmp_path / "bad.json", a_record() | change)
    with pytest.raises(ValueError, match=rule) as caught:
        read_gemm(path)
    assert "bad.json" in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[1, 2]", ""])
def test_refuses_what_is_not_an_object(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="not a gemm record"):
        read_gemm(path)


def test_plot_writes_a_png(tmp_path: Path) -> None:
    record = read_gemm(write(tmp_path / "g.json", a_record()))
    path = plot_gemm(record, tmp_path / "g.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 10_000


def test_reads_what_was_sustained(tmp_path: Path) -> None:
    data = a_record()
    taken = {"us": 25.0, "clock_mhz": 1400.0, "power_w": None, "tflops": 1.0}
    data["rows"][0]["sustained"] = {"ours": taken, "somebody": taken}
    record = read_gemm(write(tmp_path / "g.json", data))
    (found,) = record.sustained
    assert found.row is record.rows[0]
    assert (found.contender, found.us, found.clock_mhz, found.power_w) == ("ours", 25.0, 1400.0, None)
    assert found.tflops == pytest.approx(2 * 4096 * 256 * 4096 / 25e-6 / 1e12)
    data["rows"][0]["sustained"] = {"ours": taken | {"clock_mhz": 0}}
    with pytest.raises(ValueError, match=r"clock_mhz of sustained ours is a positive number, got 0\.0"):
        read_gemm(write(tmp_path / "g.json", data))


@pytest.mark.parametrize("device", ["NVIDIA H200", "a GPU that nobody knows"])
@pytest.mark.parametrize("sustained", [False, True])
def test_plot_draws_both_widths_and_sustained_speed(tmp_path: Path, device: str, sustained: bool) -> None:
    data = a_record() | {"device": device}
    shape = {"shape": [4096, 8192, 8192], "dtype": "s8", "out": "s32", "ours_us": 300.0, "cublas_us": 600.0}
    data["rows"].append(shape)
    if sustained:
        shape["sustained"] = {"ours": {"us": 330.0, "clock_mhz": 1350.0, "power_w": 690.0}}
    path = plot_gemm(read_gemm(write(tmp_path / "g.json", data)), tmp_path / "new" / "g.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_plot_of_nothing_is_refused(tmp_path: Path) -> None:
    record = read_gemm(write(tmp_path / "g.json", a_record() | {"rows": []}))
    with pytest.raises(ValueError, match="at least one row"):
        plot_gemm(record, tmp_path / "g.png")


def test_a_time_is_finite() -> None:
    with pytest.raises(ValueError, match="ours_us is a positive number"):
        GemmRow((1, 2, 3), "f16", "linear", {"ours": float("inf")})


def test_weights_of_several_numbers_of_tokens_are_drawn_over_them(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [
        {"shape": [m, n, 4096], "dtype": dtype, "ours_us": 5.0 + n, "cublas_us": 7.0 + n, "copy_us": 4.0, "out": "f16"}
        | ({"dependent_us": 3.0 + n} if dtype == "f16" else {})
        for m in (4096, 8192)
        for dtype in ("f16", "e4m3")
        for n in (1, 16, 64)
    ]
    record = write(tmp_path / "g.json", a_record() | {"rows": rows})
    found = read_gemm(record)
    assert over_tokens(found) and not over_tokens(read_gemm(write(tmp_path / "h.json", a_record())))
    assert found.rows[0].times_us == {"ours": 6.0, "dependent": 4.0, "cublas": 8.0, "copy": 4.0}
    assert draw(record, tmp_path / "g.png").read_bytes().startswith(b"\x89PNG")
