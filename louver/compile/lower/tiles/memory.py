"""Lowers loads and stores by the threads that hold the elements.

If several threads hold the same element, all of them load it, and one stores it.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import SSAValue

from louver.compile.lower.tiles.exchange import from_owners
from louver.compile.lower.tiles.neighbours import accesses
from louver.compile.lower.tiles.numbers import element_bytes
from louver.compile.lower.tiles.packing import WORD, pack_elements
from louver.compile.lower.tiles.state import Lowering, Registers
from louver.compile.lower.tiles.vectors import load_elements, store_elements
from louver.compile.plan.encode.anchors import is_tile
from louver.ir.tile import DotOperandAttr, LoadOp, StoreOp
from louver.ir.tile.layout import Layout
from louver.ir.tile.types import element_of, register_encoding
from louver.isa.sync import FenceGpu
from louver.ptx.module import Reg


def lower_load(low: Lowering, op: LoadOp) -> Registers:
    """Load each element, or take the value of `other` if the mask is false.

    Neighbours are loaded together where possible.
    """
    element = element_of(op.result.type)
    size = element_bytes(element, op)
    pointers = low.values[op.ptr]
    masks = each_of(low, op.mask, len(pointers))
    others = each_of(low, op.other, len(pointers))
    low.begin_load()
    # All threads decide by the same number, so one of them loads it, as for an atomic operation.
    shared = layout_of(low, op.result) if op.fresh and not is_tile(op.result) else None
    owner = None if shared is None else low.owner(shared)
    packs = isinstance(register_encoding(op.result.type), DotOperandAttr) and size < WORD
    found: dict[int, Reg] = {}
    for access in accesses(low, pointers, masks, size):
        given = [others[number] for number in access.elements]
        mask = low.both(access.mask, owner)
        loaded = load_elements(low, "global", access.address, element, op, given, mask, fresh=op.fresh)
        found.update(zip(access.elements, loaded, strict=True))
        if packs:
            _pack(low, found, access.elements[-1], size)
    registers = tuple(found[number] for number in range(len(pointers)))
    if shared is None:
        return registers
    # What other programs stored before they stored this number is loaded behind it.
    low.k.emit(FenceGpu(), guard=owner)
    return registers if owner is None else from_owners(low, op, registers, shared)


def each_of(low: Lowering, value: SSAValue | None, count: int) -> tuple[Reg | None, ...]:
    """The registers of an optional operand of an access, one for each element; None for each without the operand."""
    if value is None:
        return (None,) * count
    found = low.values[value]
    return found if len(found) == count else found * count


def _pack(low: Lowering, found: Mapping[int, Reg], last: int, size: int) -> None:
    """Pack elements of a dot's operand as soon as they are loaded, so that single elements need no registers."""
    count = WORD // size
    first = last - last % count
    group = tuple(found[number] for number in range(first, first + count) if number in found)
    if len(group) == count and group not in low.packed:
        low.packed[group] = pack_elements(low, group, size)


def lower_store(low: Lowering, op: StoreOp) -> None:
    """Store each element if its mask is true, by one of the threads that hold it.

    Neighbours are stored together if possible. Where programs wait for numbers that others store, such as a flag, all
    that the program stored before is visible with the number.
    """
    layout = layout_of(low, op.value)
    element = element_of(op.value.type)
    size = element_bytes(element, op)
    pointers, values = low.values[op.ptr], low.values[op.value]
    masks = each_of(low, op.mask, len(pointers))
    low.begin_store()
    shown = low.waits and not is_tile(op.value)
    owner = low.owner(layout)
    if shown:
        # The threads have synchronized, so the fence of one thread covers the stores of all threads.
        low.k.emit(FenceGpu(), guard=owner)
    for access in accesses(low, pointers, masks, size):
        given = [values[number] for number in access.elements]
        store_elements(low, "global", access.address, given, size, low.both(access.mask, owner), shown=shown)


def layout_of(low: Lowering, value: SSAValue) -> Layout:
    """The layout of a tile, or of a scalar, which all threads hold."""
    if is_tile(value):
        return low.layout(value)
    warps = low.warps.bit_length() - 1
    return Layout((), (), ((),) * 5, ((),) * warps)
