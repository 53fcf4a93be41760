"""Integers and booleans of every width in the dense arrays of users' kernels, and rows that are stored twice."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton import element_types

M, N, K = 64, 128, 128
TYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def numbers(rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> np.ndarray[Any, Any]:
    """Numbers over the whole range of a type."""
    return (
        rng.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype)
        if dtype.kind != "b"
        else rng.random(count) < 0.5
    )


@pytest.mark.parametrize("way", ["emulated", "interpreted", "PyTorch"])
@pytest.mark.parametrize("name", TYPES)
def test_arrays_of_integers_and_booleans(rng: np.random.Generator, name: str, way: str) -> None:
    dtype = np.dtype(name)
    w = louver.prune(rng.standard_normal((N, K)).astype(np.float16), "2:4")
    x = rng.standard_normal((M, K)).astype(np.float16)
    keep, move = numbers(rng, dtype, M), numbers(rng, dtype, N)
    keep[::3] = 0
    y, above = np.full((M, N), np.nan, np.float32), numbers(rng, dtype, M * N).reshape(M, N)
    arrays: list[Any] = [x, louver.compress(w, "2:4"), keep, move, y, above]
    kernel = louver.jit(element_types.kept_and_moved)
    if way == "PyTorch":
        torch = pytest.importorskip("torch")
        arrays = [each if isinstance(each, louver.SparseTensor) else torch.from_numpy(each) for each in arrays]
    (kernel if way == "interpreted" else kernel.emulate)[(2,)](*arrays, N, K, 64, 64, 64)
    quotients = np.array(
        [int(np.fix(int(each) / 3)) if abs(int(each)) < 2**50 else int(each) // 3 for each in move], float
    )
    expected = np.where(keep[:, None] != 0, x.astype(np.float64) @ w.T.astype(np.float64), 0) + quotients
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=0.02)
    np.testing.assert_array_equal(above.astype(bool), y > 1)
    assert set(np.unique(above.astype(int))) <= {0, 1}
