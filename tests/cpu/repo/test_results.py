"""Tables of docs/results.md: a source for each, and no number of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import result_tables
import results
from louver.measure.report.gemm import GemmRow


@pytest.mark.parametrize("entry", results.ENTRIES, ids=lambda entry: f"{entry.subject}: {entry.text}")
def test_a_table_names_its_source_and_types_no_number(entry: results.Entry) -> None:
    text = results.section(entry)
    assert re.search(r"NVIDIA \w+.*, commit `[0-9a-f]{7,8}\+?`.*, 20\d\d-\d\d-\d\d\.\n", text), entry.record
    assert not re.search(r"\d\.\d|\d%", entry.text), "numbers come from the record"
    assert len(results.protocol_of(entry.record)) > 100
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) >= 3 and len({row.count(" |") for row in rows}) == 1


def test_means_are_geometric_and_name_the_least() -> None:
    assert result_tables.mean([1.0, 4.0]) == "2.00 (1.00)"
    assert result_tables.mean([None, 0.5], ".0%") == "50%"
    assert result_tables.mean([None]) == "–"


def test_speeds_are_over_the_fastest_peer_and_the_limit_is_the_longer_time() -> None:
    row = GemmRow((4096, 8192, 8192), "f16", "linear", {"ours": 500.0, "cublas": 900.0, "cusparselt": 600.0})
    assert result_tables.over(row, "cublas") == 1.8 and result_tables.over(row, "cublas", "cusparselt") == 1.2
    assert result_tables.over(row, "copy") is None and result_tables.over(row, "cublas", of="dependent") is None
    at_peak = 2 * 4096 * 8192 * 8192 / 1979e12 * 1e6
    assert result_tables.limit(row, "NVIDIA H200") == pytest.approx(at_peak / 500.0)
    small = GemmRow((4096, 1, 4096), "f16", "linear", {"ours": 8.0, "copy": 6.0})
    assert result_tables.limit(small, "NVIDIA H200") == 0.75


def test_a_slow_copy_is_not_the_measure() -> None:
    rows = [
        GemmRow((4096, n, 8192), "f16", "linear", {"ours": 10.0, "copy": us})
        for n, us in ((1, 14.0), (2, 9.0), (64, 9.5))
    ]
    other = GemmRow((8192, 4, 8192), "f16", "linear", {"ours": 10.0, "copy": 1.0})
    assert [result_tables.copied(row, [*rows, other]) for row in rows] == [9.0, 9.0, 9.5]


def test_rows_of_later_runs_keep_their_commits(tmp_path: Path) -> None:
    rows = [{"commit": "0123456789ab+"}, {}, {}]
    record = {"device": "D", "versions": {"commit": "ba9876543210"}, "date": "2026-01-02T03:04:05", "rows": rows}
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    assert result_tables.source(path) == "D, commit `01234567+` (1 rows), `ba987654` (2 rows), 2026-01-02"
