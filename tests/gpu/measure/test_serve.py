"""`louver bench serve` on a GPU, at two numbers of tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def test_a_record(torch: Any, tmp_path: Path) -> None:
    from louver.cli.commands.model import bench_serve
    from louver.measure.report.serve import read_serve

    bench_serve("1,24", tmp_path, budget=None)
    record = read_serve(tmp_path / "serve.json")
    reasons = {row.title: row.reasons for row in record.rows if row.reasons}
    assert not reasons, reasons
    assert len(record.rows) == 10 and all(len(row.ms) == 4 for row in record.rows)
    assert all(0 < each < 0.3 for each in record.facts["difference"].values())
