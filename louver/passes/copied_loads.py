"""Loads that may be copied to shared memory some steps ahead of their loop, and those whose tiles are taken back from there.

A tile that products take as it is loaded stays in shared memory. Of others a thread takes its elements from there: those that operands
are computed of, and those of one dimension, such as scales, of which each thread needs many elements that are apart in memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr
from xdsl.ir import Block, Operation, SSAValue

from louver.ir.tile import AddPtrOp, BroadcastOp, DotOp, ExpandDimsOp, FuncOp, LoadOp, SplatOp, TransOp
from louver.ir.tile.types import as_tensor, tensor_of
from louver.isa.swizzle import CHUNK
from louver.passes.encode.unit import multiplies
from louver.passes.expand_blocks import METADATA_PADDING
from louver.passes.integers import is_zero
from louver.passes.staged_operands import element_bytes, loaded_along, row_bytes, tile_bytes
from louver.passes.steps_ahead import Feeds, Sources, computed, only_loads

LEAST_BYTES = 4
"""Bytes of an element that a thread can copy without its neighbours."""


def copied_loads(function: FuncOp, staged: Mapping[SSAValue, int]) -> dict[SSAValue, int]:
    """Tiles of loads that are copied and then taken to registers, each with the dimension of its neighbours in memory.

    Valid tile IR before encodings. staged: the operands of dots in shared memory, each with the dimension of its neighbours there.
    """
    found: dict[SSAValue, int] = {}
    for loop in [op for op in function.body.walk() if isinstance(op, scf.ForOp) and only_loads(op)]:
        block = loop.body.block
        dots = [op for op in block.ops if isinstance(op, DotOp) and multiplies(op, staged)]
        if not dots:
            continue
        loads = [op for op in block.ops if isinstance(op, LoadOp) and as_tensor(op.result.type) is not None]
        others, _ = computed([operand for load in loads for operand in load.operands], block)
        made, _ = computed([operand for dot in dots for operand in (dot.a, dot.b)], block)
        for load in loads:
            along = _taken_along(load, staged, multiplied=load in made)
            if along is None or load in others or not may_be_copied(load, "any"):
                continue
            if Sources(loop, addresses(load), repeated=True).known_ahead:
                found[load.result] = along
    return found


def _taken_along(load: LoadOp, staged: Mapping[SSAValue, int], *, multiplied: bool) -> int | None:
    """The dimension of neighbours of a tile that is taken from shared memory; None for one that is not. multiplied: dots take what is made of it."""
    tile = load.result
    if not multiplied:
        vector = len(tensor_of(tile).get_shape()) == 1
        return 0 if vector and element_bytes(tile) >= LEAST_BYTES and tile_bytes(tile) >= CHUNK else None
    along = loaded_along(tile)
    if along is None or row_bytes(tile, along) < CHUNK or len(tensor_of(tile).get_shape()) > 2:
        return None
    user = only_user(tile)
    operand = user.result if isinstance(user, TransOp) else tile
    straight = operand in staged and staged[operand] == loaded_along(operand)
    return None if straight and all(isinstance(use.operation, DotOp) for use in operand.uses) else along


def only_user(value: SSAValue) -> Operation | None:
    """What takes a value; None for none or several."""
    return next(iter(value.uses)).operation if value.has_one_use() else None


def addresses(load: LoadOp) -> list[SSAValue]:
    """What a copy in a load's place is told."""
    if load.box is not None:
        return [load.box, *load.place]
    return [each for each in (load.ptr, load.mask) if each is not None]


def may_be_copied(load: LoadOp, feeds: Feeds) -> bool:
    """Whether nothing is said of caches, and elements that are not loaded are zeros, or codes of which any legal ones will do."""
    if load.cache is not None or load.evict is not None or load.is_volatile is not None:
        return False
    if load.box is not None or feeds == "boxes":
        return load.box is not None
    return gives_zeros(load) or (is_padding(load.other) and array_of(load.ptr) is not None)


def is_padding(value: SSAValue | None) -> bool:
    """Whether a tile is of the codes that stand for metadata outside of its tensor. The values there are zeros."""
    owner = None if value is None else value.owner
    if not isinstance(owner, arith.ConstantOp) or not isinstance(owner.value, DenseIntOrFPElementsAttr):
        return False
    return set(owner.value.iter_values()) == {METADATA_PADDING}


def array_of(pointer: SSAValue) -> SSAValue | None:
    """The argument that pointers are made of by adding to it; None if there is no such."""
    while not isinstance(pointer.owner, Block):
        match pointer.owner:
            case AddPtrOp(ptr=inner) | SplatOp(src=inner) | BroadcastOp(src=inner) | ExpandDimsOp(src=inner):
                pointer = inner
            case _:
                return None
    return pointer if isinstance(pointer.owner.parent_op(), FuncOp) else None


def gives_zeros(load: LoadOp) -> bool:
    """Whether elements that are not loaded are zeros, or nothing reads them."""
    return load.other is None or is_zero(load.other)
