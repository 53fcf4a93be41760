"""What a target has no instruction for: exact steps in its place, or an error that names the first target."""

from __future__ import annotations

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from louver.compile.compiled import CompiledTiles
from louver.compile.pipeline import compile_tiles
from louver.emulator import Seeded
from louver.formats.dtypes import element_type
from louver.ir.context import parse_ir
from louver.isa.convert import Fp8PairFromF32
from louver.isa.floating import f32_to_odd
from louver.ptx.assembler import assemble
from louver.ptx.validate import ValidationError
from louver.user.units import reasons_for_dense
from support.emulate_tiles import emulate_tiles
from support.tile_operations import ATOMIC, DOT, KEEP, changed, conversion


def compiled(source: str, to: str, op: str, target: str) -> CompiledTiles:
    kernel = compile_tiles(parse_ir(conversion(source, to, op)), target)
    assert assemble(kernel.ptx, target).clean
    return kernel


@pytest.mark.parametrize("target", ["sm_80", "sm_88", "sm_89", "sm_120a"])
@pytest.mark.parametrize(("source", "name"), [("f8E4M3FN", "e4m3"), ("f8E5M2", "e5m2")])
def test_every_8_bit_float_is_read(source: str, name: str, target: str) -> None:
    kernel = compiled(source, "f32", "tt.fp_to_fp", target)
    assert ("cvt.rn.f16x2" in kernel.ptx) == (target in ("sm_89", "sm_120a"))
    x, out = np.arange(256, dtype=np.uint8), np.zeros(256, np.float32)
    emulate_tiles(kernel, (1,), {"out": out, "x": x})
    np.testing.assert_array_equal(out, x.view(element_type(name).numpy).astype(np.float32))


@pytest.mark.parametrize(("source", "op"), [("i32", "arith.sitofp"), ("i32", "arith.uitofp"), ("i64", "arith.sitofp")])
def test_integers_are_rounded_to_bf16_once(rng: np.random.Generator, source: str, op: str) -> None:
    """Integers whose f32 lies halfway between two numbers of bf16, though they do not: rounding twice would go wrong."""
    kernel = compiled(source, "bf16", op, "sm_89")
    assert "cvt.rn.bf16" in kernel.ptx and f"cvt.rn.bf16.{'u' if 'ui' in op else 's'}" not in kernel.ptx
    bits = int(source[1:])
    shift = rng.integers(0, bits - 26, 256)
    near = (((1 << 25) | (rng.integers(0, 1 << 7, 256) << 18) | (1 << 17)) << shift) + rng.integers(-1, 2, 256)
    x = np.where(rng.random(256) < 0.5, near, -near).astype(f"i{bits // 8}")
    x[:6] = [0, 1, -1, np.iinfo(x.dtype).max, np.iinfo(x.dtype).min, 257]
    out = np.zeros(256, np.uint16)
    emulate_tiles(kernel, (1,), {"out": out, "x": x})
    values = [int(each) for each in (x.view(f"u{bits // 8}") if "ui" in op else x)]
    got = out.view(ml_dtypes.bfloat16).astype(np.float64)
    for value, found in zip(values, got, strict=True):
        steps = max(abs(value).bit_length() - 8, 0)
        low, rest = divmod(abs(value), 1 << steps)
        half = (1 << steps) // 2
        up = steps > 0 and (rest > half or (rest == half and low % 2 == 1))
        assert abs(int(found)) == (low + up) << steps and (found < 0) == (value < 0), value


@pytest.mark.parametrize("bins", [5, 256])
def test_bf16_is_added_atomically(rng: np.random.Generator, bins: int) -> None:
    """Whole numbers, so that no order matters; also where threads of a warp meet at one address."""
    made = compile_tiles(parse_ir(ATOMIC.format(t="bf16", kind="fadd", bins=bins, store=KEEP.format("bf16"))), "sm_80")
    assert assemble(made.ptx, "sm_80").clean and "cas.b16" in made.ptx and "add.noftz.bf16" not in made.ptx
    x, start = (rng.integers(-3, 4, size).astype(ml_dtypes.bfloat16) for size in (256, bins))
    out, old = start.copy(), np.zeros(256, ml_dtypes.bfloat16)
    emulate_tiles(made, (1,), {"out": out, "x": x, "old": old}, order=Seeded(2))
    np.testing.assert_array_equal(out, changed("fadd", start, x))
    if bins == 256:
        np.testing.assert_array_equal(old, np.where(np.arange(256) < 250, start, np.zeros((), start.dtype)))


def test_sums_of_bf16_are_rounded_once(rng: np.random.Generator) -> None:
    made = compile_tiles(parse_ir(ATOMIC.format(t="bf16", kind="fadd", bins=256, store="")), "sm_89")
    x, start = (rng.integers(0, 1 << 16, (2, 256)) & 0xBFFF).astype(np.uint16).view(ml_dtypes.bfloat16)
    out = start.copy()
    emulate_tiles(made, (1,), {"out": out, "x": x, "old": np.zeros(256, ml_dtypes.bfloat16)})
    exact = start.astype(np.float64) + np.where(np.arange(256) < 250, x.astype(np.float64), 0)
    with np.errstate(over="ignore"):
        wanted = f32_to_odd(exact).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("target", ["sm_80", "sm_89"])
@pytest.mark.parametrize(("to", "name"), [("f8E4M3FN", "e4m3"), ("f8E5M2", "e5m2")])
def test_8_bit_floats_are_written(rng: np.random.Generator, to: str, name: str, target: str) -> None:
    """Every number, what lies halfway between two and beside it, subnormal numbers, and what saturates, against the instruction."""
    kernel = compiled("f32", to, "tt.fp_to_fp", target)
    assert ("cvt.rn.satfinite" in kernel.ptx) == (target == "sm_89")
    every = np.arange(128, dtype=np.uint8).view(element_type(name).numpy).astype(np.float32)
    near = [every, (every[:-1] + every[1:]) / 2, np.array([np.nan, np.inf, 1e30, 2**-130, 0], np.float32)]
    drawn = rng.standard_normal(400).astype(np.float32) * 2.0 ** rng.integers(-20, 18, 400).astype(np.float32)
    with np.errstate(invalid="ignore"):
        points = np.concatenate(
            [*near, *(np.nextafter(near[1], limit) for limit in (np.float32(0), np.float32(1e9))), drawn]
        )
    points = np.concatenate([points, -points]).astype(np.float32)
    points.resize(-(-points.size // 256) * 256)
    form = Fp8PairFromF32(name)  # type: ignore[arg-type]
    for x in points.reshape(-1, 256):
        out = np.zeros(256, np.uint8)
        emulate_tiles(kernel, (1,), {"out": out, "x": x})
        wanted = [form.compute(lanes * 0, lanes)[0] & 0xFF for lanes in x.view(np.uint32).reshape(-1, 32)]
        np.testing.assert_array_equal(out, np.concatenate(wanted).astype(np.uint8))


def test_an_instruction_that_a_target_lacks_is_named_with_its_line() -> None:
    text = DOT.format(t="f8E4M3FN", out="f32", k=32, zero="0.0", precision="")
    text = text.replace("-> tensor<16x16xf32>\n", '-> tensor<16x16xf32> loc("kernel.py":7:4)\n')
    with pytest.raises(ValidationError, match=r"\(mma.sync\S+\) at kernel.py:7:4: needs sm_89, got the target sm_88"):
        compile_tiles(parse_ir(text), "sm_88")


@pytest.mark.parametrize(("target", "element", "said"), [("sm_100a", "f8E4M3FN", True), ("sm_89", "f8E4M3FN", False)])
def test_a_dot_that_the_assembler_emulates_is_explained(target: str, element: str, said: bool) -> None:
    text = DOT.format(t=element, out="f32", k=32, zero="0.0", precision="")
    found = SimpleNamespace(kernel=SimpleNamespace(made=compile_tiles(parse_ir(text), target)), warning=None)
    reasons = [each for each in reasons_for_dense(found) if "has no instruction" in each]  # type: ignore[arg-type]
    assert len(reasons) == said
    assert not said or reasons[0].startswith("sm_100a has no instruction for e4m3; the dot is made of others")
