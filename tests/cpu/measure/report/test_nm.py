"""Records of vectors: reading and drawing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from louver.measure.nm import CASES, VERSIONS, ladder_patterns, patterns
from louver.measure.report.nm import read_nm
from louver.measure.report.records import draw
from support.pictures import Picture

HEADER = {"schema": 1, "device": "NVIDIA H200", "versions": {"driver": "580"}, "protocol": "bursts"}


def points(device: str = "NVIDIA H200") -> dict[str, Any]:
    """Figures near those of an H200."""
    rows = [
        {
            "shape": [4096, n, k],
            "pattern": str(p),
            "us": {
                "matmul": 2700 * p.n / p.m + n / 100,
                "linear": 1700.0,
                "cublas matmul": 2700.0,
                "cublas linear": 2800.0,
            },
            "flop_per_byte": x,
        }
        for n in (512, 4096)
        for k in (4096, 11008)
        for p, x in zip(patterns(32), (31.5, 27.0, 21.1, 10.6), strict=True)
    ]
    return HEADER | {"kind": "nm", "device": device, "rows": rows}


def steps() -> dict[str, Any]:
    rows = [
        {
            "case": case,
            "shape": shape,
            "pattern": str(p),
            "us": {"cublas": 9.0} | dict.fromkeys(VERSIONS, 9.0 * p.n / p.m),
        }
        for case, shape in CASES.items()
        for p in ladder_patterns(32)
    ]
    del rows[1]["us"]["V1"]
    return HEADER | {"kind": "nm-ladder", "rows": rows}


def write(path: Path, record: dict[str, Any]) -> Path:
    path.write_text(json.dumps(record), encoding="utf-8")
    return path


@pytest.mark.parametrize("record", [points(), points("another GPU"), steps()], ids=["roofline", "no roof", "ladder"])
def test_pictures_are_legible(record: dict[str, Any], tmp_path: Path, pictures: list[Picture]) -> None:
    draw(write(tmp_path / "r.json", record), tmp_path / "r.png")
    said = [text.get_text() for text in pictures[0].texts]
    assert any("of peak" in text for text in said) == (record == points())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "ladder"}, "expected schema 1 and kind 'nm' or 'nm-ladder', got 1 and 'ladder'"),
        ({"rows": [{"shape": [1, 2, 3]}]}, "a nm record needs 'us'"),
        ({"rows": [{"shape": [1, 2, 3], "pattern": "1:2", "us": {"matmul": 0}}]}, "us are positive numbers"),
    ],
)
def test_bad_records_are_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        read_nm(write(tmp_path / "bad.json", points() | change))


def test_a_record_without_rows_is_not_drawn(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one row, got none: run louver bench nm first"):
        draw(write(tmp_path / "e.json", points() | {"rows": []}), tmp_path / "e.png")
