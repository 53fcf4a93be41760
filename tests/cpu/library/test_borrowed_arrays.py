"""Sparse tensors of arrays on a GPU that a caller keeps and frees, and forms that two tensors of equal indices share."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest

import louver
from louver.formats.tensor import SparseTensor
from louver.library.state import TensorState
from louver.runtime.arrays import view
from support.fake_gpu import FakeGpu, FakeTorch
from support.fake_resident import WAITS, calls, on_gpu, resident


def borrowed(s: SparseTensor) -> SparseTensor:
    """The tensor of the same memory without its owners."""
    return replace(s, values=replace(view(s.values), owner=None), indices=replace(view(s.indices), owner=None))


@pytest.fixture
def tensor(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> SparseTensor:
    return resident(louver.compress(rng.standard_normal((64, 128)).astype(np.float16), "2:4", method="magnitude"))


def test_products_read_the_arrays_in_place_and_their_end_waits_for_nothing(
    gpu: FakeGpu, tensor: SparseTensor, rng: np.random.Generator
) -> None:
    s, x = borrowed(tensor), on_gpu(rng.standard_normal((16, 128)).astype(np.float16))
    louver.linear(x, s)
    state = s.derived.of(TensorState)
    assert {form.address for form in state.forms()} >= {view(tensor.values).address}
    assert not state.copies_values
    metadata = TensorState()
    state.lend(metadata)
    assert len(metadata.forms()) == len(state.forms()) - 1
    gc.collect()
    gpu.calls.clear()
    del s, state
    gc.collect()
    assert not calls(gpu, WAITS)


def test_a_second_tensor_of_the_same_indices_derives_nothing(
    gpu: FakeGpu, tensor: SparseTensor, rng: np.random.Generator
) -> None:
    first, x = borrowed(tensor), on_gpu(rng.standard_normal((16, 128)).astype(np.float16))
    louver.linear(x, first)
    other = replace(tensor, values=on_gpu(np.ascontiguousarray(view(tensor.values).to_numpy())))
    second = borrowed(other)
    first.derived.of(TensorState).lend(second.derived.of(TensorState))
    gpu.calls.clear()
    gpu.launches.clear()
    louver.linear(x, second)
    assert len(gpu.launches) == 1 and not calls(gpu, WAITS)
    assert view(second.values).address != view(first.values).address


def test_copies_of_values_are_known(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    owned = resident(louver.compress(rng.standard_normal((64, 64)).astype(np.float32), "1:2", method="magnitude"))
    s = borrowed(owned)
    louver.linear(on_gpu(rng.standard_normal((16, 64)).astype(np.float32)), s)
    assert s.derived.of(TensorState).copies_values
