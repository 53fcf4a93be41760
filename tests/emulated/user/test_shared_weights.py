"""Batches whose matrices share a sparse weight by a stride of 0, on the emulator: no addresses are computed."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver
from louver.measure.forms import wide

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.shared_weights import batch, batch_in_turns, heads_of_batch

M, N, K = 40, 80, 144
TILE = {"BM": 32, "BN": 32, "BK": 64}


def drawn(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float16)


def check(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=2.0**-8 * np.abs(expected).max())


@pytest.mark.parametrize("columns", [False, True], ids=["NK", "KN"])
@pytest.mark.parametrize("shared", [False, True])
def test_one_weight_of_a_batch_makes_a_product(rng: np.random.Generator, shared: bool, columns: bool) -> None:
    x, y = drawn(rng, 3, M, K), np.full((3, M, N), np.nan, np.float16)
    w = louver.prune(drawn(rng, *(() if shared else (3,)), N, K), "2:4")
    given = (
        louver.compress(np.ascontiguousarray(w.swapaxes(-1, -2)), "2:4", axis=-2)
        if columns
        else louver.compress(w, "2:4")
    )
    strides = {"stride_wk": N if columns else 1, "stride_wn": 1 if columns else K, "stride_wb": 0 if shared else N * K}
    strides |= {"stride_xb": M * K, "stride_yb": M * N}
    kernel, grid = louver.jit(batch), (-(-N // 32), -(-M // 32), 3)
    sizes = {"M": M, "N": N, "K": K, **strides, **TILE}
    assert kernel.explain[grid](x, given, y, **sizes).family == "product"
    kernel.emulate[grid](x, given, y, **sizes)
    check(y, np.einsum("bmk,bnk->bmn" if not shared else "bmk,nk->bmn", wide(x), wide(w)))


def test_a_kernel_that_needs_its_ones_compiled_in_reads_a_shared_weight(rng: np.random.Generator) -> None:
    x, y, w = drawn(rng, 3, M, K), np.full((3, M, N), np.nan, np.float16), louver.prune(drawn(rng, N, K), "2:4")
    sizes = {"turns": 1, "M": M, "N": N, "K": K, "stride_wb": 0, **TILE}
    kernel, grid = louver.jit(batch_in_turns), (-(-M // 32), -(-N // 32), 3)
    assert kernel.explain[grid](x, louver.compress(w, "2:4"), y, **sizes).family == "product"
    kernel.emulate[grid](x, louver.compress(w, "2:4"), y, **sizes)
    check(y, np.einsum("bmk,nk->bmn", wide(x), wide(w)))


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("shape", [(2, 2), (2, 1), (1, 2), (1, 1)])
def test_layers_heads_and_batches_that_share_a_weight_are_described(
    rng: np.random.Generator, shape: tuple[int, int], layer: int
) -> None:
    x, y = drawn(rng, 2, 2, M, K), np.full((2, 2, M, N), np.nan, np.float16)
    batches, heads = shape
    w = louver.prune(drawn(rng, 3, batches, heads, N, K), "2:4")
    of_batch, of_head = (step if count > 1 else 0 for count, step in ((batches, heads * N * K), (heads, N * K)))
    sizes = {"layer": layer, "H": 2, "M": M, "N": N, "K": K, "stride_wl": w[0].size, **TILE}
    sizes |= {"stride_wb": of_batch, "stride_wh": of_head}
    given = louver.compress(np.squeeze(w, tuple(1 + axis for axis, count in enumerate(shape) if count == 1)), "2:4")
    kernel, grid = louver.jit(heads_of_batch), (-(-M // 32), -(-N // 32), 4)
    assert "computed" not in str(kernel.explain[grid](x, given, y, **sizes))
    kernel.emulate[grid](x, given, y, **sizes)
    of_all = np.broadcast_to(wide(w[layer]), (2, 2, N, K))
    check(y, np.einsum("bhmk,bhnk->bhmn", wide(x), of_all))
