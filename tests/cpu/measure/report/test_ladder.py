from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from louver.measure.report.ladder import CLAIMS, Ladder, LadderRung, ladder_tables, plot_ladder, read_ladder
from louver.measure.report.records import draw
from support.pictures import Picture


def a_record() -> dict[str, Any]:
    rungs = [
        {"change": "baseline", "us": 100.0, "claim_tflops": 430.0, "schedule": {}},
        {"change": "stages 2", "us": 80.0, "claim_tflops": None, "schedule": {}},
    ]
    ladder = {"dtype": "e4m3", "out": "f16", "shape": [4096, 256, 4096], "rungs": rungs}
    header = {"schema": 1, "kind": "ladder", "device": "NVIDIA H200", "versions": {"driver": "580"}}
    return {**header, "protocol": "bursts", "ladders": [ladder]}


def write(path: Path, record: Any) -> Path:
    path.write_text(json.dumps(record))
    return path


def test_speed_gain_and_part_of_the_peak(tmp_path: Path) -> None:
    record = read_ladder(write(tmp_path / "l.json", a_record()))
    (ladder,) = record.ladders
    first, second = ladder.rungs
    assert ladder.tflops(first) == pytest.approx(2 * 4096 * 256 * 4096 / 100e-6 / 1e12)
    assert ladder.gain(second) == pytest.approx(0.25)
    assert ladder.efficiency(first, record.device) == pytest.approx(ladder.tflops(first) / 3958)
    assert ladder.efficiency(first, "another GPU") is None
    assert (first.claim, second.claim) == (430.0, None)
    assert ladder.title == "4096×256×4096 e4m3→f16"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"kind": "gemm"}, "expected schema 1 and kind 'ladder', got 1 and 'gemm'"),
        ({"ladders": [{"dtype": "f16", "out": "f16", "shape": [1, 2, 3]}]}, "needs 'rungs'"),
        ({"ladders": [{"dtype": "f16", "out": "f16", "shape": [1, 2], "rungs": []}]}, "not a ladder record"),
        ({"ladders": [{"dtype": "f16", "out": "f16", "shape": [1, 2, 3], "rungs": []}]}, "at least its baseline"),
    ],
)
def test_refuses_what_breaks_the_schema(tmp_path: Path, change: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule) as caught:
        read_ladder(write(tmp_path / "bad.json", a_record() | change))
    assert "bad.json" in str(caught.value)


def test_times_are_positive() -> None:
    with pytest.raises(ValueError, match="us is a positive number of microseconds, got 0"):
        Ladder("f16", "f16", (1, 1, 1), (LadderRung("baseline", 0.0),))


def test_a_record_says_how_it_is_drawn(tmp_path: Path) -> None:
    path = draw(write(tmp_path / "l.json", a_record()), tmp_path / "l.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="needs at least one, got none"):
        draw(write(tmp_path / "e.json", a_record() | {"ladders": []}), tmp_path / "e.png")
    with pytest.raises(ValueError, match="not a gemm record"):
        draw(write(tmp_path / "g.json", [1]), tmp_path / "g.png")


@pytest.mark.parametrize("claim", [430.0, None])
def test_claims_are_explained_where_there_are_any(tmp_path: Path, pictures: list[Picture], claim: float | None) -> None:
    data = a_record()
    data["ladders"][0]["rungs"][0]["claim_tflops"] = claim
    record = read_ladder(write(tmp_path / "l.json", data))
    plot_ladder(record, tmp_path / "l.png")
    words = " ".join(text.get_text() for text in pictures[0].texts).split()
    assert (CLAIMS in " ".join(words)) == (claim is not None)
    assert (ladder_tables(record.ladders, record.device)[1:] == [CLAIMS]) == (claim is not None)
    assert ("a published worklog's claim" in " ".join(words)) == (claim is not None)


def test_a_device_without_a_data_sheet_is_drawn_too(tmp_path: Path) -> None:
    record = read_ladder(write(tmp_path / "l.json", a_record() | {"device": "another GPU"}))
    assert plot_ladder(record, tmp_path / "l.png").is_file()
