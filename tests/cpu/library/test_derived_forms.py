"""Lists, picks and rounded values of sparse tensors on a GPU: made there, bit for bit as NumPy defines them.

The fake GPU runs each kernel on the emulator.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import louver
from louver.library.forms import Picks, RoundedValues, RowLists, on_device
from louver.library.streaming.launches import COUNTER_BYTES
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
