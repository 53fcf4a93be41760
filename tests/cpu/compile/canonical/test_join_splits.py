"""Kernels that share K among programs: what becomes of them, pass by pass, and what stays with register tiles, with its line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from louver.compile.canonical.canonicalize import CANONICAL, canonicalize
from louver.compile.compiled import CompiledTiles
from louver.compile.decompose.expand_blocks import expand_blocks
from louver.compile.passes import State, names, run_passes
from louver.compile.pipeline import Choice, Readings, compile_kernel
from louver.compile.plan.nest import adds_up, read_nest
from louver.compile.plan.schedule import Schedule
from louver.frontend.ttir import read_ttir
from louver.ir.conditions import Split
from louver.ir.interpret import run_kernel
from louver.ir.product import Accumulator, Apply, Cast, Constant, Number, ProductNest, Store
from louver.ir.refusal import UnsupportedKernelError
from support.compiled import read_copy
from support.golden import Golden
from support.pass_golden import before, check_pass
from support.sizes import size, sizes
from support.triton.cases import kept
from support.triton.splits import SPLITS, split_call, split_kernel
from support.triton.texts import changed_text


def nest(name: str, *changes: tuple[str, str]) -> ProductNest:
    return read_nest(canonicalize(read_ttir(changed_text(name, *changes))))


EXPECTED = {
    "split_rounds": Split(1, size(3)),
    "split_whole_rounds": Split(1, size(2)),
    "split_one_round": Split(1, size(1)),
    "split_counted_steps": Split(2, size("parts")),
    "split_steps": Split(2, size("programs z")),
    "split_chunks": Split(2, None, size("chunk"), 64),
    "split_ended_chunks": Split(2, None, size("chunk"), 1),
    "split_shares": Split(2, size(3)),
    "added_tiles": None,
}


@pytest.mark.parametrize("name", SPLITS)
def test_how_programs_share_k(name: str) -> None:
    found = nest(name)
    assert found.conditions.split == EXPECTED[name]
    assert (str(found.k), found.tile_k) == ("K", 64) and {found.m, found.n} == {*sizes("M", "N")}
    assert found.store.add == (name != "split_one_round")


@pytest.mark.parametrize("name", ["split_rounds", "split_shares"])
def test_canonical_kernels(name: str, golden: Golden) -> None:
    golden.check(f"canonical/{name}.mlir", str(canonicalize(read_copy(kept(name)))))


@pytest.mark.parametrize("name", ["split_rounds", "split_ended_chunks", "split_shares"])
def test_joined_programs_sum_all_of_k(rng: np.random.Generator, name: str) -> None:
    """Interpreted after the pass, with one program for each tile."""
    call = split_call(rng, name, 136, 72, 400)
    module = read_copy(kept(name))
    run_passes(CANONICAL[: names(CANONICAL).index("join-splits") + 1], State(module))
    grid = (call.grid[0], 1) if len(call.grid) == 2 else (*call.grid[:2], 1)
    case = SPLITS[name]
    run_kernel(module, grid, {each: value for each, value in call.arguments.items() if each in case.signature})
    call.check(call.out)


REFUSED: list[tuple[str, list[tuple[str, str]], str]] = [
    ("split_rounds", [(r"tt.atomic_rmw fadd,", "tt.atomic_rmw max,")], "a kernel must store once; there are 0 stores"),
    (
        "split_counted_steps",
        [(r"to %K step", "to %M step")],
        "the loop over K must run from 0 to K in steps of 64",
    ),
    (
        "split_shares",
        [(r"tt.descriptor_reduce add, (%[^,]*, %[^,]*\]), ", r"tt.descriptor_store \1, ")],
        r"programs that share K must add their sums to memory \(tl.atomic_add\), not store them",
    ),
    (
        "split_shares",
        [(r"tt.descriptor_reduce add", "tt.descriptor_reduce min")],
        "a product must be stored or added to memory, not combined with it by min",
    ),
    (
        "split_chunks",
        [(r"arith.mulf %total(\w*), ", r"arith.maximumf %total\1, ")],
        "programs that share K may only scale and convert their sums before they add them",
    ),
]


@pytest.mark.parametrize(("name", "changes", "message"), [pytest.param(*each, id=each[2][:50]) for each in REFUSED])
def test_what_is_no_shared_sum_is_refused(name: str, changes: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(UnsupportedKernelError, match=message):
        nest(name, *changes)


def test_what_is_refused_runs_by_register_tiles() -> None:
    """A bound of the sum is none of its parts: each program computes its own."""
    text = changed_text("split_chunks", (r"arith.mulf %total(\w*), ", r"arith.maximumf %total\1, "))
    made = compile_kernel(
        Readings(lambda passed: read_ttir(text)), Choice(lambda nest: Schedule.of(tile_m=128, tile_n=64, tile_k=64))
    )
    assert isinstance(made.made, CompiledTiles) and "programs that share K" in str(made.refusal)


def test_what_adds_up() -> None:
    total, factor = Accumulator(), Number("alpha")
    assert adds_up(Cast(Apply.of("multiply", Apply.of("negate", total), factor), "f16"))
    assert adds_up(Apply.of("subtract", total, Apply.of("multiply", Constant(2.0, "f32"), total)))
    for each in (
        Apply.of("add", total, factor),
        Apply.of("multiply", total, total),
        Apply.of("maximum", total, Constant(0.0, "f32")),
        Apply.of("divide", factor, total),
        Cast(total, "s32"),
        factor,
    ):
        assert not adds_up(each), each


@pytest.mark.parametrize(
    ("name", "grid", "changes", "message"),
    [
        ("split_rounds", (4, 2), {}, "shares K among 3 programs along y of its grid, whose sums it adds, got 2"),
        ("split_counted_steps", (2, 2, 2), {}, "shares K among 3 programs along z of its grid, whose sums it adds, got 2"),
        ("split_counted_steps", (2, 2, 3), {"parts": 4}, "among 4 programs along z .* got 3: some of K would be left out"),
        ("split_chunks", (2, 2, 2), {}, "got 2 programs and chunks of 192 for 400: some of K would be left out"),
        ("split_chunks", (2, 2, 5), {"chunk": 100}, "chunks of chunk, a multiple of 64, got 100: a step would go on"),
        ("split_ended_chunks", (2, 2, 4), {"chunk": 0}, "a multiple of 1, got 0"),
        ("split_rounds", (3, 3), {}, "a program for each of its tiles of 128×64, 4 .* and 3 for each to share K, got a grid"),
    ],
    ids=str,
)  # fmt: skip
def test_a_launch_takes_each_step_of_k_once(
    rng: np.random.Generator, name: str, grid: tuple[int, ...], changes: dict[str, Any], message: str
) -> None:
    call = split_call(rng, name, 136, 72, 400)
    with pytest.raises(ValueError, match=message):
        split_kernel(name).emulate[grid](**call.arguments | changes)


def test_chunks_need_not_be_whole_steps_where_their_end_masks_them(rng: np.random.Generator) -> None:
    call = split_call(rng, "split_ended_chunks", 136, 72, 400)
    split_kernel("split_ended_chunks").emulate[(2, 2, 4)](**call.arguments | {"chunk": 100})
    call.check(call.out)


def test_what_may_be_added_and_how_k_may_be_shared() -> None:
    with pytest.raises(ValueError, match="sums in memory are of f32, f16, bf16, s32, got e4m3: convert"):
        Store("d", "e4m3", size("stride"), False, add=True)
    with pytest.raises(ValueError, match="among programs or into chunks, got None and None"):
        Split(0, None)


def test_what_descriptors_reduce_by() -> None:
    text = kept("split_shares")
    with pytest.raises(UnsupportedKernelError, match=r"a descriptor reduces by atomic_add, .* not by min, got"):
        expand_blocks(read_ttir(text.replace("tt.descriptor_reduce add", "tt.descriptor_reduce min")))
    with pytest.raises(UnsupportedKernelError, match="a descriptor reduces by one of add, min, .*, got less"):
        read_ttir(text.replace("tt.descriptor_reduce add", "tt.descriptor_reduce less"))


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "join-splits", before("join-splits", "split_counted_steps"))
