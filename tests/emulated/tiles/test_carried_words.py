"""Loops that carry tiles of 8 and 16 bits: what wide loads brought stays in words, and is what it was in each iteration."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from louver.emulator import Seeded
from louver.frontend.ttir import read_ttir
from louver.isa.move import Move
from louver.kernels.emulate_tiles import emulate_tiles
from louver.passes.compile_tiles import CompiledTiles, compile_tiles
from louver.ptx.assembler import assemble
from louver.ptx.module import Inst, While
from support.multiples import marked

SIZE = 2048
"""Elements of a tile: 16 for each of 128 threads, in 4 words of 8-bit ones or 8 of 16-bit ones."""

TYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "i8": np.int8,
    "i16": np.int16,
}

HEAD = """tt.func public @k(%out: !tt.ptr<{t}>, %x: !tt.ptr<{t}>, %n: i32) {{
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %row = arith.constant 2048 : i32
  %r = tt.make_range {{start = 0 : i32, end = 2048 : i32}} : tensor<2048xi32>
  %far = tt.splat %row : i32 -> tensor<2048xi32>
  %p0 = tt.splat %x : !tt.ptr<{t}> -> tensor<2048x!tt.ptr<{t}>>
  %p1 = tt.addptr %p0, %r : tensor<2048x!tt.ptr<{t}>>, tensor<2048xi32>
  %p2 = tt.addptr %p1, %far : tensor<2048x!tt.ptr<{t}>>, tensor<2048xi32>
  %one = tt.load %p1 : tensor<2048x!tt.ptr<{t}>>
  %two = tt.load %p2 : tensor<2048x!tt.ptr<{t}>>"""

TAIL = """
  %o0 = tt.splat %out : !tt.ptr<{t}> -> tensor<2048x!tt.ptr<{t}>>
  %o1 = tt.addptr %o0, %r : tensor<2048x!tt.ptr<{t}>>, tensor<2048xi32>
  %o2 = tt.addptr %o1, %far : tensor<2048x!tt.ptr<{t}>>, tensor<2048xi32>
  tt.store %o1, %u : tensor<2048x!tt.ptr<{t}>>
  tt.store %o2, %v : tensor<2048x!tt.ptr<{t}>>
  tt.return
}}"""

NEXT = """
    %k = arith.addi %i, %c2 : i32
    %at = arith.muli %k, %row : i32
    %by = tt.splat %at : i32 -> tensor<2048xi32>
    %q = tt.addptr %p1, %by : tensor<2048x!tt.ptr<{t}>>, tensor<2048xi32>
    %w = tt.load %q : tensor<2048x!tt.ptr<{t}>>"""
"""The tile two rows behind the loop's number."""

FOR = """
  %c2 = arith.constant 2 : i32
  %u, %v = scf.for %i = %c0 to %n step %c1 iter_args(%a = %one, %b = %two) -> (tensor<2048x{t}>, tensor<2048x{t}>) : i32 {{BODY
    scf.yield ENDS : tensor<2048x{t}>, tensor<2048x{t}>
  }}"""

WHILE = """
  %c2 = arith.constant 2 : i32
  %u, %v, %last = scf.while (%a = %one, %b = %two, %i = %c0) : (tensor<2048x{t}>, tensor<2048x{t}>, i32) -> (tensor<2048x{t}>, tensor<2048x{t}>, i32) {{
    %some = arith.remsi %i, %c2 : i32
    %more = arith.cmpi slt, %i, %n : i32
    scf.condition(%more) %b, %a, %i : tensor<2048x{t}>, tensor<2048x{t}>, i32
  }} do {{
  ^bb0(%b: tensor<2048x{t}>, %a: tensor<2048x{t}>, %i: i32):BODY
    %j = arith.addi %i, %c1 : i32
    scf.yield ENDS, %j : tensor<2048x{t}>, tensor<2048x{t}>, i32
  }}"""


def kernel(element: str, loop: str, body: str, ends: str) -> str:
    return (HEAD + loop.replace("BODY", body).replace("ENDS", ends) + TAIL).format(t=element)


def run(compiled: CompiledTiles, x: np.ndarray, n: int) -> np.ndarray:
    out = np.zeros((2, SIZE), x.dtype)
    emulate_tiles(compiled, (1,), {"out": out, "x": x, "n": n}, order=Seeded(4), uninitialised=["out"])
    return out.astype(np.float64)


def draw(rng: np.random.Generator, element: str) -> np.ndarray:
    return rng.integers(-7, 8, (8, SIZE)).astype(TYPES[element])


def compiled_of(text: str) -> CompiledTiles:
    return compile_tiles(marked(read_ttir(text), ["out", "x"]))


def moves_in_loop(compiled: CompiledTiles) -> list[str]:
    """The class of each register that the loop moves to another."""
    (loop,) = [node for node in compiled.kernel.body.walk() if isinstance(node, While)]
    return [node.op.type for node in loop.body.walk() if isinstance(node, Inst) and isinstance(node.op, Move)]


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("element", TYPES)
def test_tiles_that_change_places(rng: np.random.Generator, element: str, n: int) -> None:
    x = draw(rng, element)
    found = run(compiled_of(kernel(element, FOR, "", "%b, %a")), x, n)
    np.testing.assert_array_equal(found, x[[n % 2, 1 - n % 2]].astype(np.float64))


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("element", TYPES)
def test_tiles_that_are_loaded_ahead(rng: np.random.Generator, element: str, n: int) -> None:
    x = draw(rng, element)
    found = run(compiled_of(kernel(element, FOR, NEXT, "%b, %w")), x, n)
    np.testing.assert_array_equal(found, x[n : n + 2].astype(np.float64))


@pytest.mark.parametrize("n", [0, 1, 4])
@pytest.mark.parametrize("element", ["f16", "bf16", "i8", "i16"])
def test_tiles_that_are_summed(rng: np.random.Generator, element: str, n: int) -> None:
    """What is computed is put into words again."""
    x = draw(rng, element)
    add = "addi" if element.startswith("i") else "addf"
    body = f"{NEXT}\n    %s = arith.{add} %a, %w : tensor<2048x{element}>"
    found = run(compiled_of(kernel(element, FOR, body, "%b, %s")), x, n)
    one, two = (x[row].astype(np.float64) for row in (0, 1))
    for step in range(n):
        one, two = two, one + x[step + 2].astype(np.float64)
    np.testing.assert_array_equal(found, [one, two])


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("element", ["f16", "f8E4M3FN", "i8"])
def test_while_loops(rng: np.random.Generator, element: str, n: int) -> None:
    """The condition passes both tiles on in each other's place, after the last time too."""
    x = draw(rng, element)
    found = run(compiled_of(kernel(element, WHILE, NEXT, "%b, %w")), x, n)
    # Before the loop: one, two. The second region calls what is passed b, a: b is the first of them.
    one, two = x[0], x[1]
    for step in range(n):
        one, two = two, x[step + 2]
    np.testing.assert_array_equal(found, np.stack([two, one]).astype(np.float64))


@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize("element", ["f16", "f8E4M3FN", "i8"])
def test_loops_in_loops(rng: np.random.Generator, element: str, n: int) -> None:
    """The inner loop turns both tiles n times, the outer one does that n times and turns them once more."""
    x = draw(rng, element)
    both = "(tensor<2048x{t}>, tensor<2048x{t}>)"
    inner = f"""
    %c, %d = scf.for %j = %c0 to %n step %c1 iter_args(%e = %a, %f = %b) -> {both} : i32 {{{{
      scf.yield %f, %e : tensor<2048x{{t}}>, tensor<2048x{{t}}>
    }}}}"""
    found = run(compiled_of(kernel(element, FOR, inner, "%d, %c")), x, n)
    turned = n * (n + 1) % 2
    np.testing.assert_array_equal(found, x[[turned, 1 - turned]].astype(np.float64))


@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize("element", TYPES)
def test_tiles_that_begin_as_zeros(rng: np.random.Generator, element: str, n: int) -> None:
    """Nothing is known of their words: elements are carried, and words of the other tile become such."""
    x = draw(rng, element)
    number = "0" if element.startswith("i") else "0.0"
    loop = f"\n  %none = arith.constant dense<{number}> : tensor<2048x{{t}}>{FOR.replace('%a = %one', '%a = %none')}"
    found = run(compiled_of(kernel(element, loop, NEXT, "%b, %w")), x, n)
    x[0] = 0
    np.testing.assert_array_equal(found, x[n : n + 2].astype(np.float64))


@pytest.mark.parametrize(("element", "words"), [("f16", 8), ("f8E4M3FN", 4), ("i8", 4), ("i16", 8)])
def test_words_are_carried(element: str, words: int) -> None:
    """A rotation copies one tile, which another one takes the place of, and moves both; nothing is packed or unpacked."""
    compiled = compiled_of(kernel(element, FOR, NEXT, "%b, %w"))
    for name in ("bfe", "prmt", "cvt.u16", "mov.b32 {"):
        assert name not in compiled.ptx, name
    assert moves_in_loop(compiled) == ["b32"] * (3 * words)
    assembly = assemble(compiled.ptx)
    assert assembly.clean
    # Two tiles, the one that is loaded, and addresses.
    assert assembly.kernels[0].registers <= 3 * words + 16
