"""Lowers warpgroup products by `Wgmma`.

Operands are in shared memory; A may be in registers. Sums stay in registers of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, cast

from xdsl.dialects import scf
from xdsl.ir import Block, SSAValue

from louver.analysis.effects import is_elementwise
from louver.analysis.integers import is_zero, position
from louver.compile.lower.tiles.dot import Operand, fragment_parts, metadata_word
from louver.compile.lower.tiles.exact import PartedOperands, part_pairs, without_nan
from louver.compile.lower.tiles.packing import WORD, pack_elements, unpack_elements
from louver.compile.lower.tiles.state import Lowering, Registers
from louver.compile.plan.encode.unit import is_transposed, product_left, promoted_columns, warpgroup_instruction
from louver.ir.tile import DotOp, DotWaitOp, MmaAttr
from louver.ir.tile.encodings import numbers_of
from louver.ir.tile.layout import LANE_BITS
from louver.ir.tile.metadata import METADATA_ROWS
from louver.ir.tile.shared import SharedLayout
from louver.ir.tile.staging import tile_of
from louver.ir.tile.types import register_encoding, tensor_of
from louver.isa.fragments import ROWS
from louver.isa.mma_fragments import COLUMNS
from louver.isa.swizzle import Major, SwizzledTile, describe
from louver.isa.wgmma import Wgmma, WgmmaCommit, WgmmaFence, WgmmaWait
from louver.ptx.module import Reg

_Product: TypeAlias = tuple[Wgmma, tuple[Reg | tuple[Reg, ...], ...]]
"""An instruction and its operands."""

WARP_BITS = 2
"""Bits of a warp's number within its warpgroup."""


@dataclass(frozen=True, slots=True)
class _Matrix:
    """An operand in shared memory.

    low, high: halves of the descriptor of its first line. The low half differs between warpgroups.
    """

    tile: SwizzledTile
    low: Reg
    high: Reg

    def at(self, low: Lowering, line: int, byte: int) -> Reg:
        """The descriptor of the part that starts at a line, and a byte in that line.

        The lowest bits of it are the start / 16.
        """
        further = describe(self.tile, 0, line, byte).start >> 4
        return low.k.pack_b64(low.k.add(self.low, further) if further else self.low, self.high)


class _Dot:
    """The products of a dot. blocks: the rows and columns, in the product, at which the blocks of a warpgroup begin."""

    def __init__(self, low: Lowering, op: DotOp) -> None:
        encoding = cast(MmaAttr, register_encoding(op.d.type))
        transposed = bool(encoding.transposed.data)
        self.left, self._right = (op.b, op.a) if transposed else (op.a, op.b)
        self._low, self._op, self.product = low, op, warpgroup_instruction(op, encoding)
        layout = low.layout(op.d)
        groups, columns = numbers_of(encoding.warps_per_cta)
        block = ROWS * (groups // (1 << WARP_BITS))
        self._operands = PartedOperands(low, op)
        if op.parts == 1:
            low.begin_products()
        self._a = _left(low, op, self._operands, self.product, block // ROWS)
        first = WARP_BITS + (block // ROWS).bit_length() - 1
        own = (self.product.n, columns, first)
        self._b = _matrices(low, self._operands, self._right, k_dimension=1 if transposed else 0, rows=own)
        self._metadata = (
            None if op.metadata is None else Operand(low.values[op.metadata], low.layout(op.metadata), transposed)
        )
        self._words: dict[tuple[int, int], Reg] = {}
        self._tile = Operand(tuple(Reg("b32", number) for number in range(len(layout.registers))), layout, transposed)
        self.depth = tensor_of(self._right).get_shape()[1 if transposed else 0]
        across = range(0, self._tile.columns, self.product.n * columns)
        self.blocks = [(row, column) for row in range(0, self._tile.rows, block) for column in across]

    def places(self, row: int, column: int) -> tuple[int, ...]:
        """The numbers of a thread's sums in a block, in the order of the instruction."""
        return tuple(
            self._tile.at(row + r, column + c + each).index
            for each in range(0, self.product.n, COLUMNS)
            for r in (0, 8)
            for c in (0, 1)
        )

    def products(
        self,
        row: int,
        column: int,
        steps: tuple[int, int],
        taken: Registers,
        pair: tuple[int, int] = (0, 0),
        *,
        adds: bool,
    ) -> Sequence[_Product]:
        """The products of a block over a range of K.

        steps: first column of K, and the end.
        taken: registers of the sums.
        pair: the parts of A and B.
        adds: whether they add to the values in the registers.
        """
        found: list[_Product] = []
        for k in range(*steps, self.product.k):
            each, extra = self.product, ()
            if self._metadata is not None:
                each = replace(each, selector=k // each.k % each.metadata_map.selectors)
                word = metadata_word(self._low, self._metadata, row // METADATA_ROWS, k, self.left, self._words)
                extra = (word,)
            dense = _part(self._low, self._b[min(pair[1], 1)], column, k, tile_of(self._right).size)
            more = self._low.constant(adds or k > steps[0], "pred")
            found.append((each, (taken, self._a(pair[0], row, k), dense, *extra, more)))
        return found

    def begin(self, row: int, column: int, taken: Registers, promoted: Sequence[tuple[Reg, Reg]] = ()) -> None:
        """Begin the products of a block, over all of K, in the registers `taken`.

        promoted: totals, each with the sum that is added to it when the products end.
        """
        steps, count = (0, self.depth), self._op.parts
        for number in range(count - 1, 0, -1):
            self._operands.put(number)
            group: list[_Product] = []
            for pair in part_pairs(count):
                if max(pair) == number:
                    adds = number < count - 1 or bool(group)
                    group += self.products(row, column, steps, taken, pair, adds=adds)
            _issue(self._low, group, [])
        if count > 1:
            self._low.finish_products()
            without_nan(self._low, taken, into=taken)
        _issue(self._low, self.products(row, column, steps, taken, adds=count > 1), promoted)


def lower_warpgroup_dot(low: Lowering, op: DotOp) -> Registers:
    """Begin the products, and return the registers of the sums: those of `c` if nothing else needs them.

    `finish_products` waits for the products, or for products in flight their loop, or for others a `DotWaitOp`. It also
    adds promoted sums to their totals. With promotion, products of a few columns of K accumulate in separate registers
    first.
    """
    packed = warpgroup_instruction(op, cast(MmaAttr, register_encoding(op.d.type))).d_fragment.packed
    sums, anew = _sums(low, op, packed), is_zero(op.c)
    dot = _Dot(low, op)
    promoted, k = promoted_columns(op), dot.product.k
    most = dot.depth if promoted is None else max(k, promoted - promoted % k)
    group: list[_Product] = []
    own = () if op.parts == 1 or anew else _unset(low, tuple(sums[place] for place in dot.places(*dot.blocks[0])))
    for row, column in dot.blocks:
        totals = tuple(sums[place // packed] for place in dot.places(row, column)[::packed])
        if op.parts > 1:
            # Tensor cores truncate what they add to a sum. An f32 addition rounds.
            dot.begin(row, column, own or totals, list(zip(totals, own, strict=True)) if own else ())
            continue
        for first in range(0, dot.depth, most):
            apart = promoted is not None and not (anew and first == 0)
            taken = _unset(low, totals) if apart else totals
            steps = first, min(first + most, dot.depth)
            group += dot.products(row, column, steps, taken, adds=not ((anew and first == 0) or apart))
            if promoted is not None:
                _issue(low, group, list(zip(totals, taken, strict=True)) if apart else [])
                group = []
    if op.in_flight is not None or op.is_async is not None:
        _commit(low, group)
    elif group:
        _issue(low, group, [])
    if packed == 1:
        return sums
    element = tensor_of(op.d).element_type
    return tuple(each for word in sums for each in unpack_elements(low, word, packed, element, WORD // packed))


class DotInParts:
    """A dot whose blocks use the same registers of a thread in turn. The products of the first block have begun."""

    def __init__(self, low: Lowering, op: DotOp) -> None:
        self._low, self._dot = low, _Dot(low, op)
        self.parts = [self._dot.places(*block) for block in self._dot.blocks]
        registers = _unset(low, tuple(low.values[op.c][place] for place in self.parts[0]))
        held = {place: each for places in self.parts for place, each in zip(places, registers, strict=True)}
        low.values[op.d] = tuple(held[place] for place in range(len(held)))
        self._registers = registers
        self.begin(0)

    def begin(self, part: int) -> None:
        """Begin the products of a part. They read the same operands as the first part, at other places."""
        self._low.accesses.takes = True
        self._dot.begin(*self._dot.blocks[part], self._registers)


def _issue(low: Lowering, group: Sequence[_Product], promoted: Sequence[tuple[Reg, Reg]]) -> None:
    """Issue products after one fence. promoted: totals, each with the sum that is added to it when the products end."""
    low.finish_products()
    _commit(low, group)
    low.pending, low.promoted = True, promoted


def _commit(low: Lowering, group: Sequence[_Product]) -> None:
    # Only products may be between the fence and the commit.
    low.k.emit(WgmmaFence())
    for each, operands in group:
        low.k.emit(each, *operands)
    low.k.emit(WgmmaCommit())


def wait_for_dot(low: Lowering, op: DotWaitOp) -> Registers:
    """Wait for the products of a dot that is async. Its sums stay in their registers."""
    low.k.emit(WgmmaWait(op.pendings.value.data))
    # Barriers since the products began do not count: only now have they read their operands.
    low.accesses.takes = True
    return low.values[op.sums]


def _unset(low: Lowering, like: Registers) -> Registers:
    """Registers for sums that a product begins. They are initialised, because no path may leave a register undefined."""
    with low.k.inside(low.prologue):
        return tuple(low.k.mov(0, kind=each.type) for each in like)


def _left(
    low: Lowering, op: DotOp, operands: PartedOperands, product: Wgmma, groups: int
) -> Callable[[int, int, int], Reg | tuple[Reg, ...]]:
    """A function that gives A of a product for a part, a row and a column of K: a descriptor, or registers.

    groups: warpgroups along the rows.
    """
    value, k_dimension = product_left(op)
    kept = product.k // product.k_stored
    if product.a_source == "shared":
        matrices = _matrices(low, operands, value, k_dimension=k_dimension, rows=(ROWS, groups, WARP_BITS))
        size = tile_of(value).size
        return lambda part, row, k: _part(low, matrices[min(part, 1)], row, k // kept, size)
    a = Operand(low.values[value], low.layout(value), is_transposed(op))
    known: dict[tuple[int, int], Sequence[tuple[Reg, ...]]] = {}

    def registers(part: int, row: int, k: int) -> tuple[Reg, ...]:
        if (row, k) not in known:
            known[row, k] = fragment_parts(
                low, partial(_at, a, row, k // kept), product.a_fragment, product.a, op.parts
            )
        return known[row, k][part]

    return registers


def _at(operand: Operand, row: int, k: int, r: int, c: int) -> Reg:
    return operand.at(row + r, k + c)


def _sums(low: Lowering, op: DotOp, packed: int) -> Registers:
    """Registers for the sums, with the value of `c`. packed: sums of a register."""
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
    home = _carried_on(op)
    if home is not None and packed == 1:
        # The registers that the loop carries, so that none is moved at its end.
        return tuple(low.k.mov(register, into=own) for register, own in zip(registers, low.values[home], strict=True))
    return tuple(low.copy(register) for register in registers)


def _carried_on(op: DotOp) -> SSAValue | None:
    """The loop argument that carries the sums, if only elementwise operations that compute the addend read it; else
    None.
    """
    block = op.parent
    if (
        block is None
        or not isinstance(loop := block.parent_op(), scf.ForOp)
        or not isinstance(block.last_op, scf.YieldOp)
    ):
        return None
    sums = op.d if op.wait is None else op.wait.result
    if not any(end is sums for end in block.last_op.operands):
        return None
    found = value = block.args[position(sums, block.last_op.operands) + 1]
    while value.has_one_use():
        (use,) = value.uses
        if use.operation is op:
            return found if value is op.c and found.type == op.d.type else None
        if use.operation.parent is not loop.body.block or not is_elementwise(use.operation):
            return None
        value = use.operation.results[0]
    return None


def _matrices(
    low: Lowering, operands: PartedOperands, value: SSAValue, *, k_dimension: int, rows: tuple[int, int, int]
) -> list[_Matrix]:
    """The descriptors of the first part of an operand, and of the other part if there are several.

    rows: rows of a product (columns for B), the number of warpgroups that divide them, and the first bit of that
    number.
    """
    tile = _swizzled(operands.tile(value), k_dimension)
    each, count, first = rows
    steps = [0] * (LANE_BITS + first)
    for bit in range(count.bit_length() - 1):
        line, byte = (each << bit, 0) if tile.major == "k" else (0, (each << bit) * tile_of(value).size)
        steps.append(describe(tile, 0, line, byte).start)
    code = describe(tile, 0).encode()
    own = low.combined([step >> 4 for step in steps])
    found: list[_Matrix] = []
    for place in operands.places(value):
        start = low.k.shr(low.k.add(low.staged_address(()), place), 4)
        start = start if own is None else low.k.add(start, own)
        found.append(_Matrix(tile, low.k.add(start, code & 0xFFFFFFFF), low.k.mov(code >> 32)))
    return found


def _part(low: Lowering, matrix: _Matrix, row: int, k: int, size: int) -> Reg:
    """The descriptor of the part that begins at a row and at a stored column of K."""
    line, byte = (row, k * size) if matrix.tile.major == "k" else (k, row * size)
    return matrix.at(low, line, byte)


def _swizzled(tile: SharedLayout, k_dimension: int) -> SwizzledTile:
    """The tile in the form that descriptors need."""
    major: Major = "k" if tile.fast == k_dimension else "mn"
    return SwizzledTile(major, tile.rows, tile.row_bytes, tile.swizzle)
