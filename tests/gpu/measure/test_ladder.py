"""The ladder on a GPU: every rung computes rightly, and the command writes what it measures."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from louver.cli import app
from louver.cli.commands import bench as command
from louver.measure.ladder import ladder, measure_ladder
from louver.measure.protocol import Protocol
from louver.measure.report.ladder import read_ladder


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


BRIEF = Protocol(rounds=1, burst_seconds=0.004, pause_seconds=0, rotation_bytes=1)


@pytest.mark.parametrize("dtype", ["e4m3", "f16"])
@pytest.mark.parametrize("shape", [(512, 512, 1024), (416, 272, 1184)], ids=["whole", "tails"])
def test_every_rung_is_verified_and_timed(torch: Any, dtype: str, shape: tuple[int, int, int]) -> None:
    found = measure_ladder(torch, dtype, BRIEF, shape)
    assert [row["change"] for row in found["rungs"]] == [rung.change for rung in ladder(dtype)]
    assert all(row["us"] > 0 for row in found["rungs"])


def test_the_command_writes_a_record(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "QUICK", BRIEF)
    monkeypatch.setattr(command, "measure_ladder", partial(measure_ladder, shape=(256, 256, 256)))
    result = CliRunner().invoke(app, ["bench", "ladder", "--dtype", "e4m3", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    record = read_ladder(tmp_path / "ladder.json")
    assert record.ladders[0].shape == (256, 256, 256)
    assert {"louver", "torch", "ptxas", "CUDA"} <= set(record.versions)
