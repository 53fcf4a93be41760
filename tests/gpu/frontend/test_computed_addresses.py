"""Sparse tiles at computed addresses on the device: right beside float64, and a violation reported at a later call."""

from __future__ import annotations

import importlib.util
import zlib
from typing import Any

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl

from louver.measure.forms import Form, bind
from support.device_products import to_numpy, to_torch
from support.triton.forms.find import forms
from support.triton.results import check

pytestmark = pytest.mark.usefixtures("torch")

FORMS = [form for file in ("addresses", "structures") for form in forms(file).values()]


@pytest.mark.parametrize("form", FORMS, ids=[form.name.replace(" ", "_") for form in FORMS])
def test_forms(form: Form) -> None:
    call = form.call(zlib.crc32(form.name.encode()), form.small)
    known, outs = bind(call, sparse=True, place=to_torch)
    louver.jit(form.kernel)[call.grid](**known)
    louver.synchronize()
    check(call, {name: to_numpy(each) for name, each in outs.items()}, form.tolerance, form.tolerance)


@triton.jit
def listed(y, x, w, rows, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    m, n, k = tl.arange(0, TM), tl.arange(0, TN), tl.arange(0, TK)
    row = tl.load(rows + n)
    total = tl.zeros((TM, TN), tl.float32)
    for start in range(0, K, TK):
        one = tl.load(x + m[:, None] * K + (start + k)[None, :], mask=(start + k < K)[None, :], other=0.0)
        two = tl.load(w + row[:, None] * K + (start + k)[None, :], mask=(start + k < K)[None, :], other=0.0)
        total = tl.dot(one, two.T, total)
    tl.store(y + m[:, None] * TN + n[None, :], total)


def test_a_violation_is_reported_once(rng: np.random.Generator, torch: Any) -> None:
    x, w = rng.standard_normal((16, 80)).astype(np.float16), rng.standard_normal((48, 80)).astype(np.float16)
    w, rows = louver.prune(w, "2:4"), rng.integers(0, 48, 32).astype(np.int32)
    right = x.astype(np.float64) @ w[rows].astype(np.float64).T
    wrong = rows.copy()
    wrong[5] = 48
    y, s = torch.full((16, 32), 7.0, device="cuda"), louver.compress(w, "2:4")
    kernel = louver.jit(listed)

    def run(of: Any) -> None:
        kernel[(1,)](y, to_torch(x), s, to_torch(of), 80, TM=16, TN=32, TK=64)

    run(rows)
    louver.synchronize()
    np.testing.assert_allclose(to_numpy(y), right, atol=0.05)
    run(wrong)
    with pytest.raises(ValueError, match="listed read a sparse tensor at a computed address"):
        louver.synchronize()
    found = to_numpy(y)
    assert np.isnan(found[:, 5]).all()
    np.testing.assert_allclose(np.delete(found, 5, 1), np.delete(right, 5, 1), atol=0.05)
    louver.synchronize()
    run(wrong)
    torch.cuda.synchronize()
    with pytest.raises(ValueError, match="against this rule"):
        run(rows)
    run(rows)
    louver.synchronize()
    np.testing.assert_allclose(to_numpy(y), right, atol=0.05)


def test_a_graph_gives_nan_and_the_report(rng: np.random.Generator, torch: Any) -> None:
    x, w = rng.standard_normal((16, 80)).astype(np.float16), rng.standard_normal((48, 80)).astype(np.float16)
    w, rows = louver.prune(w, "2:4"), to_torch(rng.integers(0, 48, 32).astype(np.int32))
    y, s, x = torch.empty((16, 32), device="cuda"), louver.compress(w, "2:4"), to_torch(x)
    kernel, tile = louver.jit(listed), {"TM": 16, "TN": 32, "TK": 64}
    kernel.prepare[(1,)](y, x, s, rows, 80, **tile)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel[(1,)](y, x, s, rows, 80, **tile)
    graph.replay()
    louver.synchronize()
    assert not torch.isnan(y).any()
    rows[3] = 1 << 20
    graph.replay()
    with pytest.raises(ValueError, match="against this rule"):
        louver.synchronize()
    assert torch.isnan(y[:, 3]).all()
