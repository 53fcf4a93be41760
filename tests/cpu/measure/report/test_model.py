from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from louver.measure.report.model import fact_lines, model_tables, plot_model, read_model, speedups
from louver.measure.report.records import draw
from support.pictures import Picture


def a_record() -> dict[str, Any]:
    ms = {"dense bf16": 3.0, "sparse bf16": 2.0, "dense e4m3": 2.5, "sparse e4m3": 1.5}
    rows: list[dict[str, Any]] = [
        {"model": "Llama 3 8B", "mode": "compiled", "case": "decode 1", "tokens": 1, "ms": ms, "reasons": {}},
        {
            "model": "Llama 3 8B",
            "mode": "kernels",
            "case": "four products, 32 tokens",
            "tokens": 32,
            "ms": {},
            "reasons": {"sparse e4m3": "OutOfMemoryError: no room"},
        },
    ]
    facts = {
        "dense_bytes": 1000,
        "held_bytes": {"sparse bf16": 625},
        "joules_a_token": {"dense bf16": 0.02, "sparse bf16": 0.013},
        "compress_seconds_cold": 4.25,
        "compress_seconds_cached": 0.5,
        "torchao_reason": "torchao e4m3 2:4: ImportError: no torchao",
    }
    header = {"schema": 1, "kind": "model", "device": "NVIDIA H200", "versions": {"driver": "580"}, "protocol": "turns"}
    return {**header, "blocks": 4, "head": False, "facts": facts, "rows": rows}


def write(path: Path, record: Any) -> Path:
    path.write_text(json.dumps(record))
    return path


def test_speedups_are_over_the_fastest_other_side() -> None:
    ms = {"dense bf16": 3.0, "dense e4m3": 4.0, "sparse bf16": 2.0, "sparse e4m3": 1.5}
    assert speedups(ms) == {"sparse bf16": 1.5, "sparse e4m3": 2.0}
    assert speedups({"sparse e4m3": 2.0, "torchao e4m3 2:4": 3.0}) == {"sparse e4m3": 1.5}
    assert speedups({"sparse bf16": 2.0}) == {}


def test_a_record_is_read_and_shown(tmp_path: Path) -> None:
    record = read_model(write(tmp_path / "m.json", a_record()))
    assert (record.blocks, record.head, len(record.rows)) == (4, False, 2)
    lines = "\n".join(
        line
        for part in model_tables(record.rows, record.facts, record.device)
        for line in ([part] if isinstance(part, str) else part.lines())
    )
    assert "Llama 3 8B, compiled, decode 1" in lines and "1.500" in lines and "1.667" in lines
    assert "sparse e4m3: OutOfMemoryError: no room" in lines
    assert fact_lines(record.facts) == [
        "Swapped weights of sparse bf16: 0.625 of dense bf16, 0 MB with derived forms.",
        "Prefill of dense bf16: 20.000 mJ a token, 1.000 of dense bf16.",
        "Prefill of sparse bf16: 13.000 mJ a token, 0.650 of dense bf16.",
        "compress_: 4.25 s without kernels in the cache, 0.50 s with them.",
        "Left out: torchao e4m3 2:4: ImportError: no torchao.",
    ]
    assert fact_lines({}) == []


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"kind": "gemm"}, "expected schema 1 and kind 'model', got 1 and 'gemm'"),
        ({"rows": [{"model": "x"}]}, "needs 'ms'"),
        (
            {"rows": [{**a_record()["rows"][0], "ms": {"dense bf16": 0}}]},
            "ms is a positive number of milliseconds, got 0.0 of dense bf16",
        ),
    ],
)
def test_refuses_what_breaks_the_schema(tmp_path: Path, change: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule) as caught:
        read_model(write(tmp_path / "bad.json", a_record() | change))
    assert "bad.json" in str(caught.value)


def test_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = draw(write(tmp_path / "m.json", a_record()), tmp_path / "m.png")
    Picture(picture)
    empty = read_model(write(tmp_path / "e.json", a_record() | {"rows": []}))
    with pytest.raises(ValueError, match="needs a case with a dense and a sparse time, got none"):
        plot_model(empty, tmp_path / "e.png")
