from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from louver.report.gemm import GemmRow, read_gemm
from louver.report.plots import plot_gemm


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


def test_plot_of_nothing_is_refused(tmp_path: Path) -> None:
    record = read_gemm(write(tmp_path / "g.json", a_record() | {"rows": []}))
    with pytest.raises(ValueError, match="at least one row"):
        plot_gemm(record, tmp_path / "g.png")


def test_a_time_is_finite() -> None:
    with pytest.raises(ValueError, match="ours_us is a positive number"):
        GemmRow((1, 2, 3), "f16", "linear", {"ours": float("inf")})
