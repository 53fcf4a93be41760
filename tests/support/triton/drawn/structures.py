"""Kernels for each structure of the general path: the ways operands reach products, and results leave them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support.triton.drawn.choices import Choices

PLAIN = Choices(
    seed=1,
    w="f16",
    x="f16",
    cast="",
    out="f32",
    side="left",
    w_stored="rows",
    x_rows=True,
    w_feed="masked",
    x_feed="masked",
    BP=64,
    BQ=16,
    BK=64,
    warps=0,
    loop="steps",
    whole=False,
    into=True,
    inside="",
    made="",
    epilogue=(),
    after="",
    y_turned=False,
    store="masked",
    numbering="grid",
    batch="",
    shared=True,
    constant=False,
)
"""A plain product."""

BYTES: dict[str, Any] = {"w": "e4m3", "x": "e4m3", "out": "f16"}

_CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "boxes": ({"x_feed": "made"}, "cp.async.bulk.tensor"),
    "wide boxes": ({"x_feed": "made", "BP": 128, "BQ": 128, "out": "f16"}, "cp.async.bulk.tensor"),
    "boxes of bytes": ({**BYTES, "x_feed": "made"}, "cp.async.bulk.tensor"),
    "boxes of a persistent loop": ({"x_feed": "made", "numbering": "persistent"}, "cp.async.bulk.tensor"),
    "gathered rows": ({"x_feed": "gathered", "BQ": 64}, "cp.async.c"),
    "rows that wrap": ({"x_feed": "wrapped", "BQ": 64}, "cp.async"),
    "operands that are cast": ({"cast": "x", "x": "f32", "BQ": 32}, "wgmma"),
    "operands that are masked": ({"made": "masked x", "BQ": 32}, "wgmma"),
    "columns of bytes": ({**BYTES, "x_rows": False, "BQ": 32}, "wgmma"),
    "scales in the loop": ({"inside": "scale of q", "into": False, "BQ": 32}, "wgmma"),
    "two products": ({"inside": "second dense", "BQ": 32}, "wgmma"),
    "products of one warp": ({"BP": 32}, "mma.sp"),
    "weights in columns": ({"w_stored": "columns"}, "mma"),
    "weights that are cast": ({"w": "e4m3", "cast": "w", "x": "f16"}, "mma"),
    "a product of results": ({"after": "chain", "BQ": 32}, "red"),
    "staged results": ({"y_turned": True, "side": "right", "BQ": 64, "out": "f16"}, "stmatrix"),
    "results by descriptor": ({"store": "made", "out": "bf16", "BQ": 64}, "st.global"),
    "sums by atomics": ({"store": "atomic"}, "red"),
    "an atomic in the loop": ({"inside": "atomic"}, "atom|red"),
}

STRUCTURES = {name: replace(PLAIN, **changes) for name, (changes, _) in _CHANGES.items()}
"""By name."""

MARKS = {name: mark for name, (_, mark) in _CHANGES.items()}
"""A pattern that the PTX of each has."""
