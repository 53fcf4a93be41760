"""Kernels that sparsify on the emulator, bit for bit as NumPy defines them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from louver.emulator import Earliest, Order, Seeded
from louver.formats.dtypes import element_type
from louver.isa.metadata import prepack
from louver.library.sparsify import ROWS, sparsified
from louver.library.streaming.launch import Launch
from louver.library.streaming.launches import sparsify_into
from louver.library.streaming.record import Activation, ScaledRows
from louver.ptx.module import Kernel
from support.removal import survey, undetected
from support.sparse import bits_of, random_bits
from support.streaming import POISON, Array, Device, built

Scale = float | str | None

CASES: tuple[tuple[str, str, Scale, Activation | None], ...] = (
    ("f16", "f16", None, "relu2"),
    ("bf16", "bf16", None, "relu2"),
    ("f16", "f16", None, None),
    ("f16", "e4m3", 0.37, "relu2"),
    ("bf16", "e4m3", 3.0, None),
    ("f16", "e4m3", ROWS, "relu2"),
    ("bf16", "e4m3", ROWS, "relu2"),
    ("bf16", "e4m3", ROWS, None),
)

LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "rows": lambda x: x,
    "columns": lambda x: np.ascontiguousarray(x.T).T,
    "apart": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "pitched": lambda x: np.pad(x, ((0, 0), (16, 16)))[:, 16:-16],
}


def special(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Random bits, with ties, zeros of both signs, infinities and NaNs of both signs, and rows without any of these."""
    x = random_bits(rng, shape, dtype)
    rows, bits = x.reshape(-1, shape[-1]), bits_of(x).reshape(-1, shape[-1])
    infinity = {"f16": 0x7C00, "bf16": 0x7F80}[dtype]
    for number in (0, 0x8000, 0x3C00, 0xBC00, infinity, infinity | 0x8000, infinity | 1, infinity | 0x8011):
        bits[rng.random(bits.shape) < 0.02] = number
    rows[::3] = (rng.standard_normal(rows[::3].shape) * 3).astype(x.dtype)
    return x


def run(
    x: Array,
    stored: str,
    scale: Scale,
    activation: Activation | None,
    *,
    words: bool = True,
    order: Order | None = None,
    kernel: Kernel | None = None,
    array: bool = False,
) -> Launch:
    """Sparsify on the emulator, and compare with NumPy."""
    device, element = Device(), element_type(stored)
    expected, scales = sparsified(np.ascontiguousarray(x), element, activation, scale)
    to, held, codes = device.stored(expected.rows, expected.size, expected.pattern, element.bits, pitch=16)
    m, k = x.shape[-2:]
    packed = np.concatenate([prepack(each, m, k, element) for each in np.split(expected.indices, expected.rows // m)])
    place, data = device.poisoned(packed.nbytes)
    at, written = device.poisoned(4 * expected.rows)
    given: Any = None
    if scale == ROWS:
        given = "rows", at
    elif scale is not None:
        bits = np.array([scale], np.float32)
        given = ("array", device.place(bits).address) if array else ("number", int(bits.view(np.uint32)[0]))
    launch = sparsify_into(
        device.place(x), to, element, activation=activation, scale=given, words=place if words else 0
    )
    device.run(launch, order=order, kernel=kernel)
    kept = expected.kept * element.bytes
    bits = np.ascontiguousarray(bits_of(expected.values)).view(np.uint8).reshape(expected.rows, -1)
    np.testing.assert_array_equal(held[:, :kept], bits)
    assert (held[:, -(-kept // 16) * 16 :] == POISON).all()
    np.testing.assert_array_equal(codes, expected.indices)
    if words:
        np.testing.assert_array_equal(data, packed.reshape(-1).view(np.uint8))
    if scales is not None:
        np.testing.assert_array_equal(written.view(np.float32), scales)
    return launch


@pytest.mark.parametrize("shape", [(70, 272), (9, 71), (3, 1030), (66, 384)])
@pytest.mark.parametrize(("dtype", "stored", "scale", "activation"), CASES)
def test_sparsified(
    dtype: str, stored: str, scale: Scale, activation: Activation | None, shape: Any, rng: np.random.Generator
) -> None:
    run(special(rng, shape, dtype), stored, scale, activation)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("stored", "scale"), [("f16", None), ("e4m3", 0.5), ("e4m3", ROWS)])
def test_layouts(layout: str, stored: str, scale: Scale, rng: np.random.Generator) -> None:
    run(LAYOUTS[layout](special(rng, (19, 88), "f16")), stored, scale, "relu2")


@pytest.mark.parametrize(("stored", "scale"), [("bf16", None), ("e4m3", 0.5), ("e4m3", ROWS)])
def test_entries_and_no_metadata(stored: str, scale: Scale, rng: np.random.Generator) -> None:
    run(special(rng, (2, 17, 70), "bf16"), stored, scale, "relu2")
    run(special(rng, (2, 17, 70), "bf16"), stored, scale, "relu2", words=False)


def test_a_scale_in_memory(rng: np.random.Generator) -> None:
    run(special(rng, (9, 71), "f16"), "e4m3", 0.25, "relu2", array=True)


@pytest.mark.parametrize("order", [Earliest(), Seeded(1)], ids=str)
def test_any_order_of_warps(order: Order, rng: np.random.Generator) -> None:
    run(special(rng, (5, 4200), "f16"), "e4m3", ROWS, "relu2", order=order)


def test_every_barrier_of_row_scales_is_needed(rng: np.random.Generator) -> None:
    x = special(rng, (6, 2100), "f16")

    def attempt(kernel: Kernel | None, order: Order) -> Launch:
        return run(x, "e4m3", ROWS, "relu2", kernel=kernel, order=order, words=False)

    record = attempt(None, Earliest()).record
    assert isinstance(record, ScaledRows) and record.threads == 96
    outcomes = survey(built(record), attempt)
    assert len(outcomes) == 2 and not undetected(outcomes)
