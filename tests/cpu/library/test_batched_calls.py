"""Launches of calls and plans of batches, on a device that records."""

from __future__ import annotations

import numpy as np
import pytest

import louver
from louver.formats.tensor import SparseTensor
from louver.library import compiled
from support.fake_gpu import FakeGpu, FakeTorch, Map, Tensor
from support.signatures import grid

M, K = 136, 72
CAPTURING = 0xCA
"""The stream that the recording driver says is being captured."""


@pytest.fixture
def s(rng: np.random.Generator) -> SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4"), "2:4")


def test_a_batch_is_one_launch(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, checked: list[str]) -> None:
    for strides, k_rows in (((K * 64, 64, 1), True), ((64, 4 * 64, 1), True), ((80 * 64, 1, 80), False)):
        checked.clear()
        for address in (None, None, 1 << 50):
            b = Tensor((4, K, 64), strides=strides, address=address)
            y = louver.matmul(s, b)
            assert y.shape == (4, M, 64)
            launch = gpu.only_launch()
            inner, rows, pitch = (64, K, 2 * strides[1]) if k_rows else (K, 64, 160)
            assert Map(b.address, inner, rows, pitch, 4, 2 * strides[0]) in launch.arguments.values()
            assert launch.grid == grid(launch.kernel.signature, M, 64, 132, 4)
            assert (launch.arguments["N"], launch.arguments["batch"]) == (64, 4)
        assert len(checked) == 1, "one slow call for each layout"


def test_batches_of_weights_warm_up(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    several = louver.compress(louver.prune(rng.standard_normal((3, M, K)).astype(np.float16), "2:4"), "2:4")
    for shape, own in (((3, K, 64), True), ((K, 64), False)):
        for _ in range(3):
            b = Tensor(shape)
            assert louver.matmul(several, b).shape == (3, M, 64)
            read = gpu.only_launch().arguments
            assert read["batch"] == 3
            dense = Map(b.address, 64, K, 128, 3, 2 * K * 64) if own else Map(b.address, 64, K, 128)
            assert dense in read.values()
            (values,) = [m for m in read.values() if isinstance(m, Map) and m.rows == M and m.inner == K // 2]
            assert (values.batch, values.batch_pitch) == (3, M * values.pitch)


def test_views_of_tokens_are_a_batch_when_warm_too(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    c = Tensor((2, 200, M))
    for _ in range(3):
        x = Tensor((2, 200, K), strides=(K, 2 * K, 1))
        out = Tensor((2, 200, M), strides=(M, 2 * M, 1))
        louver.linear(x, s, out=out, c=c)
        read = gpu.only_launch().arguments
        assert Map(x.address, K, 200, 4 * K, 2, 2 * K) in read.values()
        assert (read["N"], read["batch"], read["pitch_c"], read["batch_pitch_c"]) == (200, 2, M, 200 * M)
        assert Map(out.address, M, 200, 4 * M, 2, 2 * M) in read.values() or read["batch_pitch"] == M


def test_plans_of_batches(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor, rng: np.random.Generator) -> None:
    several = louver.compress(louver.prune(rng.standard_normal((3, M, K)).astype(np.float16), "2:4"), "2:4")
    like = Tensor((4, K, 64))
    for weights, batch, x in (
        (s, 4, like),
        (s, None, like),
        (several, None, Tensor((3, K, 64))),
        (several, 1, Tensor((K, 64))),
    ):
        p = louver.plan("matmul", weights, n=64, batch=batch, like=x if batch is None else None)
        loaded = len(compiled._loaded())
        assert p(x).shape == (p.batch, M, 64)
        assert gpu.only_launch().arguments["batch"] == p.batch and len(compiled._loaded()) == loaded
    p = louver.plan("matmul", s, n=64, batch=4)
    with pytest.raises(ValueError, match="the plan is for a batch of dense operands, got single products"):
        p(Tensor((K, 64)))
    with pytest.raises(ValueError, match="the plan is for single products, got a batch of dense operands"):
        louver.plan("matmul", s, n=64)(like)
    with pytest.raises(ValueError, match="a plan reads its dense operand in place"):
        p(Tensor((4, K, 64), strides=(0, 64, 1)))
    with pytest.raises(ValueError, match="batch is 1 or 3, as many as s has matrices, got 2"):
        louver.plan("matmul", several, n=64, batch=2)
    with pytest.raises(ValueError, match="batch is an integer from 0 to 2,147,483,647, got -1"):
        louver.prepare(s, n=64, batch=-1)


def test_batches_are_prepared_for_a_capture(gpu: FakeGpu, torch: FakeTorch, s: SparseTensor) -> None:
    torch.stream = CAPTURING
    b = Tensor((4, K, 64))
    with pytest.raises(RuntimeError, match=r"louver\.prepare\(s, .*batch=…"):
        louver.matmul(s, b)
    louver.prepare(s, n=64, kind="matmul", batch=4)
    assert louver.matmul(s, b).shape == (4, M, 64)
    # A copied operand of any axes is in the stream's order too.
    assert louver.matmul(s, Tensor((2, 2, K, 64), strides=(9 * K * 64, K * 64, 64, 1))).shape == (2, 2, M, 64)
