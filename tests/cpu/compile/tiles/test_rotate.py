"""Loops of rings end with their barrier; products and loads follow it. Loops of another form stay as they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from louver.compile.lower.tiles import rotate
from louver.compile.lower.tiles.keep_masks import keep_masks
from louver.compile.lower.tiles.registers import Fresh, writes_of
from louver.compile.lower.tiles.rotate import AHEAD, rotate_loops
from louver.compile.plan.register_tiles import RegisterTiles
from louver.compile.problem_tiles import compile_problem_tiles
from louver.frontend.problem import Problem
from louver.isa.async_copy import AsyncCommit, AsyncCopy, AsyncWait
from louver.isa.matrix import LoadMatrix
from louver.isa.mma import Mma
from louver.isa.scalar import Compare
from louver.isa.sync import BarrierSync
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Imm, Inst, Kernel, Module, Param, Reg, While
from louver.ptx.printer import print_module

PRODUCT = Mma("f16", "f16", "f32", 16)


@pytest.fixture(autouse=True)
def _short_steps_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotate, "LEAST_ROTATED", 1)


def loop_of(kernel: Kernel) -> list[Inst]:
    """The body of the only loop with products."""
    loops = [node.body for node in kernel.body.walk() if isinstance(node, While)]
    (found,) = [[node for node in body.nodes if isinstance(node, Inst)] for body in loops if _products(body.nodes)]
    return found


def _products(nodes: object) -> list[Inst]:
    return [node for node in nodes if isinstance(node, Inst) and isinstance(node.op, Mma)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("step", [64, 32])
def test_the_loop_of_a_product_is_rotated(step: int) -> None:
    made = compile_problem_tiles(Problem("linear"), RegisterTiles("sm_80", 128, 128, step, 4))
    body = loop_of(made.kernel)
    assert isinstance(body[-1].op, BarrierSync) and isinstance(body[-2].op, AsyncWait)
    kinds = [type(node.op) for node in body]
    assert kinds.count(BarrierSync) == 1 and kinds.count(Mma) == step
    # Loads come all the time, at most a few products before they are needed, and copies in groups.
    loads = [kinds[:place].count(Mma) for place, kind in enumerate(kinds) if kind is LoadMatrix]
    assert len(loads) == 12 * step // 32 + 1 and max(loads) < step
    copies = [kinds[:place].count(Mma) for place, kind in enumerate(kinds) if kind is AsyncCopy]
    assert min(copies) >= step // AHEAD and len(set(copies)) == max(1, (step - step // AHEAD) // 16)
    # The mask of each row is a bit: the loop compares bits, columns and its own numbers.
    compared = [node for node in body if isinstance(node.op, Compare) and node.op.type == "u64"]
    assert len(compared) <= 6
    assert made.ptx.count("mma.sp::") == step + step // AHEAD


def small(
    change: Callable[[KernelBuilder], object] | None = None,
    *,
    scaled: bool = False,
    turned: bool = False,
    held: bool = False,
) -> Kernel:
    """A loop that copies, loads and multiplies. change: what it does besides. held: whether the operands of the last product
    are those of all steps.
    """
    k = KernelBuilder("small", (Param("x", "u64"),), threads=32, dynamic_shared=4096)
    x, smem, never = k.ld_param("x"), k.shared_symbol(), k.mov(0, kind="pred")
    sums = [tuple(k.mov(0.0, kind="f32") for _ in range(4)) for _ in range(4)]
    number, ones = k.mov(0), tuple(k.mov(0x3C003C00) for _ in range(6))
    with k.loop(uniform=True) as loop:
        k.emit(AsyncWait(0))
        k.barrier_sync(0, 32)
        k.emit(AsyncCopy(), Address(smem), Address(x), never)
        k.emit(AsyncCommit())
        a, b = tuple(k.regs("b32", 4)), tuple(k.regs("b32", 4))
        k.emit(LoadMatrix(), a, Address(smem, 1024))
        k.emit(LoadMatrix(), b, Address(smem, 2048))
        made = [tuple(k.regs("f32", 4)) for _ in sums]
        for index, (before, result) in enumerate(zip(sums, made, strict=True)):
            of_all_steps = held and index == len(sums) - 1
            operands = (ones[:4], ones[4:]) if of_all_steps else (a, b[index % 2 * 2 :][:2])
            k.emit(PRODUCT, result, *operands, before)
        if change is not None:
            change(k)
        for before, result in zip([*sums[turned:], *sums[:turned]], made, strict=True):
            for to, register in zip(before, result, strict=True):
                k.mov(k.mul_f32(register, 2.0) if scaled else register, into=to)
        k.add(number, 1, into=number)
        loop.repeat_if(k.setp("lt", "u32", number, 8))
    for place, each in enumerate(register for group in sums for register in group):
        k.store_global(Address(x, 4 * place), each)
    return k.finish()


def text(kernel: Kernel) -> str:
    return print_module(Module("sm_90a", [kernel]))


def test_a_loop_of_another_form_stays_as_it_is() -> None:
    """With sums that are scaled or change places in each step, zeros would not be neutral; operands of all steps are none
    before the first one; a second barrier may order anything.
    """
    for kernel in (
        small(scaled=True),
        small(turned=True),
        small(held=True),
        small(lambda k: k.barrier_sync(0, 32)),
        small(lambda k: k.emit(AsyncWait(1))),
    ):
        before = text(kernel)
        rotate_loops(kernel)
        assert text(kernel) == before
    changed = small()
    before = text(changed)
    rotate_loops(changed)
    assert text(changed) != before


def masked(change: Callable[[KernelBuilder, list[Reg]], object] | None = None) -> Kernel:
    """A loop with conjunctions of a mask that changes and others that do not. change: writes the sides of the others too."""
    k = KernelBuilder("masked", (Param("x", "u64"),), threads=32)
    x, number, sides = k.ld_param("x"), k.mov(0), [k.mov(5) for _ in range(4)]
    with k.loop(uniform=True) as loop:
        changing = k.setp("lt", "u32", number, 3)
        for place, side in enumerate(sides):
            both = k.and_pred(changing, k.setp("lt", "u32", side, 7))
            k.store_global(Address(x, 4 * place), k.selp(1, 0, both))
        k.add(number, 1, into=number)
        if change is not None:
            change(k, sides)
        loop.repeat_if(k.setp("lt", "u32", number, 8))
    return k.finish()


def test_only_masks_of_all_steps_are_kept() -> None:
    """A side that the first step ends with, the same in all others, or that a branch writes, is none of all steps."""

    def in_a_branch(k: KernelBuilder, sides: list[Reg]) -> None:
        with k.if_(k.setp("eq", "u32", sides[0], 9)):
            for side in sides:
                k.add(side, 1, into=side)

    def at_the_end(k: KernelBuilder, sides: list[Reg]) -> None:
        for side in sides:
            k.mov(9, into=side)

    for kernel, kept in ((masked(), True), (masked(at_the_end), False), (masked(in_a_branch), False)):
        (loop,) = (node for node in kernel.body.walk() if isinstance(node, While))
        writes = writes_of(kernel)
        assert bool(keep_masks(loop, writes, Fresh(writes))) == kept


def test_the_first_last_products_multiply_zeros_with_legal_codes() -> None:
    made = compile_problem_tiles(Problem("linear"), RegisterTiles("sm_80", 64, 64, 64, 4))
    nodes = [node for node in made.kernel.body.walk() if isinstance(node, Inst)]
    starts = [node.args[1] for node in nodes if node.op.mnemonic == "mov.b32" and isinstance(node.args[1], Imm)]
    assert Imm(0x44444444) in starts and Imm(0) in starts


def test_short_steps_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    made = compile_problem_tiles(Problem("linear"), RegisterTiles("sm_80", 128, 128, 32, 4))
    assert made.ptx.count("mma.sp::") == 32
