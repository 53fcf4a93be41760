"""Products of warpgroups, by `Wgmma`: operands stay in shared memory, or A in registers, sums in those that the loop carries them in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, cast

from xdsl.dialects import scf
from xdsl.ir import Block, SSAValue

from louver.analysis.integers import is_zero
from louver.compile.lower.tiles.dot import Operand, fragment_words, metadata_word
from louver.compile.lower.tiles.packing import WORD, pack_elements, unpack_elements
from louver.compile.lower.tiles.state import Lowering, Registers
from louver.compile.plan.encode.unit import promoted_columns, warpgroup_instruction
from louver.ir.tile import DotOp, MmaAttr
from louver.ir.tile.encodings import numbers_of
from louver.ir.tile.layout import LANE_BITS
from louver.ir.tile.metadata import METADATA_ROWS
from louver.ir.tile.shared import SharedLayout
from louver.ir.tile.staging import tile_of
from louver.ir.tile.types import register_encoding, tensor_of
from louver.isa.descriptor import describe
from louver.isa.fragments import ROWS
from louver.isa.mma_fragments import COLUMNS
from louver.isa.swizzle import Major, Tile
from louver.isa.wgmma import Wgmma, WgmmaCommit, WgmmaFence
from louver.ptx.module import Reg

_Product: TypeAlias = tuple[Wgmma, tuple[Reg | tuple[Reg, ...], ...]]
"""An instruction and its operands."""

WARP_BITS = 2
"""Bits of a warp's number within its warpgroup."""


@dataclass(frozen=True, slots=True)
class _Matrix:
    """An operand in shared memory. low, high: halves of the descriptor of its first line; the low one is the thread's warpgroup's own."""

    tile: Tile
    low: Reg
    high: Reg

    def at(self, low: Lowering, line: int, byte: int) -> Reg:
        """The descriptor of the part that starts at a line, and a byte along it. A start counts 16 bytes, in the lowest bits."""
        further = describe(self.tile, 0, line, byte).start >> 4
        return low.k.pack_b64(low.k.add(self.low, further) if further else self.low, self.high)


def lower_warpgroup_dot(low: Lowering, op: DotOp) -> Registers:
    """The sums, which take the registers of `c` where nothing else wants these. The products are under way: `finish_products`.

    Promoted sums are added to by `finish_products` too: products of a few columns of K sum in registers of their own first.
    """
    encoding = cast(MmaAttr, register_encoding(op.d.type))
    transposed = bool(encoding.transposed.data)
    left, right = (op.b, op.a) if transposed else (op.a, op.b)
    product = warpgroup_instruction(op, encoding)
    layout = low.layout(op.d)
    groups, columns = numbers_of(encoding.warps_per_cta)
    block = ROWS * (groups // (1 << WARP_BITS))
    packed = product.d_fragment.packed
    sums = _sums(low, op, packed)
    metadata = None if op.metadata is None else Operand(low.values[op.metadata], low.layout(op.metadata), transposed)
    low.begin_products()
    parts = _left(low, op, left, product, block // ROWS)
    first = WARP_BITS + (block // ROWS).bit_length() - 1
    b = _matrix(low, op, right, k_dimension=1 if transposed else 0, rows=(product.n, columns, first))
    words: dict[tuple[int, int], Reg] = {}
    depth = tensor_of(right).get_shape()[1 if transposed else 0]
    tile = Operand(tuple(Reg("b32", number) for number in range(len(layout.registers))), layout, transposed)
    promoted = promoted_columns(op)
    most = depth if promoted is None else max(product.k, promoted - promoted % product.k)
    anew, group = is_zero(op.c), list[_Product]()
    for row in range(0, tile.rows, block):
        for column in range(0, tile.columns, product.n * columns):
            totals = tuple(
                sums[tile.at(row + r, column + c + each).index // packed]
                for each in range(0, product.n, COLUMNS)
                for r in (0, 8)
                for c in range(0, 2, packed)
            )
            for first in range(0, depth, most):
                apart = promoted is not None and not (anew and first == 0)
                taken = _unset(low, totals) if apart else totals
                for k in range(first, min(first + most, depth), product.k):
                    each, extra = product, ()
                    if metadata is not None:
                        each = replace(product, selector=k // product.k % product.metadata_map.selectors)
                        extra = (metadata_word(low, metadata, row // METADATA_ROWS, k, left, words),)
                    dense = _part(low, b, column, k, tile_of(right).size)
                    adds = low.constant(k > first or not (anew or apart), "pred")
                    group.append((each, (taken, parts(row, k), dense, *extra, adds)))
                if promoted is not None:
                    _issue(low, group, list(zip(totals, taken, strict=True)) if apart else [])
                    group = []
    if group:
        _issue(low, group, [])
    if packed == 1:
        return sums
    element = tensor_of(op.d).element_type
    return tuple(each for word in sums for each in unpack_elements(low, word, packed, element, WORD // packed))


def _issue(low: Lowering, group: Sequence[_Product], promoted: Sequence[tuple[Reg, Reg]]) -> None:
    """Products under one fence. promoted: totals, and the sums that are added to them when the products are done."""
    low.finish_products()
    # Nothing but products stands between the fence and the commit.
    low.k.emit(WgmmaFence())
    for each, operands in group:
        low.k.emit(each, *operands)
    low.k.emit(WgmmaCommit())
    low.pending, low.promoted = True, promoted


def _unset(low: Lowering, like: Registers) -> Registers:
    """Registers for sums that a product begins. No path may leave registers without content."""
    with low.k.inside(low.prologue):
        return tuple(low.k.mov(0, kind=each.type) for each in like)


def _left(
    low: Lowering, op: DotOp, value: SSAValue, product: Wgmma, groups: int
) -> Callable[[int, int], Reg | tuple[Reg, ...]]:
    """The product's A from a row and a column of K on: a descriptor, or registers. groups: warpgroups along the rows."""
    transposed = value is op.b
    if product.a_source == "shared":
        matrix = _matrix(low, op, value, k_dimension=0 if transposed else 1, rows=(ROWS, groups, WARP_BITS))
        size = tile_of(value).size
        return lambda row, k: _part(low, matrix, row, k * product.k_stored // product.k, size)
    a = Operand(low.values[value], low.layout(value), transposed)
    known: dict[tuple[int, int], tuple[Reg, ...]] = {}

    def registers(row: int, k: int) -> tuple[Reg, ...]:
        if (row, k) not in known:
            known[row, k] = fragment_words(low, partial(_at, a, row, k), product.a_fragment, product.a)
        return known[row, k]

    return registers


def _at(operand: Operand, row: int, k: int, r: int, c: int) -> Reg:
    return operand.at(row + r, k + c)


def _sums(low: Lowering, op: DotOp, packed: int) -> Registers:
    """Registers that hold `c`, so many sums each, or nothing where that is zero, and may become the sums."""
    registers = low.values[op.c]
    if packed > 1:
        pairs = [registers[first : first + packed] for first in range(0, len(registers), packed)]
        registers = tuple(pack_elements(low, pair, WORD // packed) for pair in pairs)
    if is_zero(op.c):
        return _unset(low, registers)
    owner = op.c.owner
    carried = isinstance(owner, Block) and isinstance(owner.parent_op(), scf.ForOp)
    summed = isinstance(owner, DotOp) and isinstance(register_encoding(owner.d.type), MmaAttr)
    if op.c.has_one_use() and (carried or (summed and owner.parent is op.parent)):
        return registers
    low.finish_products()
    return tuple(low.copy(register) for register in registers)


def _matrix(low: Lowering, op: DotOp, value: SSAValue, *, k_dimension: int, rows: tuple[int, int, int]) -> _Matrix:
    """An operand. rows: a product's own rows (columns, of B), how many warpgroups share out such, and the first bit of their number."""
    tile = _swizzled(tile_of(value), k_dimension)
    each, count, first = rows
    steps = [0] * (LANE_BITS + first)
    for bit in range(count.bit_length() - 1):
        line, byte = (each << bit, 0) if tile.major == "k" else (0, (each << bit) * tile_of(value).size)
        steps.append(describe(tile, 0, line, byte).start)
    code = describe(tile, 0).encode()
    start = low.k.shr(low.k.add(low.staged_address(()), low.scalar(value)), 4)
    own = low.combined([step >> 4 for step in steps])
    if own is not None:
        start = low.k.add(start, own)
    return _Matrix(tile, low.k.add(start, code & 0xFFFFFFFF), low.k.mov(code >> 32))


def _part(low: Lowering, matrix: _Matrix, row: int, k: int, size: int) -> Reg:
    """The descriptor of the part from a row, and from a stored column of K, on."""
    line, byte = (row, k * size) if matrix.tile.major == "k" else (k, row * size)
    return matrix.at(low, line, byte)


def _swizzled(tile: SharedLayout, k_dimension: int) -> Tile:
    """A tile in shared memory as descriptors describe it."""
    major: Major = "k" if tile.fast == k_dimension else "mn"
    return Tile(major, tile.rows, tile.row_bytes, tile.swizzle)
