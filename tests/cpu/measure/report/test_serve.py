from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from louver.measure.report.records import draw
from louver.measure.report.serve import Ratios, plot_serve, ratios, read_serve, serve_tables
from support.pictures import Picture


def a_row(case: str, tokens: int, dense: float, sparse: float, **more: Any) -> dict[str, Any]:
    ms = {"dense bf16": dense, "sparse bf16": sparse, **more}
    return {"model": "Llama 3 8B", "mode": "graph", "case": case, "tokens": tokens, "ms": ms, "reasons": {}}


def a_record() -> dict[str, Any]:
    rows = [
        a_row("qkv", 512, 3.0, 2.0),
        a_row("qkv", 1, 2.0, 1.0),
        a_row("o", 1, 0.9, 1.0),
        a_row("layer", 1, 4.0, 2.5, **{"sparse e4m3": 1.0}),
    ]
    rows[2]["reasons"] = {"dense e4m3": "RuntimeError: refused"}
    header = {"schema": 1, "kind": "serve", "device": "NVIDIA H200", "versions": {"driver": "580"}, "protocol": "turns"}
    return {**header, "facts": {"kernels": 7, "missing": [16, 64]}, "rows": rows}


def write(path: Path, record: Any) -> Path:
    path.write_text(json.dumps(record))
    return path


def test_ratios_are_over_the_same_type(tmp_path: Path) -> None:
    record = read_serve(write(tmp_path / "s.json", a_record()))
    found = {each.case: each for each in ratios(record.rows)}
    # e4m3 has no dense time, so it has no ratio.
    assert list(found) == ["qkv", "o", "products", "layer"] and {each.side for each in found.values()} == {
        "sparse bf16"
    }
    assert found["qkv"] == Ratios("sparse bf16", "qkv", [(1, 2.0), (512, 1.5)])
    assert found["qkv"].mean == pytest.approx(3**0.5) and found["qkv"].least == (512, 1.5)
    assert found["products"].least == (1, 0.9) and len(found["products"].found) == 3
    assert found["layer"].mean == pytest.approx(1.6)


def test_a_record_is_shown(tmp_path: Path) -> None:
    record = read_serve(write(tmp_path / "s.json", a_record()))
    parts = serve_tables(record.rows, record.facts, record.device)
    lines = "\n".join(line for part in parts for line in ([part] if isinstance(part, str) else part.lines()))
    assert "dense e4m3: RuntimeError: refused" in lines and "1.732" in lines and "0.900" in lines
    assert "No time was left for 16, 64 tokens." in lines
    assert "bf16 layer ×" in lines and "e4m3 layer ×" in lines


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"kind": "model"}, "expected schema 1 and kind 'serve', got 1 and 'model'"),
        ({"rows": [a_row("o", 1, 0, 1)]}, "ms is a positive number of milliseconds, got 0.0 of dense bf16"),
    ],
)
def test_refuses_what_breaks_the_schema(tmp_path: Path, change: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule) as caught:
        read_serve(write(tmp_path / "bad.json", a_record() | change))
    assert "bad.json" in str(caught.value)


def test_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    Picture(draw(write(tmp_path / "s.json", a_record()), tmp_path / "s.png"))
    empty = read_serve(write(tmp_path / "e.json", a_record() | {"rows": []}))
    with pytest.raises(ValueError, match="needs a dense and a sparse time, got none"):
        plot_serve(empty, tmp_path / "e.png")
