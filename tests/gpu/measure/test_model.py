"""`louver bench model` on a GPU, of two small cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def test_a_record(torch: Any, tmp_path: Path) -> None:
    from louver.cli.commands.model import bench_model
    from louver.measure.report.model import read_model

    bench_model(1, tmp_path, head=True, prefill="1x256", decode="2", modes="eager,compiled", budget=None)
    record = read_model(tmp_path / "model.json")
    reasons = {row.title: row.reasons for row in record.rows if row.reasons and row.mode != "kernels"}
    assert not reasons, reasons
    assert len(record.rows) == 6 + ("torchao_reason" not in record.facts) and record.facts["swapped"]
