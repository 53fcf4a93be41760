"""Decides which loads may be copied to shared memory, by their fill values and the users of their tiles."""

from __future__ import annotations

from collections.abc import Container, Iterable

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr
from xdsl.ir import Block, Operation, SSAValue

from louver.analysis.effects import has_no_effect
from louver.analysis.integers import is_zero
from louver.analysis.passages import came_from
from louver.compile.decompose.expand_blocks import METADATA_PADDING
from louver.compile.plan.feeds.steps_ahead import Sources
from louver.ir.tile import (
    AddPtrOp,
    AtomicRMWOp,
    BroadcastOp,
    ExpandDimsOp,
    FuncOp,
    LoadOp,
    PointerCastOp,
    SplatOp,
    StoreOp,
)
from louver.ir.tile.types import splat_of
from louver.ir.walk import each_once


def only_user(value: SSAValue) -> Operation | None:
    """The only user of a value; None for none or several."""
    return next(iter(value.uses)).operation if value.has_one_use() else None


def addresses(load: LoadOp) -> list[SSAValue]:
    """The operands of a copy that replaces a load."""
    if load.box is not None:
        return [load.box, *load.place]
    return [each for each in (load.ptr, load.mask) if each is not None]


def may_be_copied(load: LoadOp) -> bool:
    """Whether a copy may replace a load. Masked elements are zeros or any legal codes.

    Hints to caches do not count, but `cv` does: such a load never takes what a cache holds.
    """
    if load.fresh:
        return False
    return load.box is not None or gives_zeros(load) or (is_padding(load.other) and array_of(load.ptr) is not None)


def is_padding(value: SSAValue | None) -> bool:
    """Whether all elements of a tile are the code for metadata outside of its tensor. The values there are zeros."""
    owner = None if value is None else value.owner
    if not isinstance(owner, arith.ConstantOp) or not isinstance(owner.value, DenseIntOrFPElementsAttr):
        return False
    return splat_of(owner.value) == METADATA_PADDING


def array_of(pointer: SSAValue) -> SSAValue | None:
    """The argument to which offsets are added to compute pointers, also in the steps of a loop; None if there is no such argument."""
    found, pending = set[SSAValue](), [pointer]
    for value in each_once(pending):
        match value.owner:
            case (
                AddPtrOp(ptr=inner)
                | SplatOp(src=inner)
                | BroadcastOp(src=inner)
                | ExpandDimsOp(src=inner)
                | PointerCastOp(src=inner)
            ):
                pending.append(inner)
            case _ if sources := came_from(value):
                pending += sources
            case Block() as block if isinstance(block.parent_op(), FuncOp):
                found.add(value)
            case _:
                return None
    return found.pop() if len(found) == 1 else None


def unchanged(loads: Iterable[LoadOp], loop: scf.ForOp, apart: Container[SSAValue]) -> list[LoadOp]:
    """The loads of memory that no store of a loop may change.

    apart: arrays that do not overlap any other array.
    """
    stored = [array_of(op.ptr) for op in loop.body.walk() if isinstance(op, StoreOp | AtomicRMWOp)]

    def is_apart(array: SSAValue | None, other: SSAValue | None) -> bool:
        return array is not None and other is not None and array is not other and (array in apart or other in apart)

    return [each for each in loads if all(is_apart(array_of(each.ptr), other) for other in stored)]


def is_unchanged(load: LoadOp, loop: scf.ForOp, apart: Container[SSAValue]) -> bool:
    """Whether no store of a loop may change memory that a load reads, see `unchanged`."""
    return bool(unchanged([load], loop, apart))


def known_ahead(loop: scf.ForOp, values: Iterable[SSAValue], apart: Container[SSAValue], *, repeated: bool) -> bool:
    """Whether values may be computed before their iteration, from scalars that no store of the loop changes.

    apart, repeated: as in `is_unchanged` and `Sources`.
    """
    sources = Sources(loop, values, repeated=repeated)
    return sources.known_ahead and len(unchanged(sources.loads, loop, apart)) == len(sources.loads)


def gives_zeros(load: LoadOp) -> bool:
    """Whether masked elements are zeros or undefined."""
    return load.other is None or is_zero(load.other)


def goes_into(load: LoadOp, loop: scf.ForOp) -> bool:
    """Whether a load may move to just before a loop. No operation in between may have an effect other than a load."""
    between: Operation | None = load.next_op if load.parent is loop.parent else None
    while between is not None and between is not loop:
        if not isinstance(between, LoadOp) and not has_no_effect(between):
            return False
        between = between.next_op
    return between is loop
