"""The kernels of `louver.runtime.copy2d`, written on the PTX builder.

A CTA takes tiles of 32 × 32 elements: of every `entry_groups`-th matrix rows of tiles `row_groups` apart, in them every
`column_groups`-th tile. Lane and warp
name a column and a row of the tile, in the transposing kernel a row and a column while it reads:

    reads along rows            reads along columns, writes along rows
    warp w, lane l              in: column w + 8i, row l    slot 33·(w + 8i) + l
    row w + 8i, column l        out: row w + 8i, column l   slot 33·l + w + 8i

The odd pitch of 33 slots spreads a warp's accesses over all 32 banks both ways.
"""

from __future__ import annotations

from dataclasses import dataclass

from louver.isa.bytes import LoadByte, StoreByte
from louver.isa.instruction import Instruction, RegType
from louver.isa.memory import Load, Store
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Kernel, Param, Reg
from louver.runtime.copy2d import THREADS, TILE

_WARPS = THREADS // 32
_STEPS = TILE // _WARPS
_SLOT_BYTES = 4
_SLOTS = TILE + 1
_PARAMS = (
    Param("source", "u64"),
    Param("destination", "u64"),
    Param("row_step", "u64"),
    Param("column_step", "u64"),
    Param("pitch", "u64"),
    Param("rows", "u32"),
    Param("columns", "u32"),
    Param("row_groups", "u32"),
    Param("column_groups", "u32"),
    Param("entry_step", "u64"),
    Param("entry_pitch", "u64"),
    Param("entries", "u32"),
    Param("entry_groups", "u32"),
)


@dataclass(frozen=True, slots=True)
class _Elements:
    """The means to move elements of a size: their register class, and the instructions for global memory."""

    bytes: int
    register: RegType
    load: Instruction
    store: Instruction


_ELEMENTS = {
    1: _Elements(1, "b16", LoadByte(), StoreByte()),
    2: _Elements(2, "b16", Load("global", "b16"), Store("global", "b16")),
    4: _Elements(4, "b32", Load("global", "b32"), Store("global", "b32")),
}


@dataclass(frozen=True, slots=True)
class _Copy:
    """A kernel under construction: its builder, its elements, its parameters in registers, this thread's lane and warp."""

    k: KernelBuilder
    elements: _Elements
    args: dict[str, Reg]
    lane: Reg
    warp: Reg

    def inside(self, row: Reg, column: Reg) -> Reg:
        """Whether the matrix has that element."""
        k = self.k
        return k.and_pred(
            k.setp("lt", "u32", row, self.args["rows"]), k.setp("lt", "u32", column, self.args["columns"])
        )

    def load(self, row: Reg, column: Reg) -> Reg:
        """The source's element; 0 outside the matrix."""
        k, args = self.k, self.args
        along_row = k.mul_lo(k.widen_u64(column), args["column_step"])
        address = k.add(k.add(args["source"], k.mul_lo(k.widen_u64(row), args["row_step"])), along_row)
        value = k.mov(0, kind=self.elements.register)
        k.emit(self.elements.load, value, Address(address), guard=self.inside(row, column))
        return value

    def store(self, row: Reg, column: Reg, value: Reg) -> None:
        """Write the destination's element; nothing outside the matrix."""
        k, args = self.k, self.args
        line = k.add(args["destination"], k.mul_lo(k.widen_u64(row), args["pitch"]))
        address = k.mad_wide(column, self.elements.bytes, line)
        k.emit(self.elements.store, Address(address), value, guard=self.inside(row, column))


def build_kernel(element_bytes: int, *, transposed: bool) -> Kernel:
    """The copy kernel for elements of 1, 2 or 4 bytes; `transposed` reads along columns.

    The grid is entry_groups × row_groups × column_groups CTAs; none is more than there are matrices, or tiles that way.
    """
    name = f"copy_{'columns' if transposed else 'rows'}_{8 * element_bytes}"
    shared = TILE * _SLOTS * _SLOT_BYTES if transposed else 0
    k = KernelBuilder(name, _PARAMS, threads=THREADS, dynamic_shared=shared)
    args = {param.name: k.ld_param(param.name) for param in _PARAMS}
    thread = k.special("%tid.x")
    copy = _Copy(k, _ELEMENTS[element_bytes], args, k.and_(thread, 31), k.shr(thread, 5))
    cta = k.special("%ctaid.x")
    group = k.div(cta, args["column_groups"])
    column_group = k.sub(cta, k.mul_lo(group, args["column_groups"]))
    entry_group = k.div(group, args["row_groups"])
    row_group = k.sub(group, k.mul_lo(entry_group, args["row_groups"]))
    first_row, first_column = k.mul_lo(row_group, TILE), k.mul_lo(column_group, TILE)
    row_stride, column_stride = k.mul_lo(args["row_groups"], TILE), k.mul_lo(args["column_groups"], TILE)
    entry, row, column = k.mov(entry_group), k.mov(0), k.mov(0)
    for address, step in (("source", "entry_step"), ("destination", "entry_pitch")):
        k.add(args[address], k.mul_lo(k.widen_u64(entry), args[step]), into=args[address])
    strides = {step: k.mul_lo(k.widen_u64(args["entry_groups"]), args[step]) for step in ("entry_step", "entry_pitch")}
    with k.loop(uniform=True) as entries:
        k.mov(first_row, into=row)
        with k.loop(uniform=True) as rows:
            k.mov(first_column, into=column)
            with k.loop(uniform=True) as columns:
                if transposed:
                    _turn_tile(copy, row, column)
                else:
                    _copy_tile(copy, row, column)
                k.add(column, column_stride, into=column)
                columns.repeat_if(k.setp("lt", "u32", column, args["columns"]))
            k.add(row, row_stride, into=row)
            rows.repeat_if(k.setp("lt", "u32", row, args["rows"]))
        k.add(args["source"], strides["entry_step"], into=args["source"])
        k.add(args["destination"], strides["entry_pitch"], into=args["destination"])
        k.add(entry, args["entry_groups"], into=entry)
        entries.repeat_if(k.setp("lt", "u32", entry, args["entries"]))
    return k.finish()


def _copy_tile(copy: _Copy, row: Reg, column: Reg) -> None:
    k = copy.k
    mine = k.add(column, copy.lane)
    lines = [k.add(k.add(row, copy.warp), _WARPS * i) for i in range(_STEPS)]
    # All loads before the first store: they wait for memory together.
    values = [copy.load(line, mine) for line in lines]
    for line, value in zip(lines, values, strict=True):
        copy.store(line, mine, value)


def _turn_tile(copy: _Copy, row: Reg, column: Reg) -> None:
    k, kind = copy.k, copy.elements.register
    slots = k.shared_symbol()
    mine = k.add(row, copy.lane)
    values = [copy.load(mine, k.add(k.add(column, copy.warp), _WARPS * i)) for i in range(_STEPS)]
    written = k.add(slots, k.mul_lo(k.mad_lo(copy.warp, _SLOTS, copy.lane), _SLOT_BYTES))
    for i, value in enumerate(values):
        k.emit(Store("shared", kind), Address(written, i * _WARPS * _SLOTS * _SLOT_BYTES), value)
    k.barrier_sync(0, THREADS)
    mine = k.add(column, copy.lane)
    read = k.add(slots, k.mul_lo(k.mad_lo(copy.lane, _SLOTS, copy.warp), _SLOT_BYTES))
    for i in range(_STEPS):
        value = k.reg(kind)
        k.emit(Load("shared", kind), value, Address(read, i * _WARPS * _SLOT_BYTES))
        copy.store(k.add(k.add(row, copy.warp), _WARPS * i), mine, value)
    # The next tile is written only when every warp has read this one.
    k.barrier_sync(0, THREADS)
