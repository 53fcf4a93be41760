"""Calls of the layers of experts in `grouped_kernels`, and what they should give; no Triton needed to read this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver
from louver.formats.dtypes import element_type
from louver.library.numerics import compare
from louver.user.hints import Hints
from louver.user.jit_kernel import JitKernel
from support.jit import KeptSource
from support.triton.cases import SIZES, Case, kept

Array = NDArray[Any]

BLOCKS = {"BM": 64, "BN": 128, "BK": 64}


def _case(name: str, *strides: str, **more: Any) -> Case:
    arrays = dict.fromkeys(("w", "x") if name in LEFT else ("x", "w"), "*fp16") | {"y": "*fp16", "ids": "*i32"}
    extra = {argument: type_ for argument, type_ in more.items() if isinstance(type_, str)}
    constants = {argument: value for argument, value in more.items() if isinstance(value, int)}
    signature = arrays | extra | SIZES | {f"stride_{each}": "i32" for each in strides}
    return Case(name, signature, BLOCKS | constants, {"w": "2:4"}, module="grouped_kernels")


LEFT = ("weights_left", "rows_numbered")
"""Kernels whose output is [N, M]."""

GROUPED = {
    "expert_pointers": _case("expert_pointers", "x", "e", "w", "y"),
    "expert_descriptors": _case("expert_descriptors"),
    "expert_groups": _case("expert_groups", "x", "e", "w", "y", scale="*fp32", GROUP=2),
    "expert_rows": _case("expert_rows", "x", "w", "y"),
    "expert_programs": _case("expert_programs", E="i32"),
    "weights_left": _case("weights_left", E="i32"),
    "rows_numbered": _case("rows_numbered", E="i32"),
}
GROUPED["wide_numbers"] = replace(
    GROUPED["expert_pointers"], signature=GROUPED["expert_pointers"].signature | {"ids": "*i64"}
)
"""By name of the kept text. The last one reads numbers of 64 bits."""


def grouped_kernel(name: str, **hints: Any) -> JitKernel:
    """The kernel as its kept text."""
    return JitKernel(KeptSource.of(name, GROUPED[name], kept(name)), Hints.of(hints))


@dataclass(frozen=True)
class Layer:
    """A call's arguments by name, w dense; its grid; and the product in float64, with the sum of absolute values."""

    name: str
    arguments: dict[str, Any]
    grid: tuple[int, ...]
    exact: Array
    magnitude: Array
    depth: int

    def sparse(self) -> dict[str, Any]:
        """The arguments, w as a sparse tensor."""
        return self.arguments | {"w": louver.compress(self.arguments["w"], "2:4")}

    def assert_close(self, y: Array) -> None:
        """Within the error bound, element by element."""
        agreement = compare(y, self.exact, self.magnitude, self.depth, "f16")
        assert agreement.ok, agreement


def layer(
    rng: np.random.Generator,
    name: str,
    *,
    tokens: int = 150,
    features: int = 136,
    depth: int = 200,
    experts: int = 5,
    ids: Sequence[int] | None = None,
    programs: int = 3,
) -> Layer:
    """Random tokens and weights, an output of NaN. ids: of the experts; without them any order, each but the last one at most."""
    blocks = -(-tokens // BLOCKS["BM"]), -(-features // BLOCKS["BN"])
    counted = blocks[1] if name == "rows_numbered" else blocks[0]
    chosen = np.array(rng.integers(0, max(1, experts - 1), counted) if ids is None else ids)
    chosen = chosen.astype(np.int64 if name == "wide_numbers" else np.int32)
    dtype = element_type("f16").numpy
    w = louver.prune(rng.standard_normal((experts, features, depth)).astype(dtype), "2:4")
    x = rng.standard_normal((tokens, depth)).astype(dtype)
    parts = [_product(name, x, w, chosen, magnitude=magnitude) for magnitude in (False, True)]
    known = {"x": x, "w": w, "ids": chosen, "M": tokens, "N": features, "K": depth, "E": experts}
    known |= {"stride_x": depth, "stride_e": features * depth, "stride_w": depth, "stride_y": features}
    if name == "expert_groups":
        known["scale"] = rng.standard_normal(tokens).astype(np.float32)
        parts = [
            part * abs_of(known["scale"], magnitude)[:, None]
            for part, magnitude in zip(parts, (False, True), strict=True)
        ]
    if name == "expert_rows":
        known["w"] = w.reshape(-1, depth)
    exact, magnitude = (part.T if name in LEFT else part for part in parts)
    known["y"] = np.full(exact.shape, np.nan, np.float16)
    grids = {
        "expert_descriptors": blocks[::-1],
        "expert_groups": (blocks[0] * blocks[1],),
        "expert_programs": (programs,),
    }
    grid = blocks[::-1] if name in LEFT else grids.get(name, blocks)
    case = GROUPED[name]
    return Layer(
        name,
        {each: known[each] for each in case.signature} | dict(case.constexprs),
        grid,
        exact,
        magnitude,
        depth,
    )


def abs_of(values: Array, magnitude: bool) -> Array:
    """The values, or how large they are."""
    return np.abs(values) if magnitude else values


def _product(name: str, x: Array, w: Array, ids: Array, *, magnitude: bool) -> Array:
    """y [M, N] in float64."""
    tokens, weights = (abs_of(each.astype(np.float64), magnitude) for each in (x, w))
    if name == "rows_numbered":
        rows = np.arange(w.shape[1])
        return tokens @ weights[ids[rows // BLOCKS["BN"]], rows].T
    parts = [
        tokens[first : first + BLOCKS["BM"]] @ weights[expert].T
        for first, expert in zip(range(0, len(tokens), BLOCKS["BM"]), ids, strict=True)
    ]
    return np.concatenate(parts)
