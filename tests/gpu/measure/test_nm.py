"""The figures of NM-SpMM on a GPU: every contender computes rightly, and the commands write what they measure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from louver.cli import app
from louver.cli.commands import nm as command
from louver.measure.nm import KINDS, VERSIONS, ladder_patterns, measure_ladder, measure_weight, patterns
from louver.measure.protocol import Protocol
from louver.measure.report.nm import COPY, CUBLAS, read_nm

BRIEF = Protocol(rounds=1, burst_seconds=0.004, pause_seconds=0, launches=2, rotation_bytes=0)
BRIEF_FEW = replace(BRIEF, rotation_bytes=200_000)


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.parametrize(("length", "dtype"), [(32, "f32"), (128, "f32"), (128, "bf16")])
def test_every_point_is_verified_and_timed(torch: Any, length: int, dtype: str) -> None:
    rows = measure_weight(torch, (320, 416), (64, 200), patterns(length), dtype, (BRIEF, BRIEF_FEW))
    assert [(row["shape"][1], row["pattern"]) for row in rows] == [
        (n, str(pattern)) for n in (64, 200) for pattern in patterns(length)
    ]
    names = {*KINDS, *(f"{CUBLAS} {kind}" for kind in KINDS)}
    assert all(set(row["us"]) == names | ({COPY} if row["shape"][1] == 64 else set()) for row in rows)


def test_every_version_is_verified_and_timed(torch: Any) -> None:
    chosen = [pattern for pattern in ladder_patterns(32) if pattern.n in (4, 32)]
    for row in measure_ladder(torch, ("A",), chosen, BRIEF):
        assert set(row["us"]) == {CUBLAS, *VERSIONS}
        assert all("two stages" in reason for reason in row["refused"].values())


def test_the_command_writes_a_record(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PROTOCOL", BRIEF)
    monkeypatch.setattr(command, "FEW", BRIEF_FEW)
    result = CliRunner().invoke(app, ["bench", "nm", "--shapes", "256x64x256,256x200x256", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert len(read_nm(tmp_path / "nm.json").rows) == 8
