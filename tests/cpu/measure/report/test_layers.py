from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from louver.measure.report.layers import layers_json, layers_table, size_text, total
from louver.measure.report.plots import MOST_BARS, plot_layers
from louver.models.steps import LayerRow


def some_rows(rng: np.random.Generator, count: int) -> list[LayerRow]:
    rows: list[LayerRow] = []
    for index in range(count):
        shape = (int(rng.integers(1, 500)), int(rng.integers(1, 500)))
        dense = shape[0] * shape[1] * 2
        rows.append(LayerRow(f"layer.{index}.weight", shape, "f16", dense, dense * 9 // 16, float(rng.random())))
    return rows


def test_total_weights_errors_by_elements(rng: np.random.Generator) -> None:
    rows = some_rows(rng, 5)
    dense, sparse, error = total(rows)
    assert dense == sum(row.dense_bytes for row in rows)
    assert sparse == sum(row.stored_bytes for row in rows)
    elements = np.array([np.prod(row.shape) for row in rows], float)
    expected = np.sqrt(np.average([row.error**2 for row in rows], weights=elements))
    assert error == pytest.approx(expected)


def test_nothing_totals_to_nothing() -> None:
    assert total([]) == (0, 0, 0.0)


def test_table_shows_every_row_and_the_total(rng: np.random.Generator) -> None:
    rows = some_rows(rng, 7)
    text = "\n".join(layers_table(rows, "what happened").lines(120))
    assert all(row.name in text and f"{row.error:.4f}" in text for row in rows)
    assert "7 tensors" in text and "what happened" in text


def test_markdown_has_as_many_cells_in_each_line(rng: np.random.Generator) -> None:
    lines = layers_table(some_rows(rng, 3)).markdown().splitlines()
    assert len(lines) == 2 + 3 + 1
    assert {line.count("|") for line in lines} == {lines[0].count("|")}


def test_json_holds_the_rows(rng: np.random.Generator) -> None:
    rows = some_rows(rng, 4)
    data = json.loads(json.dumps(layers_json(rows)))
    assert [entry["name"] for entry in data["tensors"]] == [row.name for row in rows]
    assert data["total"]["stored_bytes"] == sum(row.stored_bytes for row in rows)


@pytest.mark.parametrize(("error", "rule"), [(float("nan"), "NaN"), (-0.5, "from 0")])
def test_an_error_must_be_a_number_from_zero(error: float, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        LayerRow("w", (3, 5), "f16", 30, 20, error)


def test_sizes_are_not_negative() -> None:
    with pytest.raises(ValueError, match="got -1 and 2 bytes"):
        LayerRow("w", (3, 5), "f16", -1, 2, 0.5)


@pytest.mark.parametrize(("size", "text"), [(5, "5 B"), (1536, "1.5 KiB"), (3 << 20, "3.0 MiB"), (5 << 29, "2.5 GiB")])
def test_sizes_have_units(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize("count", [1, MOST_BARS + 3])
def test_plot_writes_a_png(rng: np.random.Generator, tmp_path: Path, count: int) -> None:
    rows = [LayerRow("exact.weight", (64, 64), "f16", 8192, 4608, 0.0), *some_rows(rng, count - 1)]
    path = plot_layers(rows, tmp_path / "deep" / "layers.png", "bytes and error")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 10_000


def test_plot_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one row"):
        plot_layers([], tmp_path / "x.png", "t")
