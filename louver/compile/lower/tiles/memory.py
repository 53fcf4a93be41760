"""Loads and stores, by the threads that hold the elements.

Where several threads hold the same elements, all of them load, and one stores.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import SSAValue

from louver.compile.lower.tiles.neighbours import accesses
from louver.compile.lower.tiles.numbers import element_bytes
from louver.compile.lower.tiles.packing import WORD, pack_elements
from louver.compile.lower.tiles.state import Lowering, Registers
from louver.compile.lower.tiles.vectors import load_elements, store_elements
from louver.compile.plan.encode.anchors import is_tile
from louver.ir.tile import DotOperandAttr, LoadOp, StoreOp
from louver.ir.tile.layout import Layout
from louver.ir.tile.types import element_of, register_encoding
from louver.ptx.module import Reg


def lower_load(low: Lowering, op: LoadOp) -> Registers:
    """Each element, or what stands for it where the mask does not hold; neighbours are loaded together where they can be."""
    element = element_of(op.result.type)
    size = element_bytes(element, op)
    pointers = low.values[op.ptr]
    masks = each_of(low, op.mask, len(pointers))
    others = each_of(low, op.other, len(pointers))
    low.begin_load()
    packs = isinstance(register_encoding(op.result.type), DotOperandAttr) and size < WORD
    found: dict[int, Reg] = {}
    for access in accesses(low, pointers, masks, size):
        given = [others[number] for number in access.elements]
        loaded = load_elements(low, "global", access.address, element, op, given, access.mask)
        found.update(zip(access.elements, loaded, strict=True))
        if packs:
            _pack(low, found, access.elements[-1], size)
    return tuple(found[number] for number in range(len(pointers)))


def each_of(low: Lowering, value: SSAValue | None, count: int) -> tuple[Reg | None, ...]:
    """A mask's registers, or what stands for elements, one for each of so many elements; None where there is no such operand."""
    if value is None:
        return (None,) * count
    found = low.values[value]
    return found if len(found) == count else found * count


def _pack(low: Lowering, found: Mapping[int, Reg], last: int, size: int) -> None:
    """Elements of a dot's operand in the register that it takes, as soon as they are there: the single ones need not be kept."""
    count = WORD // size
    first = last - last % count
    group = tuple(found[number] for number in range(first, first + count) if number in found)
    if len(group) == count and group not in low.packed:
        low.packed[group] = pack_elements(low, group, size)


def lower_store(low: Lowering, op: StoreOp) -> None:
    """Each element where the mask holds, by one of the threads that have it; neighbours together where they can be."""
    layout = layout_of(low, op.value)
    element = element_of(op.value.type)
    size = element_bytes(element, op)
    pointers, values = low.values[op.ptr], low.values[op.value]
    masks = each_of(low, op.mask, len(pointers))
    low.begin_store()
    owner = low.owner(layout)
    for access in accesses(low, pointers, masks, size):
        given = [values[number] for number in access.elements]
        store_elements(low, "global", access.address, given, size, low.both(access.mask, owner))


def layout_of(low: Lowering, value: SSAValue) -> Layout:
    """A tile's, or that of a scalar, which all threads hold."""
    if is_tile(value):
        return low.layout(value)
    warps = low.warps.bit_length() - 1
    return Layout((), (), ((),) * 5, ((),) * warps)
