"""Sums that are scaled by numbers, and have zero points: an epilogue computes with loaded numbers, arguments and constants, in the kernel's order."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton.language as tl

from support.triton import scaled_sums as steps

GRID = 2, 2


def bf16(value: float) -> float:
    return float(np.float32(value).astype(ml_dtypes.bfloat16))


S = 0.375

SCALED: dict[str, Callable[[Any, float, float, Any, Any], Any]] = {
    "both": lambda t, a, b, rows, columns: t * a * b,
    "product_of_both": lambda t, a, b, rows, columns: t * a * b,
    "in_turn": lambda t, a, b, rows, columns: t * a * b,
    "reciprocal": lambda t, a, b, rows, columns: t / a,
    "quotient": lambda t, a, b, rows, columns: t / a,
    "argument": lambda t, a, b, rows, columns: t * (a / (b + S) - 2 * S),
    "narrow": lambda t, a, b, rows, columns: t * bf16(bf16(a) * bf16(b)),
    "root": lambda t, a, b, rows, columns: t * np.sqrt(max(a * b, 0.5)),
    "chosen": lambda t, a, b, rows, columns: t * (b if a > 8 * b else a),
    "of_row": lambda t, a, b, rows, columns: t * rows * a * b,
    "zero_points": lambda t, a, b, rows, columns: (t - rows * columns) * a,
    "fixed_zero_point": lambda t, a, b, rows, columns: (t - 3 * columns + 5) * b,
    "scaled_zero_points": lambda t, a, b, rows, columns: t * a * b - rows * a * columns * S,
}


def call(rng: np.random.Generator, name: str, dtype: Any) -> tuple[dict[str, Any], Any]:
    """The arguments of the kernel, and what it computes."""
    m, n, k = 136, 72, 144
    integers = dtype is np.int8
    x, w = (rng.integers(-9, 10, (rows, k)) if integers else rng.standard_normal((rows, k)) for rows in (m, n))
    x, w = x.astype(dtype), louver.prune(w.astype(dtype), "2:4")
    a, b = rng.uniform(0.5, 2.0, 1).astype(np.float32), rng.uniform(0.1, 1.0, 1).astype(np.float32)
    of_rows, of_columns = rng.uniform(0.5, 2.0, m).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    if integers:
        of_rows, of_columns = (rng.integers(-99, 99, size).astype(np.int32) for size in (m, n))
    given = {"x": x, "w": louver.compress(w, "2:4"), "y": np.full((m, n), np.nan, np.float32)}
    given |= {"a_scale": a, "b_scale": b, "of_rows": of_rows, "of_columns": of_columns, "s": S, "M": m, "N": n, "K": k}
    given |= {"SCALE": getattr(steps, name), "SUM": tl.int32 if integers else tl.float32, "TM": 128, "TN": 64, "TK": 64}
    wide = (each.astype(np.float64) for each in (of_rows[:, None], of_columns))
    return given, SCALED[name](
        x.astype(np.float64) @ w.T.astype(np.float64), float(a[0]), float(b[0]), *wide
    ) + of_columns


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, np.int8])
@pytest.mark.parametrize("name", SCALED)
def test_a_product_scales_its_sums(rng: np.random.Generator, name: str, dtype: Any) -> None:
    given, expected = call(rng, name, dtype)
    kernel = louver.jit(steps.scaled_sums)
    assert kernel.explain[GRID](**given).family == "product"
    kernel.emulate[GRID](**given)
    np.testing.assert_allclose(given["y"], expected, rtol=2e-5, atol=1e-5 * np.abs(expected).max())


def test_a_number_is_computed_once(rng: np.random.Generator) -> None:
    """Each thread has 32 sums, and computes the reciprocal that scales them once."""
    given, _ = call(rng, "reciprocal", np.float16)
    ptx = louver.jit(steps.scaled_sums).explain[GRID](**given).ptx
    assert len(re.findall(r"(?:rcp|div)\.\w+\.(?:\w+\.)?f32", ptx)) == 1
