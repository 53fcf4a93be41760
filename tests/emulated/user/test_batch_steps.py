"""Batches of several dimensions: the matrix of each step is found without a division of 64 bits, and comes by bulk copies."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver
from louver.measure.forms import Sizes, bind
from louver.ptx.assembler import assemble
from support.triton.forms.find import forms

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl

BATCHES = forms("batches")

DIVISIONS = {"taps of a convolution": 1, "experts of a layer": 0, "heads of a batch": 0}
"""Divisions of a step: the kernel's own by the number of steps, with a remainder. That by three is a product."""


@pytest.mark.parametrize("name", DIVISIONS)
def test_steps_divide_no_strides(name: str) -> None:
    form = BATCHES[name]
    m = 36 * 8 if name.startswith("taps") else 256
    known, _ = bind(form.call(0, Sizes(m, 256, 256, 128, 128, 64)), sparse=True)
    explained = louver.jit(form.kernel).explain(**known)
    ptx = explained.ptx
    # Values of one matrix, and metadata.
    assert "cp.async.bulk.tensor.3d" in ptx and "cp.async.bulk.tensor.2d" in ptx
    step = ptx.split("mbarrier.try_wait")[-1]
    assert "wgmma.mma_async.sp" in step
    assert step.count("div.") == DIVISIONS[name] and "rem." not in step
    assert "div.s64" not in step
    assembly = assemble(ptx, "sm_90a")
    assert assembly.clean and assembly.kernels[0].registers <= 128


@triton.jit
def unmasked(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Matrices x [M, K] and w [K, N] of a batch, of whole tiles: no mask says where a matrix ends."""
    entry = tl.program_id(2)
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    x_at = x + entry * M * K + m[:, None] * K + k[None, :]
    w_at = w + entry * K * N + k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        total += tl.dot(tl.load(x_at), tl.load(w_at))
        x_at += BK
        w_at += BK * N
    tl.store(y + entry * M * N + m[:, None] * N + n[None, :], total.to(tl.float16))


def test_matrices_along_the_sparse_axis_are_boxes(rng: np.random.Generator) -> None:
    entries, m, n, k = 3, 128, 128, 192
    x = rng.standard_normal((entries, m, k), np.float32).astype(np.float16)
    w = louver.prune(rng.standard_normal((entries, n, k), np.float32).astype(np.float16), "2:4").swapaxes(1, 2)
    y = np.full((entries, m, n), np.nan, np.float16)
    call = (x, louver.compress(np.ascontiguousarray(w), "2:4", axis=-2), y, m, n, k)
    kernel = louver.jit(unmasked)
    assert "computed addresses" not in str(kernel.explain(*call, BM=64, BN=64, BK=64))
    kernel.emulate[m // 64, n // 64, entries](*call, BM=64, BN=64, BK=64)
    np.testing.assert_allclose(y, x.astype(float) @ w.astype(float), rtol=2e-3, atol=2e-2)
