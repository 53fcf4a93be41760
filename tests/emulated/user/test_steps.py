"""Kernels that go through K in their own ways, and batches whose strides are products of sizes: emulated, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.library.numerics import compare
from louver.user.hints import Hints
from louver.user.jit_kernel import JitKernel
from support.jit import arguments, batch_source, grid_of, kept_kernel, output, result
from support.triton.products import compiled, given

ROWS_OF_N = ("narrow_steps", "rest_by_pointers")
"""Kernels whose dense operand is [K, N]: bulk copies read it where N is a multiple of 8."""


@pytest.mark.parametrize(("m", "n", "k"), [(1, 8, 8), (130, 65, 40), (136, 88, 352)])
@pytest.mark.parametrize(
    "name",
    [
        "narrow_steps",
        "narrow_gates",
        "narrow_unmasked",
        "wide_steps",
        "rest_of_k",
        "rest_by_pointers",
        "last_step",
        "counted_offsets",
    ],
)
def test_tails_of_k(rng: np.random.Generator, name: str, m: int, n: int, k: int) -> None:
    eights = {"last_step": 16, "wide_steps": 16}.get(name, 8)
    case = given(rng, name, compiled(name), m, -(-n // 8) * 8 if name in ROWS_OF_N else n, -(-k // eights) * eights)
    kernel, out = kept_kernel(name), output(case)
    known = arguments(case, out)
    assert kernel.explain(**known).family == "product"
    kernel.emulate[grid_of(case)](**known)
    case.assert_close(result(case, out))


@pytest.mark.parametrize("m", [128, 200])
def test_an_unrolled_k(rng: np.random.Generator, m: int) -> None:
    case = given(rng, "unrolled_k", compiled("unrolled_k"), m, 88, 256)
    kernel, out = kept_kernel("unrolled_k"), output(case)
    kernel.emulate[grid_of(case)](**arguments(case, out))
    case.assert_close(out)


def test_an_unrolled_k_is_all_of_it(rng: np.random.Generator) -> None:
    case = given(rng, "unrolled_k", compiled("unrolled_k"), 128, 88, 256)
    known = arguments(case, output(case))
    known["a"] = louver.compress(louver.prune(np.ones((128, 264), np.float16), "2:4"), "2:4")
    known["stride_a"] = 264
    with pytest.raises(ValueError, match=r"sizes of the dense tensor for 'a', \[128, 264\], got \[128, 256\]"):
        kept_kernel("unrolled_k").emulate[grid_of(case)](**known)


def entries(rng: np.random.Generator, m: int, n: int, k: int) -> dict[str, Any]:
    """Three entries for `joined_entries`; a: pruned and not compressed yet."""
    a = louver.prune(rng.standard_normal((3, m, k), np.float32).astype(np.float16), "2:4")
    b = rng.standard_normal((3, n, k), np.float32).astype(np.float16)
    return {"a": a, "b": b, "d": np.full((3, m, n), np.nan, np.float16), "E": 3, "M": m, "N": n, "K": k} | {
        "BM": 128,
        "BN": 64,
        "BK": 64,
    }


@pytest.mark.parametrize(("m", "n", "k"), [(130, 72, 136), (8, 64, 64)])
def test_strides_that_are_products_of_sizes(rng: np.random.Generator, m: int, n: int, k: int) -> None:
    known = entries(rng, m, n, k)
    a, b = (known[name].astype(np.float64) for name in ("a", "b"))
    kernel = JitKernel(batch_source("joined_entries"), Hints())
    known["a"] = louver.compress(known["a"], "2:4")
    grid = (-(-m // 128), -(-n // 64), 3)
    for run in (kernel, kernel.emulate):
        known["d"] = np.full((3, m, n), np.nan, np.float16)
        run[grid](**known)
        for one, x, y in zip(known["d"], a, b, strict=True):
            agreement = compare(one, x @ y.T, np.abs(x) @ np.abs(y).T, k, "f16")
            assert agreement.ok, agreement
    assert kernel.explain(**known).family == "product"


def test_entries_that_a_kernel_is_not_given(rng: np.random.Generator) -> None:
    known = entries(rng, 64, 64, 64)
    a, b = (known[name].astype(np.float64) for name in ("a", "b"))
    known["a"] = louver.compress(known["a"], "2:4")
    # Fewer entries than there are: register tiles multiply those.
    JitKernel(batch_source("joined_entries"), Hints()).emulate[1, 1, 2](**(known | {"E": 2}))
    np.testing.assert_allclose(known["d"][:2], np.einsum("emk,enk->emn", a[:2], b[:2]), rtol=2e-3, atol=2e-2)
    assert np.isnan(known["d"][2]).all()
    with pytest.raises(ValueError, match="reaches 12288 elements of 'b', got an array of 8192"):
        JitKernel(batch_source("joined_entries"), Hints()).emulate[1, 1, 3](**(known | {"b": known["b"][:2]}))
