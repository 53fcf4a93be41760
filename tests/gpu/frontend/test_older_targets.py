"""Exact steps in place of instructions that older targets lack, on the GPU: the code for sm_80, assembled for the card."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from louver.compile.compiled import CompiledTiles
from louver.compile.pipeline import compile_tiles
from louver.formats.dtypes import element_type
from louver.ir.context import parse_ir
from louver.isa.convert import Fp8PairFromF32
from louver.isa.targets import target
from louver.runtime.device import require_device
from support.device_tiles import launch_tiles
from support.tile_operations import ATOMIC, conversion


def for_the_card(text: str) -> CompiledTiles:
    return replace(compile_tiles(parse_ir(text), "sm_80"), target=target(require_device().target))


@pytest.mark.parametrize(("kind", "name"), [("f8E4M3FN", "e4m3"), ("f8E5M2", "e5m2")])
def test_8_bit_floats(rng: np.random.Generator, kind: str, name: str) -> None:
    x, out = np.arange(256, dtype=np.uint8), np.zeros(256, np.float32)
    launch_tiles(
        for_the_card(conversion(kind, "f32", "tt.fp_to_fp")), (1,), {"out": out, "x": x}, ["out"], own_warps=True
    )
    np.testing.assert_array_equal(out, x.view(element_type(name).numpy).astype(np.float32))
    every = out[np.isfinite(out)]
    drawn = rng.standard_normal(256 - 2).astype(np.float32) * 2.0 ** rng.integers(-20, 18, 254).astype(np.float32)
    halfway = (every[:-1] + every[1:]) / 2
    made = for_the_card(conversion("f32", kind, "tt.fp_to_fp"))
    for numbers in (np.concatenate([drawn, [np.nan, -np.inf]]), np.resize(every, 256), np.resize(halfway, 256)):
        numbers, bits = numbers.astype(np.float32), np.zeros(256, np.uint8)
        launch_tiles(made, (1,), {"out": bits, "x": numbers}, ["out"], own_warps=True)
        lanes = numbers.view(np.uint32)
        np.testing.assert_array_equal(bits, Fp8PairFromF32(name).compute(lanes * 0, lanes)[0] & 0xFF)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", ["i32", "i64"])
def test_integers_to_bf16(rng: np.random.Generator, source: str) -> None:
    kind, bits = np.dtype(f"i{int(source[1:]) // 8}"), int(source[1:])
    x = (rng.integers(0, 1 << 62, 256) >> rng.integers(64 - bits, 62, 256)).astype(kind) * rng.choice(
        [-1, 1], 256
    ).astype(kind)
    out = np.zeros(256, np.uint16)
    made = for_the_card(conversion(source, "bf16", "arith.sitofp"))
    launch_tiles(made, (1,), {"out": out, "x": x}, ["out"], own_warps=True)
    found = out.view(ml_dtypes.bfloat16).astype(np.float64)
    for value, got in zip(x.tolist(), found.tolist(), strict=True):
        unit = 1 << max(abs(value).bit_length() - 8, 0)
        assert 2 * abs(value - int(got)) <= unit and int(got) % unit == 0, value


@pytest.mark.parametrize(("bins", "programs"), [(1, 2), (5, 8), (256, 200)])
def test_atomic_sums_of_bf16(rng: np.random.Generator, bins: int, programs: int) -> None:
    """Threads and CTAs at few addresses. Partial sums of whole numbers are at most 256 in any order, so exact."""
    made = for_the_card(ATOMIC.format(t="bf16", kind="fadd", bins=bins, store=""))
    assert "cas.b16" in made.ptx
    x = np.zeros(256, np.float32)
    x[:250] = np.resize([1.0, -1.0], 250) if bins % 2 else rng.integers(0, 2, 250)
    x[0] = 2.0
    out = np.zeros(bins, ml_dtypes.bfloat16)
    wanted = np.zeros(bins)
    np.add.at(wanted, np.arange(250) % bins, x[:250])
    given = {
        "out": out.view(np.uint16),
        "x": x.astype(ml_dtypes.bfloat16).view(np.uint16),
        "old": np.zeros(256, np.uint16),
    }
    launch_tiles(made, (programs,), given, ["out"], own_warps=True)
    assert np.array_equal(given["out"].view(ml_dtypes.bfloat16).astype(np.float64), programs * wanted)
