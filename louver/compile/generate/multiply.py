"""Generates the K loop of the consumers in schedule IR: metadata in registers, products, waits and releases.

Metadata goes to two sets of registers. It comes from global memory, 256 columns at a time, or from the ring, one step
at a time. A register is filled again only after the wait for the last product that reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, StringAttr, UnitAttr, i32
from xdsl.ir import Attribute, Block, Region, SSAValue

from louver.compile.generate.generation import SETS, Generation
from louver.compile.plan.layout import BLOCK_ROWS
from louver.compile.plan.schedule import Schedule
from louver.formats.lists import PICKERS
from louver.formats.pattern import Pattern
from louver.ir.building import building
from louver.ir.sched import ops, staged
from louver.ir.sched.gathered import ProxyFenceOp
from louver.isa.rule import RuleError
from louver.isa.wgmma import Wgmma


def constant(value: int) -> SSAValue:
    """An i32 constant."""
    return arith.ConstantOp(IntegerAttr(value, i32)).result


def loop(unroll: int, body: Block, ends: Literal["partial", "again"] | None = None) -> None:
    """Generate a loop over K steps with this body. ends: how the loop may end within the body."""
    body.args[0].name_hint = "step"
    properties: dict[str, Attribute] = {"unroll": ops.i32_attr(unroll)}
    if ends is not None:
        properties[ends] = UnitAttr()
    ops.LoopOp(properties=properties, regions=[Region(body)])


def begin(values: dict[str, SSAValue], first: SSAValue) -> None:
    """Generate the load of the first metadata set of a tile, from step `first` on, before the tile begins."""
    _load_metadata(values["metadata"], first, 0, 0)


Fill = Callable[[SSAValue], None]
"""Fills the stage of a step, if no other role does."""


def multiply(plan: Generation, values: dict[str, SSAValue], fill: Fill | None) -> None:
    """Generate all K steps of a tile: the main loop, the remaining steps, and the wait for the last products."""
    if plan.mma is None:
        _multiply_add(plan)
        return
    if plan.group:
        ops.ClearOp()
    _steps(plan, values, fill, plan.unroll, plan.group)
    # Any of the remaining steps may be the last one, so each is promoted separately.
    _steps(plan, values, fill, plan.unroll - 1, min(plan.group, 1), partial=True)
    if plan.schedule.ring.in_flight and not plan.group:
        _retire(0, 1)


def require_multiply_add(schedule: Schedule) -> None:
    """Raises ValueError unless CUDA cores support the schedule."""
    if schedule.ring.in_flight:
        raise RuleError(
            f"a step on CUDA cores ends before the next begins, got in_flight {schedule.ring.in_flight}: use 0"
        )
    if schedule.store.way != "direct":
        raise RuleError(f"sums of CUDA cores are stored from registers, got store {schedule.store.way!r}: use 'direct'")


def _multiply_add(plan: Generation) -> None:
    """Generate steps on CUDA cores. The products of a step end with the step."""
    ops.ClearOp()
    body = Block(arg_types=[i32])
    with building(body):
        ops.WaitOp(properties={"barriers": StringAttr("full")})
        ops.FmaOp(properties={"a": StringAttr("a"), "b": StringAttr("b"), **_picks(plan)})
        _release(0)
        ops.AdvanceOp()
    loop(1, body)


def _picks(plan: Generation) -> dict[str, Attribute]:
    if not plan.staged:
        return {}
    length = Pattern.parse(plan.nest.a.pattern).length
    together: dict[str, Attribute] = {} if length % (PICKERS * plan.schedule.blocks) else {"together": UnitAttr()}
    return {"picks": StringAttr("metadata"), **together}


def _steps(
    plan: Generation, values: dict[str, SSAValue], fill: Fill | None, count: int, group: int, *, partial: bool = False
) -> None:
    """Generate a loop with `count` steps in its body. partial: the body runs once, and ends after the last step of K."""
    body = Block(arg_types=[i32])
    with building(body):
        for index in range(count):
            # No step after a partial loop reads metadata.
            refill = plan.loaded and (not partial or index + plan.steps_per_load < count)
            _step(plan, values, body.args[0], index, fill, group, refill=refill)
    loop(count, body, "partial" if partial else None)


def _step(
    plan: Generation,
    values: dict[str, SSAValue],
    step: SSAValue,
    index: int,
    fill: Fill | None,
    group: int,
    *,
    refill: bool,
) -> None:
    """Generate step number `index` of a body that begins at `step`. A multiple of `unroll` steps comes before the body.

    group: steps whose sums are promoted together; 0 for no promotion.
    refill: whether later steps read more metadata.
    """
    register_set, part = divmod(index, plan.steps_per_load) if plan.loaded else (index % SETS, 0)
    begins, ends = (index % group == 0, index % group == group - 1) if group else (False, False)
    in_flight = plan.schedule.ring.in_flight
    if fill is not None:
        fill(arith.AddiOp(step, constant(index)).result if index else step)
    if plan.staged:
        ops.WaitOp(properties={"barriers": StringAttr(plan.metadata_barriers)})
        staged.ReadMetadataOp(properties={"ring": StringAttr("metadata"), "set": ops.i32_attr(register_set)})
    if not plan.staged or plan.metadata_barriers != "full":
        ops.WaitOp(properties={"barriers": StringAttr("full")})
    if plan.gathers:
        ProxyFenceOp()
    # Other code accesses accumulators only between tiles, so the first step of a body has a fence. Later products have
    # the
    # same shape and need none. A step in which one thread begins copies has a fence too. Without it, ptxas would add a
    # fence after that branch, and serialize the products.
    if index == 0 or begins or fill is not None:
        ops.MmaFenceOp()
    _products(plan, register_set, part * plan.words, fresh=begins)
    # No product is in flight when a group of promoted sums begins.
    if not (begins and in_flight):
        _retire(in_flight, in_flight)
    if refill and part == 0:
        _load_metadata(values["metadata"], step, 1 - register_set, index + plan.steps_per_load)
    if ends:
        if in_flight:
            _retire(0, 0)
        ops.PromoteOp()
    ops.AdvanceOp()


def _retire(pending: int, lag: int) -> None:
    """Wait for the products of all but the last `pending` steps, and release the stage of the latest step that has
    ended.
    """
    ops.MmaWaitOp(properties={"pending": ops.i32_attr(pending)})
    _release(lag)


def _release(lag: int) -> None:
    ops.ReleaseOp(properties={"barriers": StringAttr("empty"), "lag": ops.i32_attr(lag)})


def _products(plan: Generation, register_set: int, first_word: int, *, fresh: bool) -> None:
    """Generate the products of each block of 64 rows. The rows of a block follow each other in a box of values."""
    block_bytes = BLOCK_ROWS * plan.a.box[0] * plan.a.element_bytes
    mma = plan.mma
    assert mma is not None
    for block in range(plan.schedule.blocks):
        for index in range(plan.schedule.tile.k // mma.k):
            ops.MmaOp(
                properties={
                    "a": StringAttr("a"),
                    "a_offset": ops.i32_attr(block * block_bytes + plan.a.offset(index * mma.k_stored)),
                    "b": StringAttr("b"),
                    "b_offset": ops.i32_attr(plan.b.offset(index * mma.k)),
                    "block": ops.i32_attr(block),
                    **(_metadata(plan, mma, register_set, first_word, index) if plan.lifted else {}),
                    **({"fresh": UnitAttr()} if fresh and index == 0 else {}),
                }
            )
    ops.MmaCommitOp()


def _metadata(plan: Generation, mma: Wgmma, register_set: int, first_word: int, index: int) -> dict[str, Attribute]:
    """The metadata attributes of product `index` of a step."""
    word, selector = divmod(index, plan.word_columns // mma.k)
    numbers = {"set": register_set, "word": first_word + word, "selector": selector}
    return {name: ops.i32_attr(number) for name, number in numbers.items()}


def _load_metadata(metadata: SSAValue, step: SSAValue, register_set: int, ahead: int) -> None:
    properties: dict[str, Attribute] = {"set": ops.i32_attr(register_set), "ahead": ops.i32_attr(ahead)}
    ops.LoadMetadataOp(operands=[metadata, step], properties=properties)
