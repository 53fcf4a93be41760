"""Calls of the kernels in `split_kernels`, from their kept texts: outputs hold something before; no Triton needed to read this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver
from louver.formats.dtypes import element_type
from louver.user.hints import Hints
from louver.user.jit_kernel import JitKernel
from support.jit import KeptSource
from support.triton.cases import SIZES, TILE, Case, kept
from support.triton.tile_runs import Expected

Array = NDArray[Any]

STRIDES = dict.fromkeys(("stride_a", "stride_b", "stride_d"), "i32")


def pointers(element: str, out: str) -> dict[str, str]:
    return {"d": f"*{out}", "a": f"*{element}", "b": f"*{element}"}


def split(kernel: str, types: dict[str, str], constants: dict[str, Any], sparse: str = "a") -> Case:
    return Case(kernel, types, {**constants, **TILE}, {sparse: "2:4"}, module="split_kernels")


def layer(out: str, *, ended: bool) -> Case:
    types = {"d": f"*{out}", "x": "*fp16", "w": "*fp16", **SIZES, "chunk": "i32"}
    types |= {**dict.fromkeys(("stride_x", "stride_w", "stride_d"), "i32"), "scale": "fp32"}
    case = split("split_chunks", types, {"ENDED": ended}, "w")
    return Case(case.kernel, types, {**case.constexprs, "BM": 64, "BN": 128}, case.sparse, module=case.module)


BOTH = {**pointers("fp16", "fp32"), **SIZES, **STRIDES}
COUNTS = {**pointers("i8", "i32"), **SIZES, "parts": "i32", **STRIDES}
SPLITS = {
    "split_rounds": split("split_rounds", BOTH, {"SPLIT": 3, "MASKED": True}),
    "split_whole_rounds": split("split_rounds", BOTH, {"SPLIT": 2, "MASKED": False}),
    "split_one_round": split("split_rounds", BOTH, {"SPLIT": 1, "MASKED": True}),
    "split_counted_steps": split("split_steps", COUNTS, {"COUNTED": True}),
    "split_steps": split("split_steps", COUNTS, {"COUNTED": False}),
    "split_chunks": layer("fp16", ended=False),
    "split_ended_chunks": layer("fp32", ended=True),
    "split_shares": split("split_shares", {**pointers("bf16", "bf16"), **SIZES, **STRIDES}, {"SPLIT": 3}),
    "added_tiles": split("added_tiles", {**pointers("fp16", "fp16"), "bias": "*fp32", **SIZES, **STRIDES}, {}),
}
"""By name of the kept text."""

PARTS = {"split_whole_rounds": 2, "split_one_round": 1, "added_tiles": 1}
"""Programs that share K, where these are not 3."""


def split_kernel(name: str, text: str | None = None, **hints: Any) -> JitKernel:
    source = KeptSource.of(name, SPLITS[name], kept(name) if text is None else text)
    return JitKernel(source, Hints.of(hints))


@dataclass(frozen=True)
class SplitCall(Expected):
    """The result of a call. grid, arguments: of it. out: what it adds to."""

    grid: tuple[int, ...]
    arguments: dict[str, Any]
    out: Array


def split_call(rng: np.random.Generator, name: str, m: int, n: int, k: int, padding: int = 0) -> SplitCall:
    """A call on host arrays. m: rows of the sparse operand. padding: elements between rows of the output."""
    case = SPLITS[name]
    transposed = case.sparse == {"w": "2:4"}
    element = {"fp16": "f16", "bf16": "bf16", "i8": "s8"}[case.signature["x" if transposed else "a"].strip("*")]
    to = {"fp16": "f16", "fp32": "f32", "bf16": "bf16", "i32": "s32"}[case.signature["d"].strip("*")]

    def draw(*shape: int) -> Array:
        if element == "s8":
            return rng.integers(-128, 128, shape).astype(np.int8)
        return rng.standard_normal(shape, np.float32).astype(element_type(element).numpy)

    a, b = louver.prune(draw(m, k), "2:4"), draw(k, n)
    shape = (n, m) if transposed else (m, n)
    out = (10 * rng.standard_normal((shape[0], shape[1] + padding))).astype(element_type(to).numpy)[:, : shape[1]]
    if name == "split_one_round":
        out[...] = np.nan
    b_kept = (
        np.ascontiguousarray(b.T) if transposed or name in ("split_steps", "split_counted_steps", "split_shares") else b
    )
    parts = PARTS.get(name, 3)
    steps = -(-k // case.constexprs["BK"])
    known: dict[str, Any] = {
        "d": out, "M": m, "N": n, "K": k, "parts": parts, "scale": 0.5, "bias": rng.standard_normal(n, np.float32),
        "chunk": -(-steps // parts) * case.constexprs["BK"], "stride_d": out.strides[0] // out.itemsize,
        "a": louver.compress(a, "2:4"), "b": b_kept, "stride_a": k, "stride_b": b_kept.strides[0] // b_kept.itemsize,
    }  # fmt: skip
    if transposed:
        known |= {"w": known["a"], "x": b_kept, "stride_w": k, "stride_x": known["stride_b"], "M": n, "N": m}
    wide = a.astype(np.float64), b.astype(np.float64)
    result, magnitude = wide[0] @ wide[1], np.abs(wide[0]) @ np.abs(wide[1])
    if name == "added_tiles":
        result, magnitude = np.maximum(result + known["bias"], 0), magnitude + np.abs(known["bias"])
    if transposed:
        result, magnitude = 0.5 * result.T, 0.5 * magnitude.T
    before = np.zeros(shape) if name == "split_one_round" else out.astype(np.float64)
    rounding = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8, "s32": 0.0}[to]
    # Each part is rounded, and each sum in memory.
    bound = (2 * parts) * rounding * (np.abs(before) + magnitude) + 2.0**-24 * (2 + k / 4) * magnitude * (to != "s32")
    rows, columns = (-(-size // case.constexprs[tile]) for size, tile in zip(shape, ("BM", "BN"), strict=True))
    grid = {
        "split_rounds": (rows * columns, parts), "split_chunks": (columns, rows, parts)
    }.get(case.kernel, (rows, columns, parts))  # fmt: skip
    arguments = {each: (known | case.constexprs)[each] for each in case.parameters}
    return SplitCall(before + result, bound + 1e-30, grid, arguments, out)
