"""Records of accuracy: speeds of mixed models, the frontier, the table and the picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from louver.measure.report.accuracy import accuracy_table, frontier, plot_accuracy, read_accuracy
from louver.measure.report.records import draw
from support.pictures import Picture

TEXTS = ("articles", "news", "pydoc")


def a_row(pattern: str, method: str, ratio: float, **more: Any) -> dict[str, Any]:
    perplexity = dict(zip(TEXTS, (20 * ratio, 30 * ratio, 12 * ratio), strict=True))
    ratios = dict(zip(TEXTS, (ratio, ratio, 1.5 * ratio), strict=True))
    return {
        "pattern": pattern,
        "method": method,
        "perplexity": perplexity,
        "ratio": ratios,
        "kl": 0.25,
        "top1": 0.75,
        "zeros": 0.5,
        **more,
    }


def a_layer(kind: str, pattern: str, dense: float, sparse: float) -> dict[str, Any]:
    times = {"dense_us": {"16": dense, "2048": 10 * dense}, "sparse_us": {"16": sparse, "2048": 10 * sparse}}
    return {"layer": kind, "shape": [64, 64], "pattern": pattern, **times}


def a_record() -> dict[str, Any]:
    whole = {"q_proj": {"2:4": 1.0}, "down_proj": {"2:4": 1.0}}
    rows = [
        a_row("dense", "bf16", 1.0),
        a_row("2:4", "magnitude", 90.0, shares=whole, seconds=0.5),
        a_row("2:4", "SparseGPT c.+r.", 2.7, shares=whole, seconds=12.25),
        a_row("2:4", "2 min distilled", 1.4, shares=whole, minutes=2),
        a_row("2:4 on half", "SparseGPT c.+r., tuned", 1.2, shares={"down_proj": {"2:4": 0.5}}),
        a_row("6:8", "SparseGPT c.+r.", 1.1, shares={}),
    ]
    layers = [a_layer("q_proj", "2:4", 10.0, 6.0), a_layer("down_proj", "2:4", 30.0, 18.0)]
    header = {"schema": 1, "kind": "accuracy", "device": "NVIDIA H200", "versions": {"driver": "580"}}
    return {**header, "protocol": "windows", "model": "SmolLM2-135M, Q4_1", "rows": rows, "layers": layers}


def write(path: Path, record: Any) -> Path:
    path.write_text(json.dumps(record))
    return path


def test_the_speed_of_a_mixed_model_is_of_the_patterns_of_its_layers(tmp_path: Path) -> None:
    record = read_accuracy(write(tmp_path / "a.json", a_record()))
    speeds = [row.speed(record.times[16]) for row in record.rows]
    whole, half = 40 / 24, 40 / (10 + 0.5 * 30 + 0.5 * 18)
    assert speeds == pytest.approx([1, whole, whole, whole, half, 1])
    assert record.rows[2].worst == pytest.approx(1.5 * 2.7)
    assert record.texts == list(TEXTS)


def test_a_pattern_without_times_is_as_fast_as_dense(tmp_path: Path) -> None:
    data = a_record()
    data["rows"] = [a_row("2:8@V128", "magnitude", 3.0, shares={"q_proj": {"2:8@V128": 1.0}})]
    record = read_accuracy(write(tmp_path / "a.json", data))
    assert record.rows[0].speed(record.times[2048]) == 1
    assert record.rows[0].speed({}) == 1


def test_the_table_has_a_line_for_each_row_and_leaves_unknown_numbers_out(tmp_path: Path) -> None:
    record = read_accuracy(write(tmp_path / "a.json", a_record()))
    table = accuracy_table(record)
    cells = dict(zip([column.heading for column in table.columns], table.rows[2], strict=True))
    assert cells["pattern"] == "2:4" and cells["seconds"] == "12" and cells["news"] == "81.0"
    assert cells["× dense"] == "2.70" and cells["worst × dense"] == "4.05" and cells["speed, 16 tokens"] == "1.67"
    assert table.rows[5][-3:] == ["–", "–", "–"]


@pytest.mark.parametrize(
    ("points", "best"),
    [
        ([(1.0, 1.0), (1.5, 2.0), (1.4, 2.5), (1.5, 1.8)], [(1.0, 1.0), (1.5, 1.8)]),
        ([(1.0, 1.0), (2.0, 0.9)], [(2.0, 0.9)]),
        ([(1.0, 1.0), (1.0, 1.0), (1.2, 3.0)], [(1.0, 1.0), (1.0, 1.0), (1.2, 3.0)]),
    ],
)
def test_the_frontier_has_what_nothing_beats(
    points: list[tuple[float, float]], best: list[tuple[float, float]]
) -> None:
    assert frontier(points) == best


def test_the_picture_is_drawn_by_the_kind_of_the_record(tmp_path: Path, pictures: list[Picture]) -> None:
    draw(write(tmp_path / "a.json", a_record()), tmp_path / "a.png")
    (picture,) = pictures
    shown = {text.get_text() for text in picture.texts}
    assert {"2,048 tokens", "16 tokens", "distilled", "2:4 on half"} <= shown
    assert "magnitude" not in shown, "what loses too much is not drawn"


@pytest.mark.parametrize("missing", ["layers", "rows"])
def test_a_frontier_without_times_or_rows_is_refused(tmp_path: Path, missing: str) -> None:
    record = read_accuracy(write(tmp_path / "a.json", a_record() | {missing: []}))
    with pytest.raises(ValueError, match="a frontier needs rows with fast patterns, and times of layers"):
        plot_accuracy(record, tmp_path / "a.png")


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"kind": "gemm"}, "expected schema 1 and kind 'accuracy', got 1 and 'gemm'"),
        ({"rows": [a_row("2:4", "x", -1.0)]}, "perplexities and ratios are positive, got -20.0 for articles of 2:4 x"),
        ({"rows": [a_row("2:4", "x", 1.0) | {"ratio": {}}]}, "a perplexity and a ratio of each text"),
        ({"rows": [{"pattern": "2:4"}]}, "accuracy record needs 'kl'"),
        ({"layers": [a_layer("q_proj", "2:4", 0.0, 1.0)]}, r"times are positive .* got \(0.0, 1.0\) for q_proj"),
    ],
)
def test_refuses_what_breaks_the_schema(tmp_path: Path, change: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule) as caught:
        read_accuracy(write(tmp_path / "bad.json", a_record() | change))
    assert "bad.json" in str(caught.value)
