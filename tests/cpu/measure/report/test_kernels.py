from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from louver.measure.report.kernels import kernels_tables, plot_kernels, read_kernels, summarize
from louver.measure.report.records import draw
from louver.measure.report.table import Table


def row(form: str, tile: tuple[int, int], us: float | None, kind: str = "product", **more: Any) -> dict[str, Any]:
    times = {} if us is None else {"louver_us": us, "triton_us": 12.0, "unit": {"HGMMA.SP": 2, "HGMMA": 1}}
    return {"form": form, "kind": kind, "tile": [*tile, 64], "sizes": [256, 256, 256], **times, **more}


ROWS = [
    row("one", (128, 128), 6.0),
    row("one", (64, 64), 24.0, cublas_us=5.0, family="register tiles"),
    row("two", (128, 256), 3.0, kind="attention", unit={"HMMA.SP": 1}),
    row("three", (64, 64), None, refused="no such thing"),
    row("four", (32, 64), None, failed="exit code 3"),
]


def a_record(rows: list[dict[str, Any]]) -> dict[str, Any]:
    header = {"schema": 1, "kind": "kernels", "device": "NVIDIA H200", "versions": {"driver": "580"}}
    return {**header, "protocol": "bursts", "general": True, "rows": rows}


def write(path: Path, record: Any) -> Path:
    path.write_text(json.dumps(record))
    return path


def test_means_by_group_and_counts() -> None:
    found = summarize(ROWS)
    assert found.pop("times_dense") == {
        "all": {"calls": 3, "mean": pytest.approx(1.587), "least": 0.5},
        "product": {"calls": 2, "mean": 1.0, "least": 0.5},
        "attention": {"calls": 1, "mean": 4.0, "least": 4.0},
        "128×128 and more": {"calls": 2, "mean": pytest.approx(2.828), "least": 2.0},
        "64×64": {"calls": 1, "mean": 0.5, "least": 0.5},
        "by register tiles": {"calls": 1, "mean": 0.5, "least": 0.5},
    }
    # Triton takes 12 µs at both tiles of "one", we 6 at the better one.
    best = {"calls": 1, "mean": 2.0, "least": 2.0}
    assert found.pop("times_best") == {"all": best, "product": best}
    beside = {"calls": 1, "mean": pytest.approx(0.208), "least": 0.208}
    assert found.pop("times_cublas") == dict.fromkeys(("all", "product", "64×64", "by register tiles"), beside)
    assert found == {
        "forms": 4,
        "accepted": 2,
        "refused": 1,
        "failed": 1,
        "sparse_by_warpgroup": 1,
        "slower": 1,
        "unexpected": 1,
    }


def test_the_tables_have_times_and_messages() -> None:
    calls, means, counts, *messages = kernels_tables(ROWS, "kernels")
    assert isinstance(calls, Table) and isinstance(means, Table)
    assert [cells[0] for cells in calls.rows] == ["two", "one", "one"]
    assert calls.rows[2] == ("one", "64×64×64", "product", "HGMMA.SP, HGMMA", "24.0", "12.0", "5.0", "0.50")
    assert counts == (
        "4 forms: 2 accepted and right, 1 of them by sparse warpgroup products; 1 refused, 1 failed. "
        "Slower than dense: 1, 1 of them without a warning"
    )
    assert messages == ["three 64×64×64: no such thing", "four 32×64×64: exit code 3"]


def test_a_picture_has_a_bar_for_each_call(tmp_path: Path) -> None:
    path = write(tmp_path / "k.json", a_record(ROWS))
    assert draw(path, tmp_path / "k.png").read_bytes().startswith(b"\x89PNG")
    empty = read_kernels(write(tmp_path / "e.json", a_record(ROWS[3:])))
    with pytest.raises(ValueError, match="a plot of kernels needs calls timed beside Triton's, got none"):
        plot_kernels(empty, tmp_path / "e.png")


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"kind": "gemm"}, "expected schema 1 and kind 'kernels', got 1 and 'gemm'"),
        ({"rows": [{"form": "one"}]}, "a kernels record needs 'tile'"),
        ({"rows": [row("one", (64, 64), 0.0)]}, "times are positive numbers of microseconds"),
        ({"rows": [row("one", (64, 64), None)]}, "one 64×64×64 has times or a message"),
    ],
)
def test_refuses_what_breaks_the_schema(tmp_path: Path, change: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule) as caught:
        read_kernels(write(tmp_path / "bad.json", a_record(ROWS) | change))
    assert "bad.json" in str(caught.value)
