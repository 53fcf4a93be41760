"""The types, tile sizes and sparse arguments of the kernels of register tiles; no Triton needed to read this."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from support.triton.cases import BASE, SIZES, Case

KEPT = Path(__file__).resolve().parents[2] / "golden" / "tiles" / "ttir"

TILE = {"BM": 32, "BN": 16, "BK": 64}


_case = partial(Case, module="tile_kernels")


def _dot(element: str, out: str, total: str, *, sparse: str | None, other: str | None = None, **sizes: int) -> Case:
    signature = {"d": f"*{out}", "a": f"*{element}", "b": f"*{other or element}", **SIZES}
    return _case(
        "any_dot",
        signature,
        {**TILE, **sizes, "SUM": total, "ZERO": 0 if element == "i8" else 0.0},
        {} if sparse is None else {"a": sparse},
    )


HALF = {"d": "*fp32", "a": "*fp16", "b": "*fp16", **SIZES}

TILE_CASES = {
    "small_dot": _case("small_dot", {"d": "*fp16", "a": "*fp16", "b": "*fp16"}, TILE),
    "dot_f16": _dot("fp16", "fp32", "fp32", sparse="2:4"),
    "dot_bf16": _dot("bf16", "fp32", "fp32", sparse="2:4", BM=16, BN=64),
    "dot_tf32": _dot("fp32", "fp32", "fp32", sparse="1:2", BK=32),
    "dot_e4m3": _dot("fp8e4nv", "fp32", "fp32", sparse="2:4"),
    "dot_mixed_fp8": _dot("fp8e5", "fp32", "fp32", sparse="2:4", other="fp8e4nv"),
    "dot_s8": _dot("i8", "i32", "int32", sparse="2:4", BK=128),
    "dense_f16": _dot("fp16", "fp32", "fp32", sparse=None, BK=16),
    "dense_f16_sum": _dot("fp16", "fp16", "fp16", sparse=None, BK=32),
    "dense_bf16": _dot("bf16", "fp32", "fp32", sparse=None, BM=64, BN=64, BK=32),
    "dense_tf32": _dot("fp32", "fp32", "fp32", sparse=None, BK=16),
    "dense_e5m2": _dot("fp8e5", "fp32", "fp32", sparse=None, BK=32),
    "dense_s8": _dot("i8", "i32", "int32", sparse=None, BK=32),
    "right_sparse": _case(
        "right_sparse",
        {"d": "*fp16", "x": "*fp16", "w": "*fp16", **SIZES},
        {"BM": 16, "BN": 32, "BK": 64},
        {"w": "2:4"},
    ),
    "scaled_operand": _case(
        "scaled_operand", {"d": "*fp32", "a": "*fp16", "b": "*fp16", "scale": "*fp32", **SIZES}, TILE
    ),
    "two_dots": _case(
        "two_dots",
        {"d": "*fp32", "e": "*fp32", "a": "*fp16", "b": "*fp16", "c": "*fp16", "bias": "*fp32", "flag": "i32", **SIZES},
        {"BM": 64, "BN": 32, "BK": 64},
    ),
    "softmax_dot": _case(
        "softmax_dot",
        {"d": "*fp32", "top": "*i32", "a": "*fp16", "b": "*fp16", **SIZES},
        {"BM": 32, "BN": 64, "BK": 64},
    ),
    "split_sums": _case("split_sums", {**HALF, "SPLIT": "i32"}, TILE),
    "persistent": _case("persistent", {"d": "*fp16", "a": "*fp16", "b": "*fp16", **SIZES}, TILE),
    "counted_dots": _case("counted_dots", {**HALF, "reached": "*i32"}, TILE),
    "attention": _case(
        "attention",
        {"out": "*fp32", "q": "*fp16", "k": "*fp16", "v": "*fp16", "scale": "fp32", "LENGTH": "i32"},
        {"ROWS": 32, "COLUMNS": 32, "WIDTH": 64},
        {},
    ),
    "column_sums": _case(
        "column_sums",
        {"out": "*fp32", "least": "*fp32", "x": "*fp32", "M": "i32", "N": "i32"},
        {"BM": 64, "BN": 32},
        {},
    ),
    "elementwise": _case(
        "elementwise", {"out": "*fp16", "bits": "*i32", "x": "*bf16", "y": "*i32", "SIZE": "i32"}, {"BLOCK": 256}, {}
    ),
    "work_queue": _case("work_queue", {"out": "*i32", "next_tile": "*i32", "TILES": "i32"}, {"BLOCK": 64}, {}),
    "pointer_loop": _case(
        "pointer_loop", {"out": "*fp32", "x": "*fp32", "STEPS": "i32", "ROW": "i32"}, {"BLOCK": 128}, {}
    ),
}
"""By name of the kept text."""


def kept_tiles(name: str, version: str = BASE) -> str:
    """The text that Triton of a version such as "3.6" made of a case."""
    return (KEPT / version / f"{name}.ttir").read_text(encoding="utf-8")
