"""The tables of docs/activations.md, from the newest record of `benchmarks/activations.py`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

RECORD = Path(__file__).resolve().parent.parent / "benchmarks/results/h200/activations.json"


def tables() -> str:
    """The passes, the layers and the errors of the record."""
    record: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    shape = record["shape"]
    passes = [
        (_name(row), row["activation"] or "–", f"{row['pass']:.1f}", f"{row['copy']:.1f}", f"{row['share']:.0%}")
        for row in record["passes"]
    ]
    layers = [
        (_name(row), *(f"{row['us'][name]:.0f}" for name in _TIMES), f"{row['ratio']:.3f}") for row in record["layers"]
    ]
    errors = [
        (f"{row['zeros']:.1%}", f"{row['broken']:,} of {row['groups']:,}", f"{row['lost']:.3%}", f"{row['error']:.2%}")
        for row in record["errors"]
    ]
    return "\n".join(
        [
            f"{record['device']}, commit `{record['versions']['commit']}`, {record['date'][:10]}. {shape['tokens']:,} tokens, hidden {shape['hidden']:,}, {shape['outputs']:,} outputs; times in µs.",
            "",
            "The pass, beside a copy that moves as many bytes:",
            "",
            *_table(("activations", "activation", "pass", "copy", "share"), passes),
            "",
            "Pass and product in one graph, beside one Triton kernel for relu² and cuBLAS:",
            "",
            *_table(("activations", *_TIMES, "ratio"), layers),
            "",
            *(
                [
                    "What pruning loses, by the share of independent zeros in relu² of normal numbers: groups of four that break 2:4, the lost "
                    "part of Σh², and the relative error of a product with random weights:",
                    "",
                    *_table(("zeros", "groups that break 2:4", "Σh² lost", "error of the product"), errors),
                ]
                if errors
                else ()
            ),
            "",
        ]
    )


_TIMES = ("sparsify", "sparse product", "sparsify and product", "relu2", "cuBLAS", "relu2 and cuBLAS")


def _name(row: dict[str, Any]) -> str:
    way = {None: "", "number": ", given scale", "rows": ", row scales"}[row["scale"]]
    return row["dtype"] if row["stored"] == row["dtype"] else f"{row['dtype']} to {row['stored']}{way}"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [headings, ["---"] * len(headings), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]
