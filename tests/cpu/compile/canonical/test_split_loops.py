"""A loop whose number chooses a sparse tensor becomes loops one behind the other; others stay."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import scf

from louver.compile.canonical.split_loops import split_loops
from louver.ir.comparisons import SelectOp
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel
from support.golden import Golden
from support.pass_golden import check_pass


def kernel(
    compare: str = "slt, %i, %n", *, first: str = "%c0", end: str = "%end", step: str = "%c1", sparse: str = "vw"
) -> str:
    """Adds what each step loads of v or w, at i or i - n."""
    mark = {name: " {louver.sparse.NV24 = 1 : i32}" if name in sparse else "" for name in "vw"}
    return f"""builtin.module {{
  tt.func public @k(%v: !tt.ptr<f32>{mark["v"]}, %w: !tt.ptr<f32>{mark["w"]}, %y: !tt.ptr<f32>, %n: i32, %end: i32) attributes {{noinline = false}} {{
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c3 = arith.constant 3 : i32
    %zero = arith.constant 0.0 : f32
    %pid = tt.get_program_id x : i32
    %sum = scf.for %i = {first} to {end} step {step} iter_args(%last = %zero) -> (f32) : i32 {{
      %below = arith.cmpi {compare} : i32
      %from = arith.select %below, %v, %w : !tt.ptr<f32>
      %back = arith.subi %i, %n : i32
      %own = arith.select %below, %i, %back : i32
      %at = tt.addptr %from, %own : !tt.ptr<f32>, i32
      %one = tt.load %at : !tt.ptr<f32>
      %next = arith.addf %last, %one : f32
      scf.yield %next : f32
    }}
    tt.store %y, %sum : !tt.ptr<f32>
    tt.return
  }}
}}
"""


def loops_of(text: str) -> tuple[list[scf.ForOp], int]:
    """The loops that a kernel's loop becomes, and the choices that are left."""
    module = parse_ir(text)
    split_loops(module)
    module.verify()
    ops = list(module.walk())
    return [op for op in ops if isinstance(op, scf.ForOp)], sum(isinstance(op, SelectOp) for op in ops)


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "split-loops", parse_ir(kernel()))


@pytest.mark.parametrize("compare", ["slt, %i, %n", "sge, %i, %n", "sgt, %n, %i", "sle, %n, %i"])
@pytest.mark.parametrize("step", ["%c1", "%c3"])
@pytest.mark.parametrize("first", ["%c0", "%pid"])
def test_loops_that_are_split(compare: str, step: str, first: str) -> None:
    loops, choices = loops_of(kernel(compare, step=step, first=first))
    assert len(loops) == 2 and not choices and loops[1].iter_args == (loops[0].results[0],)


@pytest.mark.parametrize("compare", ["eq, %i, %n", "slt, %own, %n", "slt, %i, %i", "sle, %i, %n", "slt, %pid, %n"])
def test_loops_that_stay(compare: str) -> None:
    text = kernel(compare.replace("%own", "%c1"))
    assert [len(found) if isinstance(found, list) else found for found in loops_of(text)] == [1, 2]


@pytest.mark.parametrize("n", [-3, 0, 1, 4, 5, 7, 9, 20])
@pytest.mark.parametrize("step", ["%c1", "%c3"])
@pytest.mark.parametrize("first", ["%c0", "%pid"])
def test_loops_read_what_the_loop_read(rng: np.random.Generator, first: str, step: str, n: int) -> None:
    before, after = (parse_ir(kernel(first=first, step=step, sparse=sparse)) for sparse in ("", "vw"))
    split_loops(after)
    v, w = (rng.integers(1, 1000, 32).astype(np.float32) for _ in "vw")
    found = [np.zeros(1, np.float32) for _ in range(2)]
    for module, y in zip((before, after), found, strict=True):
        run_kernel(module, (2,), {"v": v, "w": w, "y": y, "n": n, "end": 9})
    assert found[0] == found[1] > 0


def test_dense_arrays_split_no_loop() -> None:
    assert len(loops_of(kernel(sparse=""))[0]) == 1


@pytest.mark.parametrize("known", [{"end": "%n"}, {"first": "%n"}])
def test_a_comparison_with_a_bound_of_the_loop_is_decided(known: dict[str, str]) -> None:
    loops, choices = loops_of(kernel(**known))
    assert len(loops) == 1 and not choices
