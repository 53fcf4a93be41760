"""Lists, picks and rounded values of sparse tensors on a GPU: made there, bit for bit as NumPy defines them.

The fake GPU runs each kernel on the emulator.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import louver
from louver.library.forms import Metadata, Picks, RoundedValues, RowLists, TileMetadata, Values, on_device
from louver.library.state import TensorState
from louver.library.streaming.launches import COUNTER_BYTES
from louver.runtime.arrays import view
from support.fake_gpu import FakeGpu, FakeTorch
from support.fake_resident import TRIPS, calls, on_gpu, read, resident
from support.sparse import random_bits


@pytest.mark.parametrize(
    ("pattern", "shape"),
    [
        ("2:8@32", (70, 45)),
        ("4:16@64", (2, 130, 70)),
        ("1:3@128", (100, 33)),
        ("2:4@16", (40, 64)),
        ("1:2@16", (33, 20)),
        ("20:100@1000000000000", (48, 250)),
    ],
)
def test_lists_and_picks_are_derived_where_the_indices_are(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, pattern: str, shape: tuple[int, ...]
) -> None:
    s = louver.compress(random_bits(rng, shape, "f32"), pattern, method="magnitude")
    t = resident(s)
    length = s.pattern.length
    lists = [RowLists(rows) for rows in (1, 16, 32, 64) if length % rows == 0]
    for form in (*lists, Picks(8), Picks(32)):
        gpu.calls.clear()
        expected = form.host(s)
        assert form.nbytes(t) == expected.nbytes
        held = on_device(form, t, 0)
        assert read(gpu, held.address, held.nbytes) == expected.tobytes()
        travelled = sum(arguments[2] for arguments in gpu.called("cuMemcpyDtoHAsync"))
        assert travelled == COUNTER_BYTES and not gpu.called("cuMemcpyHtoDAsync")


def test_illegal_lists_are_the_host_s_to_name(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    s = louver.compress(random_bits(rng, (64, 25), "f32"), "3:12@32", method="magnitude")
    for where, byte, message in (((1, 2), 0x33, "increase and are under 12"), ((0, -1), 0xF0, "unused bits")):
        indices = s.indices.copy()
        indices[where] |= byte
        t = replace(s, values=on_gpu(s.values), indices=on_gpu(indices))
        for form in (RowLists(32), Picks(16)):
            with pytest.raises(ValueError, match=message):
                on_device(form, t, 0)


def test_values_are_rounded_where_they_are(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    s = louver.compress(random_bits(rng, (70, 302), "f32"), "1:2", method="magnitude")
    wide = np.full((s.rows, 200), 77, np.float32)[:, : s.kept]
    wide[...] = s.values
    form, expected = RoundedValues(), RoundedValues().host(s)
    for t in (resident(s), replace(s, values=on_gpu(wide), indices=on_gpu(s.indices))):
        gpu.calls.clear()
        held = on_device(form, t, 0)
        assert read(gpu, held.address, held.nbytes) == expected.tobytes() and not calls(gpu, TRIPS)
    new = np.ascontiguousarray(random_bits(rng, s.values.shape, "f32"))
    gpu.calls.clear()
    t.update_(on_gpu(new))
    held.refresh(t)
    assert read(gpu, held.address, held.nbytes) == form.host(s.update_(new)).tobytes() and not calls(gpu, TRIPS)


def overwrite(array: Any, new: np.ndarray) -> None:
    """Write to an array of the fake GPU, which has the strides of `new`, behind the back of all that knows it."""
    memory = (ctypes.c_char * (new.strides[0] * (len(new) - 1) + new.shape[1] * new.itemsize)).from_address(
        view(array).address
    )
    np.ndarray(new.shape, new.dtype, memory, 0, new.strides)[...] = new


@pytest.mark.parametrize("dtype", ["f16", "e4m3"])
def test_forms_are_rewritten_in_their_memory(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, dtype: str
) -> None:
    """After other values and other places were written under them."""
    old, new = (louver.compress(random_bits(rng, (70, 96), dtype), "2:4", method="magnitude") for _ in range(2))
    t = resident(old)
    state = t.derived.of(TensorState)
    forms = (Values(), Values(packed=True), Metadata(), TileMetadata(dtype))
    held = [state.form(t, form, 0) for form in forms]
    for array, other in ((t.values, new.values), (t.indices, new.indices)):
        overwrite(array, other)
    state.rewrite(t)
    for form, each in zip(forms, held, strict=True):
        assert state.form(t, form, 0) is each
        if form != Values():
            assert read(gpu, each.address, each.nbytes) == form.host(new).tobytes(), form


def test_a_form_of_another_size_is_not_rewritten(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    w = rng.standard_normal((64, 2048)).astype(np.float32)
    s, alike = (louver.compress(each, "1:16@16", method="magnitude") for each in (w, np.tile(w[:16], (4, 1))))
    t = resident(s)
    state = t.derived.of(TensorState)
    state.form(t, RowLists(64), 0)
    overwrite(t.indices, alike.indices)
    with pytest.raises(ValueError, match=r"a form of 1:16@16 has \d+ bytes, got 512 for other indices"):
        state.rewrite(t)
