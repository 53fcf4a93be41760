"""Dead values, in branches and loops that are dead themselves too."""

from __future__ import annotations

from xdsl.dialects import scf

from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.context import parse_ir
from louver.ir.tile import FuncOp

KERNEL = """tt.func public @k(%y: !tt.ptr<i32>, %n: i32, %set: i1) {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %total, %dead = scf.for %i = %zero to %n step %one iter_args(%sum = %zero, %other = %one) -> (i32, i32) : i32 {
    %next = arith.addi %sum, %i : i32
    %unread = scf.if %set -> (i32) {
      %inner, %more = scf.for %j = %zero to %n step %one iter_args(%a = %zero, %b = %one) -> (i32, i32) : i32 {
        %c = arith.addi %a, %j : i32
        scf.yield %c, %b : i32, i32
      }
      scf.yield %inner : i32
    } else {
      scf.yield %other : i32
    }
    %following = arith.muli %other, %n : i32
    scf.yield %next, %following : i32, i32
  }
  tt.store %y, %total : !tt.ptr<i32>
  tt.return
}"""


def test_a_dead_branch_is_removed_with_its_loops() -> None:
    module = parse_ir(KERNEL)
    (function,) = (op for op in module.body.ops if isinstance(op, FuncOp))
    remove_dead(function)
    module.verify()
    (loop,) = (op for op in function.body.walk() if isinstance(op, scf.ForOp | scf.IfOp))
    assert isinstance(loop, scf.ForOp) and len(loop.iter_args) == 1
    assert [op.name for op in loop.body.block.ops] == ["arith.addi", "scf.yield"]
