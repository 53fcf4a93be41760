"""Loops that carry tiles of 8 and 16 bits: what wide loads brought stays in words, and is what it was in each iteration."""

from __future__ import annotations

import numpy as np
import pytest

from louver.compile.compiled import CompiledTiles
from louver.compile.pipeline import compile_tiles
from louver.emulator import Seeded
from louver.frontend.ttir import read_ttir
from louver.isa.move import Move
from louver.ptx.assembler import assemble
from louver.ptx.module import Inst, While
from support.carried_tiles import FOR, NEXT, SIZE, TYPES, WHILE, draw, kernel
from support.emulate_tiles import emulate_tiles
from support.multiples import marked


def run(compiled: CompiledTiles, x: np.ndarray, n: int) -> np.ndarray:
    out = np.zeros((2, SIZE), x.dtype)
    emulate_tiles(compiled, (1,), {"out": out, "x": x, "n": n}, order=Seeded(4), uninitialised=["out"])
    return out.astype(np.float64)


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
    """Computed sums are put into words again."""
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
