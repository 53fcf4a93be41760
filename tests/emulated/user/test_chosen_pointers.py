"""Kernels that choose one of several sparse tensors for each step: which of them are addressed at run time, and how soon that is known."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import louver
from louver.compile import sparse_tiles

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl

M, N, K, STEPS = 24, 40, 48, 3


@triton.jit
def chosen(
    x, p0, p1, p2, rows, y, M, N, K, LISTED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y [M, N] = the sum of x[:, step] by the tensor of each step, of which those in LISTED are read by rows of a list."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    listed = tl.load(rows + n, mask=n < N, other=0)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in tl.static_range(3):
        if step == 0:
            p = p0
        elif step == 1:
            p = p1
        else:
            p = p2
        if LISTED // (2**step) % 2 == 1:
            row = listed
        else:
            row = n
        for first in range(0, K, BK):
            k = first + tl.arange(0, BK)
            at = m[:, None] * (3 * K) + step * K + k[None, :]
            one = tl.load(x + at, mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
            two = tl.load(p + row[None, :] * K + k[:, None], mask=(n < N)[None, :] & (k < K)[:, None], other=0.0)
            total = tl.dot(one, two, total)
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def taken(x, p0, p1, p2, rows, y, M, N, K, LISTED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The same with all in LISTED, where the tensor is chosen at run time."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    row = tl.load(rows + n, mask=n < N, other=0)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(3):
        if step == 0:
            p = p0
        elif step == 1:
            p = p1
        else:
            p = p2
        for first in range(0, K, BK):
            k = first + tl.arange(0, BK)
            at = m[:, None] * (3 * K) + step * K + k[None, :]
            one = tl.load(x + at, mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
            two = tl.load(p + row[None, :] * K + k[:, None], mask=(n < N)[None, :] & (k < K)[:, None], other=0.0)
            total = tl.dot(one, two, total)
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])


@pytest.mark.parametrize(
    ("kernel", "listed", "attempts"),
    [(chosen, 0, 0), (chosen, 2, 1), (chosen, 5, 1), (chosen, 7, 0), (taken, 7, 0)],
    ids=["none", "one", "two", "all", "at run time"],
)
def test_tensors_at_computed_addresses_are_found_at_once(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, kernel: Any, listed: int, attempts: int
) -> None:
    real, tried = sparse_tiles.attempt, list[frozenset[str]]()

    def attempt(steps: Any, state: Any) -> Any:
        tried.append(state.computed)
        return real(steps, state)

    monkeypatch.setattr(sparse_tiles, "attempt", attempt)
    x = rng.standard_normal((M, STEPS * K)).astype(np.float16)
    dense = [louver.prune(rng.standard_normal((N, K)).astype(np.float16), "2:4") for _ in range(STEPS)]
    rows, y = rng.permutation(N).astype(np.int32), np.full((M, N), np.nan, np.float32)
    weights = {f"p{step}": louver.compress(each, "2:4") for step, each in enumerate(dense)}
    known = {"x": x, **weights, "rows": rows, "y": y, "M": M, "N": N, "K": K, "LISTED": listed}
    known |= {"BM": 16, "BN": 16, "BK": 32}
    compiled = louver.jit(kernel)
    names = {f"p{step}" for step in range(STEPS) if listed >> step & 1}
    told = str(compiled.explain(**known).reasons)
    assert {name for name in weights if f"{name} is read at computed addresses" in told} == names
    assert tried == [frozenset(names)] * attempts, "refusals name all of them at once"
    compiled.emulate[(-(-M // 16), -(-N // 16))](**known)
    expected = sum(
        x[:, step * K : (step + 1) * K].astype(np.float64)
        @ (each[rows] if listed >> step & 1 else each).astype(np.float64).T
        for step, each in enumerate(dense)
    )
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-2)


@triton.jit
def paired(x, v0, v1, w0, w1, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [2, M, N] = x by v0 + x by w0, and x by v1 + x by w1: one condition chooses both tensors."""
    part = tl.program_id(2)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    v = tl.where(part == 0, v0, v1)
    w = tl.where(part == 0, w0, w1)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        at, inside = n[None, :] * K + k[:, None], (n < N)[None, :] & (k < K)[:, None]
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        total = tl.dot(one, tl.load(v + at, mask=inside, other=0.0), total)
        total = tl.dot(one, tl.load(w + at, mask=inside, other=0.0), total)
    tl.store(y + (part * M + m)[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])


def test_one_condition_chooses_two_tensors(rng: np.random.Generator) -> None:
    x = rng.standard_normal((M, K)).astype(np.float16)
    held = [louver.prune(rng.standard_normal((N, K)).astype(np.float16), "2:4") for _ in range(4)]
    y = np.full((2, M, N), np.nan, np.float32)
    given = x, *(louver.compress(each, "2:4") for each in held), y, M, N, K
    louver.jit(paired).emulate[(2, 2, 2)](*given, BM=16, BN=32, BK=16)
    v, w = (np.stack(held[first : first + 2]).astype(float) for first in (0, 2))
    np.testing.assert_allclose(y, x.astype(float) @ (v + w).transpose(0, 2, 1), rtol=1e-3, atol=2e-2)
