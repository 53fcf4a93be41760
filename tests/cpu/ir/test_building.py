"""`building`: operations go to the place of the thread that makes them."""

from __future__ import annotations

import threading

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, i32
from xdsl.ir import Block

from louver.ir.building import building


def test_threads_that_build_at_once_lose_no_operation() -> None:
    """The first one ends while the other one would build."""
    one, other = Block(), Block()
    entered, left = threading.Event(), threading.Event()

    def build() -> None:
        with building(other):
            entered.set()
            left.wait()
            arith.ConstantOp(IntegerAttr(2, i32))

    thread = threading.Thread(target=build)
    with building(one):
        thread.start()
        entered.wait(0.2)
        arith.ConstantOp(IntegerAttr(1, i32))
    left.set()
    thread.join()
    assert [len(list(block.ops)) for block in (one, other)] == [1, 1]


def test_inner_places() -> None:
    outer, inner = Block(), Block()
    with building(outer):
        with building(inner):
            arith.ConstantOp(IntegerAttr(2, i32))
        arith.ConstantOp(IntegerAttr(1, i32))
    arith.ConstantOp(IntegerAttr(3, i32))
    assert [len(list(block.ops)) for block in (outer, inner)] == [1, 1]
