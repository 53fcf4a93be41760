"""A value that a loop makes one or more steps ahead is made in the step that uses it; others stay."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import scf

from louver.compile.canonical.drop_carried import drop_carried
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel
from louver.ir.tile import FuncOp
from support.golden import Golden
from support.pass_golden import check_pass

POINTERS = "tensor<4x!tt.ptr<f32>>"
OFFSETS = "tensor<4xi32>"


def kernel(
    ahead: str, *carried: tuple[str, str, str], first: str = "%c0", step: str = "%c1", used: str = "", more: str = ""
) -> str:
    """Adds what each step loads at the first carried value.

    ahead: what a step computes for the next ones. carried: the first value, the type and what is passed on of %p0, %p1, and so on.
    used: a value of the loop that is stored. more: what is computed before the loop.
    """
    names = [f"%p{index}" for index in range(len(carried))]
    given = "".join(f", {name} = {begin}" for name, (begin, _, _) in zip(names, carried, strict=True))
    types = "".join(f", {type_}" for _, type_, _ in carried)
    passed = "".join(f", {following}" for _, _, following in carried)
    if carried[0][1] == POINTERS:
        at = f"%one = tt.load %p0 : {POINTERS}"
    else:
        at = f"%at = tt.addptr %all, %p0 : {POINTERS}, {OFFSETS}\n      %one = tt.load %at : {POINTERS}"
    return f"""builtin.module {{
  tt.func public @k(%v: !tt.ptr<f32>, %y: !tt.ptr<f32>, %n: i32, %stride: i32, %end: i32) attributes {{noinline = false}} {{
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %c3 = arith.constant 3 : i32
    %zero = arith.constant dense<0.0> : tensor<4xf32>
    %four = arith.constant dense<4> : {OFFSETS}
    %pid = tt.get_program_id x : i32
    %lanes = tt.make_range {{end = 4 : i32, start = 0 : i32}} : {OFFSETS}
    %all = tt.splat %v : !tt.ptr<f32> -> {POINTERS}
    %base = tt.addptr %all, %lanes : {POINTERS}, {OFFSETS}
    %by1 = tt.splat %stride : i32 -> {OFFSETS}
    %base1 = tt.addptr %base, %by1 : {POINTERS}, {OFFSETS}
    %by2 = arith.addi %by1, %by1 : {OFFSETS}
    %base2 = tt.addptr %base, %by2 : {POINTERS}, {OFFSETS}
    %outs = tt.splat %y : !tt.ptr<f32> -> {POINTERS}
    %out = tt.addptr %outs, %lanes : {POINTERS}, {OFFSETS}
    {more}
    %found:{len(carried) + 1} = scf.for %k = {first} to %end step {step} iter_args(%last = %zero{given}) -> (tensor<4xf32>{types}) : i32 {{
      {at}
      %next = arith.addf %last, %one : tensor<4xf32>
      {ahead}
      scf.yield %next{passed} : tensor<4xf32>{types}
    }}
    {used}
    tt.store %out, %found#0 : {POINTERS}
    tt.return
  }}
}}
"""


def pointers(number: str = "%k", by: str = "%c1", name: str = "%new") -> str:
    """The pointers of a later step."""
    return f"""%{name[1:]}_k = arith.addi {number}, {by} : i32
      {name}_at = arith.muli %{name[1:]}_k, %stride : i32
      {name}_all = tt.splat {name}_at : i32 -> {OFFSETS}
      {name} = tt.addptr %base, {name}_all : {POINTERS}, {OFFSETS}"""


def offsets(by: str = "%c1") -> str:
    """The offsets of a later step."""
    return f"""%k1 = arith.addi %k, {by} : i32
      %at1 = arith.muli %k1, %stride : i32
      %at4 = tt.splat %at1 : i32 -> {OFFSETS}
      %new = arith.addi %at4, %lanes : {OFFSETS}"""


FROM_PID = f"""%pid_at = arith.muli %pid, %stride : i32
    %pid_all = tt.splat %pid_at : i32 -> {OFFSETS}
    %base_pid = tt.addptr %base, %pid_all : {POINTERS}, {OFFSETS}"""

WIDE = f"""%k1 = arith.addi %k, %c1 : i32
      %wide = arith.extsi %k1 : i32 to i64
      %wide_stride = arith.extsi %stride : i32 to i64
      %at = arith.muli %wide, %wide_stride : i64
      %at4 = tt.splat %at : i64 -> tensor<4xi64>
      %new = tt.addptr %base, %at4 : {POINTERS}, tensor<4xi64>"""

HALVES = f"""%k1 = arith.addi %k, %c2 : i32
      %half = arith.divsi %k1, %c2 : i32
      %at = arith.muli %half, %stride : i32
      %at4 = tt.splat %at : i32 -> {OFFSETS}
      %new = tt.addptr %base, %at4 : {POINTERS}, {OFFSETS}"""

FIRST_HALF = f"""%half0 = arith.divsi %c1, %c2 : i32
    %at0 = arith.muli %half0, %stride : i32
    %at0_4 = tt.splat %at0 : i32 -> {OFFSETS}
    %base_half = tt.addptr %base, %at0_4 : {POINTERS}, {OFFSETS}"""

GROWS = f"%new = tt.addptr %p1, %by1 : {POINTERS}, {OFFSETS}"
COUNTED = f"""%c_next = arith.addi %p1, %stride : i32
      %c_all = tt.splat %c_next : i32 -> {OFFSETS}
      %new = tt.addptr %base, %c_all : {POINTERS}, {OFFSETS}"""

ONE_AHEAD = kernel(pointers(), ("%base", POINTERS, "%new"))
TWO_AHEAD = kernel(pointers(by="%c2"), ("%base", POINTERS, "%p1"), ("%base1", POINTERS, "%new"))

DROPPED = {
    "one step ahead": ONE_AHEAD,
    "two steps ahead": TWO_AHEAD,
    "three steps ahead": kernel(
        pointers(by="%c3"),
        ("%base", POINTERS, "%p1"),
        ("%base1", POINTERS, "%p2"),
        ("%base2", POINTERS, "%new"),
    ),
    "offsets": kernel(offsets(), ("%lanes", OFFSETS, "%new")),
    "steps of three": kernel(pointers(by="%c3"), ("%base", POINTERS, "%new"), step="%c3"),
    "steps of a number": kernel(pointers(by="%n"), ("%base", POINTERS, "%new"), step="%n"),
    "a first step of a number": kernel(pointers(), ("%base_pid", POINTERS, "%new"), first="%pid", more=FROM_PID),
    "64 bits": kernel(WIDE, ("%base", POINTERS, "%new")),
    "a quotient": kernel(HALVES, ("%base_half", POINTERS, "%new"), more=FIRST_HALF),
    "a counter": kernel(COUNTED, ("%base", POINTERS, "%new"), ("%c0", "i32", "%c_next")),
}

STAY = {
    "another first value": kernel(pointers(), ("%base1", POINTERS, "%new")),
    "another first step": kernel(pointers(), ("%base", POINTERS, "%new"), first="%pid"),
    "another number of steps": kernel(pointers(by="%c2"), ("%base", POINTERS, "%new")),
    "two steps ahead from another value": kernel(
        pointers(by="%c2"), ("%base1", POINTERS, "%p1"), ("%base2", POINTERS, "%new")
    ),
    "a divisor that may be 0": kernel(
        HALVES.replace("arith.divsi %k1, %c2", "arith.divsi %k1, %n"), ("%base_half", POINTERS, "%new"), more=FIRST_HALF
    ),
    "a loaded number": kernel(
        f"%at = tt.load %numbers : !tt.ptr<i32>\n      %at4 = tt.splat %at : i32 -> {OFFSETS}\n"
        f"      %new = tt.addptr %base, %at4 : {POINTERS}, {OFFSETS}",
        ("%base", POINTERS, "%new"),
    ).replace("%n: i32", "%numbers: !tt.ptr<i32>, %n: i32"),
    "used behind the loop": kernel(
        pointers(),
        ("%base", POINTERS, "%new"),
        used=f"%behind = tt.load %found#1 : {POINTERS}\n    tt.store %out, %behind : {POINTERS}",
    ),
}


def carried_of(text: str) -> int:
    """The values that a kernel's loop carries behind the pass."""
    module = parse_ir(text)
    drop_carried(module)
    module.verify()
    (loop,) = [op for op in module.walk() if isinstance(op, scf.ForOp)]
    return len(loop.iter_args)


def test_before_and_after(golden: Golden) -> None:
    module = parse_ir(TWO_AHEAD)
    remove_dead(next(op for op in module.body.ops if isinstance(op, FuncOp)))
    check_pass(golden, "drop-carried", module)


@pytest.mark.parametrize("name", DROPPED)
def test_values_of_a_later_step_are_not_carried(name: str) -> None:
    assert carried_of(DROPPED[name]) == (2 if name == "a counter" else 1)


def test_pointers_that_follow_others_are_those_less_a_step() -> None:
    assert carried_of(kernel(GROWS, ("%base", POINTERS, "%p1"), ("%base1", POINTERS, "%new"))) == 2


@pytest.mark.parametrize("name", STAY)
def test_other_values_are_carried(name: str) -> None:
    module = parse_ir(STAY[name])
    before = str(module)
    drop_carried(module)
    assert str(module) == before


@pytest.mark.parametrize("end", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("name", [*DROPPED, "followed"])
def test_loops_load_what_they_loaded(rng: np.random.Generator, name: str, end: int) -> None:
    text = DROPPED.get(name) or kernel(GROWS, ("%base", POINTERS, "%p1"), ("%base1", POINTERS, "%new"))
    before, after = parse_ir(text), parse_ir(text)
    drop_carried(after)
    assert str(before) != str(after)
    v = rng.integers(1, 1000, 128).astype(np.float32)
    found = [np.full(4, np.nan, np.float32) for _ in range(2)]
    for module, y in zip((before, after), found, strict=True):
        run_kernel(module, (1,), {"v": v, "y": y, "n": 2, "stride": 5, "end": end})
    np.testing.assert_array_equal(found[0], found[1])
    assert end == 0 or found[0].all()
