"""Kernels that make forms of a sparse tensor on its device: `Derived`. A thread makes one element of a row at a time.

| parameter | kinds | meaning |
|---|---|---|
| rows, size | all | rows of the result, and elements of a row |
| kept | all | columns of values |
| windows | list, pick | windows of a matrix |
| list_bytes | list, pick | bytes of a window's indices |
| k, lists | list | rows of K, and lists of a matrix |
| steps, blocks | pick | steps of a row, and blocks of 64 rows of a matrix |
"""

from __future__ import annotations

from louver.formats.codes import index_bits
from louver.formats.lists import PICKERS
from louver.isa.product_meaning import QUIET_NAN, TF32_HALF, TF32_MASK
from louver.library.streaming.derived.record import Derived
from louver.library.streaming.place import Base
from louver.ptx.module import Address, Kernel, Reg

BLOCK = 64
"""Rows whose picks are contiguous."""

_INFINITY = 0x7F800000
"""Infinity as raw bits of f32."""


def build(record: Derived) -> Kernel:
    """The kernel of a record. Its grid is parts of columns × at most the number of rows."""
    frame = Base(record, shared=0)
    k = frame.k
    rows, size = frame.shape
    column = k.mad_lo(frame.column_tile, record.tile[1], frame.thread)
    row, apart = k.special("%ctaid.y"), k.special("%nctaid.y")
    value = {"round": _rounded, "list": _listed, "pick": _picked}[record.kind]
    with k.loop(uniform=True) as every:
        with k.if_(k.setp("lt", "u32", column, size)):
            made = value(frame, record, row, column)
            at = k.mad_wide(column, 4, k.add(frame.args["out"], k.mul_wide(row, k.shl(size, 2))))
            k.store_global(Address(at), made)
        k.add(row, apart, into=row)
        every.repeat_if(k.setp("lt", "u32", row, rows))
    frame.leave_found()
    return k.finish()


def _rounded(frame: Base, record: Derived, row: Reg, column: Reg) -> Reg:
    """A value, rounded as by `louver.isa.product_meaning.f32_to_tf32`; 0 after the end of a row."""
    k, args = frame.k, frame.args
    at = k.add(args["values"], k.mul_lo(k.widen_u64(row), args["pitch"]))
    bits = k.mov(0)
    k.load_global((bits,), Address(k.mad_wide(column, 4, at)), guard=k.setp("lt", "u32", column, args["kept"]))
    cut, rounded = (k.and_(number, int(TF32_MASK)) for number in (bits, k.add(bits, int(TF32_HALF))))
    finite = k.setp("lt", "u32", k.and_(rounded, _INFINITY), _INFINITY)
    number = k.setp("le", "u32", k.and_(bits, 0x7FFFFFFF), _INFINITY)
    return k.selp(k.selp(rounded, cut, finite), k.or_(cut, int(QUIET_NAN)), number)


def _listed(frame: Base, record: Derived, row: Reg, column: Reg) -> Reg:
    """An entry of a list: the row of K of a stored column of its window; K after the last column."""
    k, args, pattern = frame.k, frame.args, record.pattern
    entry = k.div(row, args["lists"])
    number = k.sub(row, k.mul_lo(entry, args["lists"]))
    window = k.mad_lo(entry, args["windows"], k.div(number, record.units))
    index, inside = _index(frame, record, window, column)
    own = k.mad_lo(k.div(column, pattern.n), pattern.m, index)
    return k.selp(k.min(own, args["k"]), args["k"], inside)


def _picked(frame: Base, record: Derived, row: Reg, column: Reg) -> Reg:
    """A pick of 16 rows: a row of K, counted from the first group of the step."""
    k, args, pattern = frame.k, frame.args, record.pattern
    units = BLOCK // PICKERS
    steps = k.div(row, units)
    block = k.div(steps, args["steps"])
    step = k.sub(steps, k.mul_lo(block, args["steps"]))
    entry = k.div(block, args["blocks"])
    unit = k.mad_lo(k.sub(block, k.mul_lo(entry, args["blocks"])), units, k.sub(row, k.mul_lo(steps, units)))
    own = k.min(k.div(unit, record.units), k.sub(args["windows"], 1))
    first = k.mul_lo(step, record.step)
    place = k.add(first, column)
    window = k.mad_lo(entry, args["windows"], own)
    index, _ = _index(frame, record, window, place)
    groups = k.sub(k.div(place, pattern.n), k.div(first, pattern.n))
    return k.mad_lo(groups, pattern.m, index)


def _index(frame: Base, record: Derived, window: Reg, column: Reg) -> tuple[Reg, Reg]:
    """The index of a stored column of a window, and whether the column exists; the index is 0 otherwise. Records
    illegal indices.
    """
    k, args, pattern, bits = frame.k, frame.args, record.pattern, index_bits(record.pattern)
    base = k.mad_wide(window, args["list_bytes"], args["indices"])
    inside = k.setp("lt", "u32", column, args["kept"])
    index = frame.listed_bits(base, column, bits, args["list_bytes"])
    # The first index of a group has no predecessor.
    first = k.setp("eq", "u32", k.sub(column, k.mul_lo(k.div(column, pattern.n), pattern.n)), 0)
    before = frame.listed_bits(base, k.selp(column, k.sub(column, 1), first), bits, args["list_bytes"])
    least = k.selp(0, k.add(before, 1), first)
    most = k.selp(pattern.m - 1, 0, inside)
    for wrong in (k.setp("gt", "u32", index, most), k.setp("lt", "u32", index, k.selp(least, 0, inside))):
        k.or_(frame.found.violated, k.selp(1, 0, wrong), into=frame.found.violated)
    return index, inside
