"""What loops and branches pass on."""

from __future__ import annotations

from xdsl.dialects import scf

from louver.analysis.passages import came_from, passages, passed_to
from louver.ir.context import parse_ir
from louver.ir.tile import FuncOp

KERNEL = """
tt.func public @kernel(%first: i32, %other: i32, %holds: i1) {
  %a, %b = scf.for %number = %first to %other step %first iter_args(%x = %first, %y = %other) -> (i32, i32) : i32 {
    scf.yield %y, %x : i32, i32
  }
  %c = scf.if %holds -> (i32) {
    scf.yield %a : i32
  } else {
    scf.yield %b : i32
  }
  %d = scf.while (%z = %c) : (i32) -> i32 {
    scf.condition(%holds) %z : i32
  } do {
  ^bb0(%inner: i32):
    scf.yield %inner : i32
  }
  tt.return
}
"""


def test_loops_and_branches_pass_values_on() -> None:
    (function,) = parse_ir(KERNEL).body.ops
    assert isinstance(function, FuncOp)
    loop, branch, repeated, last = function.body.block.ops
    assert isinstance(loop, scf.ForOp)
    assert isinstance(branch, scf.IfOp)
    assert isinstance(repeated, scf.WhileOp)
    first, other, holds = function.body.block.args
    number, x, y = loop.body.block.args
    a, b = loop.results
    (z,), (inner,) = repeated.before_region.block.args, repeated.after_region.block.args
    assert [(each.sources, each.names) for each in passages(loop)] == [((first, y), (x, a)), ((other, x), (y, b))]
    assert came_from(a) == came_from(x) == (first, y)
    assert came_from(branch.results[0]) == (a, b)
    assert came_from(z) == (branch.results[0], inner)
    assert came_from(inner) == came_from(repeated.results[0]) == (z,)
    assert not came_from(number)
    assert not came_from(holds)
    assert passages(last) == []
    end = loop.body.block.last_op
    assert end is not None
    assert passed_to(end, 0) == (x, a)
    assert passed_to(loop, 4) == (y, b)
    assert not passed_to(loop, 0)
    shown, next_ = repeated.before_region.block.last_op, repeated.after_region.block.last_op
    assert shown is not None and next_ is not None
    assert passed_to(repeated, 0) == passed_to(next_, 0) == (z,)
    assert passed_to(shown, 1) == (inner, *repeated.results)
    assert not passed_to(shown, 0)
