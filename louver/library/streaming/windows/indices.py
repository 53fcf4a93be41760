"""Lists of indices: packs the indices of the kept columns of a tile, and unpacks them to find the slots of columns."""

from __future__ import annotations

from louver.isa.bytes import LoadByte
from louver.isa.convert import ConvertInteger
from louver.library.streaming.place import Corner
from louver.library.streaming.windows.frame import Frame
from louver.ptx.module import Address, Reg


def store_list(frame: Frame, corner: Corner) -> None:
    """Write the indices of a tile. `lists` has the column of each slot. Bits without a slot of the matrix are zeros."""
    k, record = frame.k, frame.record
    n, m, bits = record.pattern.n, record.pattern.m, record.index_bits
    each = 8 // bits
    at, count = frame.list_at(corner)
    with frame.each(record.slots // each) as byte:
        packed = k.mov(0)
        for number in range(each):
            slot = k.add(k.mul_lo(byte, each), number)
            (column,) = frame.read(frame.lists, slot)
            index = k.sub(column, k.mul_lo(frame.divided(slot, n)[0], m))
            inside = k.setp("lt", "u32", k.add(frame.first_slot(), slot), frame.kept)
            packed = k.or_(packed, k.shl(k.selp(index, 0, inside), bits * number))
        there = k.setp("lt", "u32", byte, count)
        k.store_byte(Address(k.add(at, k.widen_u64(byte))), k.low_half(packed), guard=there)


def load_list(frame: Frame, corner: Corner) -> None:
    """Read the indices of a tile to `lists`. Slots outside the matrix get legal indices. Records bits that are set
    without a slot.
    """
    k, record = frame.k, frame.record
    n, bits = record.pattern.n, record.index_bits
    at, count = frame.list_at(corner)
    with frame.each(record.slots) as slot:
        bit = k.mul_lo(slot, bits)
        byte = k.shr(bit, 3)
        piece, word = k.mov(0, kind="b16"), k.reg("b32")
        there = k.setp("lt", "u32", byte, count)
        k.emit(LoadByte(), piece, Address(k.add(at, k.widen_u64(byte))), guard=there)
        k.emit(ConvertInteger("u32", "u16"), word, piece)
        index = k.and_(k.shr(word, k.and_(bit, 7)), (1 << bits) - 1)
        inside = k.setp("lt", "u32", k.add(frame.first_slot(), slot), frame.kept)
        _note(frame, k.setp("ne", "u32", k.selp(0, index, inside), 0))
        frame.write(frame.lists, slot, [k.selp(index, frame.divided(slot, n)[1], inside)])


def check_list(frame: Frame) -> None:
    """Record indices in `lists` that do not increase in their group, or are outside the group."""
    k, record = frame.k, frame.record
    n, m = record.pattern.n, record.pattern.m
    with frame.each(record.slots) as slot:
        first = k.setp("eq", "u32", frame.divided(slot, n)[1], 0)
        (index,) = frame.read(frame.lists, slot)
        (before,) = frame.read(frame.lists, k.selp(slot, k.sub(slot, 1), first))
        _note(frame, k.setp("lt", "u32", index, k.selp(0, k.add(before, 1), first)))
        _note(frame, k.setp("ge", "u32", index, m))


def find_slot(frame: Frame, column: Reg) -> tuple[Reg, Reg]:
    """The slot of a column of the tile, by bisection of `lists`, and whether the column has a slot."""
    k, n = frame.k, frame.record.pattern.n
    group, place = frame.in_group(column)
    first = k.mul_lo(group, n)
    below = k.mov(0)
    for step in (1 << bit for bit in reversed(range(n.bit_length()))):
        further = k.add(below, step)
        (index,) = frame.read(frame.lists, k.add(first, k.sub(k.min(further, n), 1)))
        lower = k.and_pred(k.setp("le", "u32", further, n), k.setp("lt", "u32", index, place))
        k.selp(further, below, lower, into=below)
    slot = k.add(first, k.min(below, n - 1))
    (index,) = frame.read(frame.lists, slot)
    return slot, k.setp("eq", "u32", index, place)


def _note(frame: Frame, wrong: Reg) -> None:
    k = frame.k
    k.or_(frame.found.violated, k.selp(1, 0, wrong), into=frame.found.violated)
