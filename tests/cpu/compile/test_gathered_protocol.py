"""Broken gathers and turns of schedule IR, which the protocol check refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.ir.sched import ops
from louver.ir.sched.gathered import CopyBlocksOp, GatherOp, LoadRowsOp, OpenRowsOp, PointRowsOp, ProxyFenceOp, TurnOp
from support.protocol import add, drop, found, refuses, set_number

INDEXED = Problem("matmul", pattern="2:8@64", b_layout="n_major"), Schedule.of(tile_n=64, stages=4)
LIFTED = Problem("matmul", pattern="2:8@V64", b_layout="n_major"), Schedule.of(tile_n=64, stages=4)
TURNING = (
    Problem("matmul", "e4m3", "e4m3", "f16", pattern="2:8@128", b_layout="n_major"),
    Schedule.of(tile_n=128, tile_k=128, stages=4),
)

GATHERED: dict[str, tuple[Callable[[ops.KernelOp], None], str]] = {
    "no proxy fence": (
        drop(ProxyFenceOp),
        "only after a proxy fence behind the wait for it, got stage 0 of @b with none",
    ),
    "no wait": (drop(ops.WaitOp), "reads a stage only after its bytes have arrived, got stage 0"),
    "no acquire": (drop(ops.AcquireOp), "only when it knows that the one before has ended|has been waited for"),
    "no gather": (drop(GatherOp), "every wait ends, .* stage 0 of @full with 1 of 129 arrivals"),
    "no pointers": (drop(PointRowsOp), "takes the pointers of its own step, got none"),
    "pointers of one step alone": (drop(PointRowsOp, 1), "pointers of its own step, got those of tile 0, step 0"),
    "pointers too far ahead": (
        set_number(PointRowsOp, "ahead", 1),
        "entries of their own step, got those of tile 0, step 0",
    ),
    "no entries": (drop(LoadRowsOp, 2), "made of the entries of their own step, got none"),
    "entries of the first steps alone": (
        drop(LoadRowsOp),
        "the entries of their own step, got those of tile 0, step 0",
    ),
    "entries too far ahead": (set_number(LoadRowsOp, "ahead", 3), "their own step, got those of tile 0, step 3"),
    "entries in another's place": (set_number(LoadRowsOp, "set", 1), "their own step, got those of tile 0, step 2"),
    "no lists": (drop(OpenRowsOp), "the lists and columns of their own tile, got none"),
    "too few arrivals": (add("full", "arrivals", -1), "no more, got 128 of 128|gets the arrivals"),
    "no next tile": (drop(ops.NextTileOp), "of their own tile, got those of tile 0"),
}


def turn_last_first(kernel: ops.KernelOp) -> None:
    """The part with which threads arrive before the other one."""
    first, last = (found(kernel, TurnOp, index) for index in range(2))
    last.detach()
    first.parent.insert_op_before(last, first)


TURNED: dict[str, tuple[Callable[[ops.KernelOp], None], str]] = {
    "no proxy fence": (
        drop(ProxyFenceOp),
        "only after a proxy fence behind the wait for it, got stage 0 of @b with none",
    ),
    "no acquire": (drop(ops.AcquireOp), "only when it knows that the one before has ended|has been waited for"),
    "no last turn": (drop(TurnOp, 1), "every wait ends, .* stage 0 of @full with 1 of 129 arrivals"),
    "no first turn": (drop(TurnOp), "copies fill the whole stage that products read, got 8192 of 16384 bytes of stage"),
    "the last part first": (turn_last_first, "when they have stored all of a stage, got part 0 behind that"),
    "blocks of one step alone": (
        drop(CopyBlocksOp),
        "a turn takes the blocks of its own step, got those of tile 0, step 0",
    ),
    "no first blocks": (drop(CopyBlocksOp, 2), "a turn takes the blocks of its own step, got none"),
    "blocks too far ahead": (set_number(CopyBlocksOp, "ahead", 2), "by the pointers of their own step, got those of"),
    "pointers of one step alone": (drop(PointRowsOp), "by the pointers of their own step, got those of tile 0, step 0"),
    "no first pointers": (drop(PointRowsOp, 1), "by the pointers of their own step, got none"),
    "entries of two steps alone": (drop(LoadRowsOp), "the entries of their own step, got those of tile 0, step 1"),
    "entries too far ahead": (set_number(LoadRowsOp, "ahead", 3), "the entries of their own step, got those of tile"),
    "no first entries": (drop(LoadRowsOp, 1), "made of the entries of their own step, got none"),
    "too few arrivals": (add("full", "arrivals", -1), "no more, got 128 of 128|gets the arrivals"),
    "no lists": (drop(OpenRowsOp), "the lists and columns of their own tile, got none"),
    "no next tile": (drop(ops.NextTileOp), "of their own tile, got those of tile 0"),
}


CASES = {
    **{f"gathered: {name}": (INDEXED, *each) for name, each in GATHERED.items()},
    **{f"gathered and lifted: {name}": (LIFTED, *each) for name, each in GATHERED.items()},
    **{f"turned: {name}": (TURNING, *each) for name, each in TURNED.items()},
}


@pytest.mark.parametrize("name", CASES)
def test_a_broken_gather_is_refused(name: str) -> None:
    made, change, message = CASES[name]
    refuses(*made, change, message)
