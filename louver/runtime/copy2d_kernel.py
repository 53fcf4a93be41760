"""The kernels of `louver.runtime.copy2d`, by the PTX builder.

A CTA copies tiles of `Copying.tile`. It takes every `entry_groups`-th matrix, in it every `row_groups`-th row of tiles,
and in it every `column_groups`-th tile. A kernel that reads along rows copies elements: lane l and warp w select the
column and the row.

The transposing kernels copy blocks of e × e elements, where e is the number of elements of a word. A lane reads e words
of e neighbours in a column each, and makes e words of rows from them.

    reads along rows            reads along columns, writes along rows
    row w + 8i, column l        in:  block row l, block column w + 8i   slot P·(32q + l) + w + 8i for row q of a block
                                out: row e·(w + 8i) + q, word l         slot P·(32q + w + 8i) + l

P is the pitch of a row in slots of 4 bytes. It is odd, so the accesses of a warp spread over all 32 banks in both
directions.
"""

from __future__ import annotations

from dataclasses import dataclass

from louver.isa.bytes import LoadByte, StoreByte
from louver.isa.instruction import Instruction, RegType
from louver.isa.memory import Load, Store
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Kernel, Param, Reg
from louver.runtime.copy2d import LANES, THREADS, WORD_BYTES, Copying

_WARPS = THREADS // LANES
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
    """How elements of a size are moved: the type and number of their registers, and the instructions for global memory."""

    bytes: int
    register: RegType
    load: Instruction
    store: Instruction
    registers: int = 1


_ELEMENTS = {
    1: _Elements(1, "b16", LoadByte(), StoreByte()),
    2: _Elements(2, "b16", Load("global", "b16"), Store("global", "b16")),
    4: _Elements(4, "b32", Load("global", "b32"), Store("global", "b32")),
    16: _Elements(16, "b32", Load("global", "b32", 4), Store("global", "b32", 4), 4),
}


@dataclass(frozen=True, slots=True)
class _Copy:
    """A kernel under construction. args: its parameters in registers. lane, warp: those of this thread."""

    copying: Copying
    k: KernelBuilder
    elements: _Elements
    args: dict[str, Reg]
    lane: Reg
    warp: Reg

    def inside(self, row: Reg, column: Reg) -> Reg:
        """Whether an element is inside the matrix."""
        k = self.k
        return k.and_pred(
            k.setp("lt", "u32", row, self.args["rows"]), k.setp("lt", "u32", column, self.args["columns"])
        )

    def load(self, row: Reg, column: Reg) -> list[Reg]:
        """The registers of an element of the source; 0 outside the matrix."""
        k, args = self.k, self.args
        along_row = k.mul_lo(k.widen_u64(column), args["column_step"])
        address = k.add(k.add(args["source"], k.mul_lo(k.widen_u64(row), args["row_step"])), along_row)
        registers = [k.mov(0, kind=self.elements.register) for _ in range(self.elements.registers)]
        k.emit(self.elements.load, _operand(registers), Address(address), guard=self.inside(row, column))
        return registers

    def store(self, row: Reg, column: Reg, registers: list[Reg]) -> None:
        """Write the element of the destination; nothing outside the matrix."""
        k, args = self.k, self.args
        line = k.add(args["destination"], k.mul_lo(k.widen_u64(row), args["pitch"]))
        address = k.mad_wide(column, self.copying.element_bytes, line)
        k.emit(self.elements.store, Address(address), _operand(registers), guard=self.inside(row, column))


def _operand(registers: list[Reg]) -> Reg | tuple[Reg, ...]:
    return tuple(registers) if len(registers) > 1 else registers[0]


def build_kernel(copying: Copying) -> Kernel:
    """The copy kernel.

    The grid is entry_groups × row_groups × column_groups CTAs. These numbers are at most those of matrices, rows of
    tiles and columns of tiles.
    """
    way = "rows" if not copying.transposed else "words" if copying.packed else "columns"
    name = f"copy_{way}_{8 * copying.element_bytes}"
    tile_rows, tile_columns = copying.tile
    shared = tile_rows * _pitch(copying) if copying.transposed else 0
    k = KernelBuilder(name, _PARAMS, threads=THREADS, dynamic_shared=shared)
    args = {param.name: k.ld_param(param.name) for param in _PARAMS}
    thread = k.special("%tid.x")
    elements = _ELEMENTS[copying.element_bytes * copying.elements]
    copy = _Copy(copying, k, elements, args, k.and_(thread, LANES - 1), k.shr(thread, 5))
    cta = k.special("%ctaid.x")
    group = k.div(cta, args["column_groups"])
    column_group = k.sub(cta, k.mul_lo(group, args["column_groups"]))
    entry_group = k.div(group, args["row_groups"])
    row_group = k.sub(group, k.mul_lo(entry_group, args["row_groups"]))
    first_row, first_column = k.mul_lo(row_group, tile_rows), k.mul_lo(column_group, tile_columns)
    row_stride, column_stride = k.mul_lo(args["row_groups"], tile_rows), k.mul_lo(args["column_groups"], tile_columns)
    entry, row, column = k.mov(entry_group), k.mov(0), k.mov(0)
    for address, step in (("source", "entry_step"), ("destination", "entry_pitch")):
        k.add(args[address], k.mul_lo(k.widen_u64(entry), args[step]), into=args[address])
    strides = {step: k.mul_lo(k.widen_u64(args["entry_groups"]), args[step]) for step in ("entry_step", "entry_pitch")}
    with k.loop(uniform=True) as entries:
        k.mov(first_row, into=row)
        with k.loop(uniform=True) as rows:
            k.mov(first_column, into=column)
            with k.loop(uniform=True) as columns:
                if copying.transposed:
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
    lines = [k.add(k.add(row, copy.warp), _WARPS * i) for i in range(copy.copying.tile[0] // _WARPS)]
    # All loads come before the first store, so that their latencies overlap.
    values = [copy.load(line, mine) for line in lines]
    for line, value in zip(lines, values, strict=True):
        copy.store(line, mine, value)


def _pitch(copying: Copying) -> int:
    """Bytes from one row of slots to the next."""
    return (copying.tile[1] // copying.elements + 1) * WORD_BYTES


def _turn_tile(copy: _Copy, row: Reg, column: Reg) -> None:
    k, kind, pitch = copy.k, copy.elements.register, _pitch(copy.copying)
    each, (rows, columns) = copy.copying.elements, copy.copying.tile
    slots, words = k.shared_symbol(), columns // each
    mine = k.mad_lo(copy.lane, each, row)
    firsts = [k.mad_lo(k.add(copy.warp, i), each, column) for i in range(0, words, _WARPS)]
    blocks = [[copy.load(mine, k.add(first, j) if j else first)[0] for j in range(each)] for first in firsts]
    written = k.add(slots, k.add(k.mul_lo(copy.lane, pitch), k.mul_lo(copy.warp, WORD_BYTES)))
    for i, block in enumerate(blocks):
        for q, word in enumerate(_turned(k, block)):
            k.emit(Store("shared", kind), Address(written, LANES * q * pitch + i * _WARPS * WORD_BYTES), word)
    k.barrier_sync(0, THREADS)
    read = k.add(slots, k.add(k.mul_lo(copy.warp, pitch), k.mul_lo(copy.lane, WORD_BYTES)))
    for i in range(rows // _WARPS):
        q, block = divmod(i * _WARPS, LANES)
        line = k.add(k.mad_lo(k.add(copy.warp, block), each, row), q)
        for word in range(0, words, LANES):
            value = k.reg(kind)
            k.emit(Load("shared", kind), value, Address(read, i * _WARPS * pitch + word * WORD_BYTES))
            copy.store(line, k.mad_lo(k.add(copy.lane, word), each, column), [value])
    # The next tile may be written only after every warp has read this one.
    k.barrier_sync(0, THREADS)


def _turned(k: KernelBuilder, block: list[Reg]) -> list[Reg]:
    """The words of the rows of a block, from the words of its columns."""
    if len(block) == 1:
        return block
    if len(block) == 2:
        a, b = block
        return [k.permute(a, b, each) for each in (0x5410, 0x7632)]
    a, b, c, d = block
    pairs = [(k.permute(a, b, each), k.permute(c, d, each)) for each in (0x5140, 0x7362)]
    return [k.permute(upper, lower, each) for upper, lower in pairs for each in (0x5410, 0x7632)]
