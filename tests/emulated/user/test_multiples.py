"""Calls whose addresses and sizes are multiples of 16 move neighbours together; kernels that spill get more warps."""

from __future__ import annotations

import numpy as np
import pytest

from louver.frontend.ttir import read_ttir
from louver.passes.choose_family import CompiledKernel
from louver.passes.compile_tiles import compile_tiles
from louver.ptx.assembler import assemble
from louver.user.compiled import multiples_of
from louver.user.hints import Hints
from louver.user.kernel import JitKernel
from louver.user.room import explain_room, spilled, with_room
from support.jit import tile_source
from support.triton.cases import kept
from support.triton.tile_cases import TILE_CASES


def kernel_and_arguments(rng: np.random.Generator, size: int, first: int) -> tuple[JitKernel, dict[str, object]]:
    x = rng.standard_normal(size + first, np.float32)
    case = TILE_CASES["pointer_loop"]
    out = np.full(256 + first, np.nan, np.float32)[first:]
    arguments = {"out": out, "x": x[first:], "STEPS": 4, "ROW": 144, **case.constexprs}
    return JitKernel(tile_source("pointer_loop"), Hints()), arguments


@pytest.mark.parametrize("first", [0, 1])
def test_calls_go_by_their_alignment(rng: np.random.Generator, first: int) -> None:
    kernel, arguments = kernel_and_arguments(rng, 144 * 5, first)
    x, out = np.asarray(arguments["x"]), np.asarray(arguments["out"])
    (call, _), aligned = kernel._call((), arguments), out.ctypes.data % 16 == 0 and x.ctypes.data % 16 == 0  # type: ignore[attr-defined]
    assert multiples_of(call) == (("ROW", "out", "x") if aligned else ("ROW",)) or not (aligned or first)
    one, other = np.zeros(128), np.ones(128)
    for step in range(4):
        one, other = other + x[step * 144 : step * 144 + 128], one
        one = one * 0.5 if step % 2 == 0 else one
    kernel.emulate[(1,)](**arguments)
    np.testing.assert_allclose(out, np.concatenate([one, one[::-1] + other]), rtol=1e-5, atol=1e-6)
    explained = kernel.explain(**arguments)
    assert explained.warning is None
    assert ("ld.global.v" in explained.ptx) == aligned or not first


def test_a_kernel_that_spills_gets_more_warps() -> None:
    text = kept("gated_layer", "3.6")
    narrow = CompiledKernel(compile_tiles(read_ttir(text), warps=1), "no product")
    before = assemble(narrow.made.ptx)
    assert spilled(before)
    wider, after = with_room(narrow, before, None)
    assert not spilled(after) and wider.made.signature.threads in (64, 128)
    assert wider.refusal == "no product"
    # Whoever asks for one warp gets it, and is told.
    kept_made, warning = explain_room(narrow, 1)
    assert kept_made is narrow.made and warning is not None and "with 1 warp" in warning
    assert explain_room(narrow, None)[1] is None
