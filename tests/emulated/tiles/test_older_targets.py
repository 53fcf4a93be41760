"""Conversions that a target has no instruction for: exact steps in their place, or an error that names the first target."""

from __future__ import annotations

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from louver.compile.tiles import compile_tiles
from louver.formats.dtypes import element_type
from louver.ir.context import parse_ir
from louver.ptx.assembler import assemble
from louver.ptx.validate import ValidationError
from louver.user.units import reasons_for_dense
from support.emulate_tiles import emulate_tiles
from support.tile_operations import DOT

KERNEL = """tt.func public @k(%out: !tt.ptr<{to}>, %x: !tt.ptr<{source}>) {{
  %n = tt.make_range {{start = 0 : i32, end = 256 : i32}} : tensor<256xi32>
  %xs = tt.splat %x : !tt.ptr<{source}> -> tensor<256x!tt.ptr<{source}>>
  %xp = tt.addptr %xs, %n : tensor<256x!tt.ptr<{source}>>, tensor<256xi32>
  %a = tt.load %xp : tensor<256x!tt.ptr<{source}>>
  %c = {op} %a {more} : tensor<256x{source}> {arrow} tensor<256x{to}> loc("kernel.py":7:4)
  %os = tt.splat %out : !tt.ptr<{to}> -> tensor<256x!tt.ptr<{to}>>
  %op = tt.addptr %os, %n : tensor<256x!tt.ptr<{to}>>, tensor<256xi32>
  tt.store %op, %c : tensor<256x!tt.ptr<{to}>>
  tt.return
}}
"""


def compiled(source: str, to: str, op: str, target: str):
    arrow, more = ("->", ", rounding = rtne") if op == "tt.fp_to_fp" else ("to", "")
    if to == "f32":
        more = ""
    kernel = compile_tiles(parse_ir(KERNEL.format(source=source, to=to, op=op, arrow=arrow, more=more)), target)
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


@pytest.mark.parametrize("target", ["sm_80", "sm_87"])
def test_writing_8_bit_floats_names_the_first_target(target: str) -> None:
    rule = rf"k, instruction \d+ \(cvt.rn.satfinite.e4m3x2.f32\) at kernel.py:7:4: needs sm_89, got the target {target}"
    with pytest.raises(ValidationError, match=rule):
        compiled("f32", "f8E4M3FN", "tt.fp_to_fp", target)
    compiled("f32", "f8E4M3FN", "tt.fp_to_fp", "sm_89")


@pytest.mark.parametrize(("target", "element", "said"), [("sm_100a", "f8E4M3FN", True), ("sm_89", "f8E4M3FN", False)])
def test_a_dot_that_the_assembler_emulates_is_explained(target: str, element: str, said: bool) -> None:
    text = DOT.format(t=element, out="f32", k=32, zero="0.0", precision="")
    found = SimpleNamespace(kernel=SimpleNamespace(made=compile_tiles(parse_ir(text), target)), warning=None)
    reasons = [each for each in reasons_for_dense(found) if "has no instruction" in each]  # type: ignore[arg-type]
    assert len(reasons) == said
    assert not said or reasons[0].startswith("sm_100a has no instruction for e4m3; the dot is made of others")
