"""Lowers products by `Mma`: one instruction for each 16×8 block of sums and each step of K.

Encodings give the registers.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, cast

from xdsl.dialects.builtin import Float16Type
from xdsl.ir import SSAValue

from louver.compile.lower.tiles.exact import part_pairs, parts_of, without_nan
from louver.compile.lower.tiles.numbers import from_f32, to_f32
from louver.compile.lower.tiles.packing import WORD, pack_elements
from louver.compile.lower.tiles.state import Lowering, Registers
from louver.formats.blocks import SCALED_COLUMNS
from louver.formats.dtypes import multiplied_as
from louver.ir.refusal import unsupported
from louver.ir.tile import DotOp, MmaAttr, element_name
from louver.ir.tile.encodings import numbers_of
from louver.ir.tile.layout import Layout
from louver.ir.tile.metadata import METADATA_ROWS, WORD_ENTRIES, word_columns
from louver.ir.tile.types import register_encoding, tensor_of
from louver.isa.fragments import Fragment
from louver.isa.mma import Mma, kind_of, legal_k, pairs_of
from louver.isa.mma_fragments import COLUMNS, ROWS
from louver.isa.move import Bitcast
from louver.isa.narrow import SCALE, SCALED, SHIFTS
from louver.ptx.module import Reg

SHORT_OF = {"s8": "s4", "u8": "u4"}
"""The numbers of a pair, by the type of its byte."""

Find: TypeAlias = Callable[[int, int], Reg]
"""Gives the register of thread 0 for an element, by its row and column in the product."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tile as the instructions of a product see it. A tile of a transposed product is transposed."""

    registers: Registers
    layout: Layout
    transposed: bool

    def at(self, row: int, column: int) -> Reg:
        """The register of thread 0 for an element of the blocks. Beyond the end of a small tile its elements repeat."""
        place = (column, row) if self.transposed else (row, column)
        inside = tuple(at & (size - 1) for at, size in zip(place, self.layout.shape, strict=True))
        return self.registers[self.layout.register_of(inside)]

    @property
    def rows(self) -> int:
        """Rows of the tile in the product."""
        return self.layout.shape[1 if self.transposed else 0]

    @property
    def columns(self) -> int:
        """Columns of the tile in the product."""
        return self.layout.shape[0 if self.transposed else 1]


def lower_dot(low: Lowering, op: DotOp) -> Registers:
    """The sums, in the registers of the dot's encoding."""
    encoding = cast(MmaAttr, register_encoding(op.d.type))
    transposed = bool(encoding.transposed.data)

    def operand(value: SSAValue) -> Operand:
        return Operand(low.values[value], low.layout(value), transposed)

    left, right = (op.b, op.a) if transposed else (op.a, op.b)
    names = [multiplied_as(element_name(tensor_of(value).element_type)) for value in (left, right)]
    if op.pairs is not None:
        names = [SHORT_OF[name] for name in names]
    a, b = operand(left), operand(right)
    sparse = op.metadata is not None
    metadata = None if op.metadata is None else operand(op.metadata)
    scales = [operand(value) for value in op.scales]
    element = tensor_of(op.d).element_type
    sums = (
        [to_f32(low, each, element) for each in low.values[op.c]]
        if isinstance(element, Float16Type)
        else list(low.values[op.c])
    )
    product = _instruction(op, names, b.rows, sparse)
    layout = low.layout(op.d)
    warps = numbers_of(encoding.warps_per_cta)
    rows = range(0, max(ROWS * warps[0], operand_rows(layout, transposed)), ROWS * warps[0])
    columns = range(0, max(COLUMNS * warps[1], operand_rows(layout, not transposed)), COLUMNS * warps[1])
    # Fragments of the operand that has fewer of them stay in registers during a step. Those of the other one come and go.
    by_columns = len(rows) * product.a_fragment.registers <= len(columns) * product.b_fragment.registers
    blocks = (
        [(row, column) for column in columns for row in rows] if by_columns else list(itertools.product(rows, columns))
    )
    words: dict[tuple[int, int], Reg] = {}
    # One step of K after the other, so that registers hold the operands of one step, also those that the assembler
    # converts.
    for k in range(0, b.rows, product.columns):
        stored, each = (k // 2, _selected(product, k)) if sparse else (k, product)

        @functools.cache
        def left_of(row: int, stored: int = stored) -> Sequence[tuple[Reg, ...]]:
            return fragment_parts(low, lambda r, c: a.at(row + r, stored + c), product.a_fragment, product.a, op.parts)

        @functools.cache
        def right_of(column: int, k: int = k) -> Sequence[tuple[Reg, ...]]:
            return fragment_parts(low, lambda r, c: b.at(k + r, column + c), product.b_fragment, product.b, op.parts)

        for row, column in blocks:
            extra: tuple[Reg, ...] = ()
            if metadata is not None:
                extra = (metadata_word(low, metadata, row // METADATA_ROWS, k, left, words),)
            extra += tuple(
                each.at(first, k // SCALED_COLUMNS) for each, first in zip(scales, (row, column), strict=False)
            )
            places = _sum_places(layout, transposed, row, column)
            _multiply(low, each, (left_of(row), right_of(column), extra), sums, places)
    return tuple(from_f32(low, each, element) for each in sums) if isinstance(element, Float16Type) else tuple(sums)


def operand_rows(layout: Layout, transposed: bool) -> int:
    """Rows of the sums in the product."""
    return layout.shape[1 if transposed else 0]


def _instruction(op: DotOp, names: Sequence[str], k: int, sparse: bool) -> Mma:
    """The instruction with the most columns of K that fits the tile, and the widest sums."""
    a, b = names
    kind, scale = (SCALED, SCALE) if op.scales else (kind_of(a, b), "")
    d = pairs_of(kind)[a, b][0]
    known = [Mma(a, b, d, each, sparse, kind=kind, scale=scale) for each in legal_k(a, sparse, kind)]
    fitting = [each for each in known if each.columns <= k]
    if not fitting:
        raise unsupported(
            f"a dot of {names[0]} sums at least {known[0].columns} elements of K, not {k}",
            op,
            "choose a BLOCK_K of at least that",
        )
    return fitting[-1]


def _selected(product: Mma, k: int) -> Mma:
    """The instruction with the selector of the product that begins at column `k`."""
    return replace(product, selector=k // product.columns % product.selectors)


def _multiply(
    low: Lowering,
    product: Mma,
    operands: tuple[Sequence[tuple[Reg, ...]], Sequence[tuple[Reg, ...]], tuple[Reg, ...]],
    sums: list[Reg],
    at: Sequence[int],
) -> None:
    """Add one product to the sums `at`, in new registers. operands: parts of A, parts of B, metadata and scales."""
    a, b, extra = operands
    before = tuple(sums[place] for place in at)
    total = before if len(a) == 1 else (low.constant(0.0, "f32"),) * len(at)
    for left, right in part_pairs(len(a)):
        if len(a) > 1 and left == right == 0:
            total = without_nan(low, total)
        results = tuple(low.k.regs(sums[0].type, len(at)))
        low.k.emit(product, results, a[left], b[right], total, *extra)
        total = results
    if len(a) > 1:
        # Tensor cores truncate what they add to a sum. An f32 addition rounds.
        total = tuple(low.k.add_f32(*pair) for pair in zip(before, total, strict=True))
    for place, result in zip(at, total, strict=True):
        sums[place] = result


def _sum_places(layout: Layout, transposed: bool, row: int, column: int) -> list[int]:
    """The numbers of the registers with the sums of one block, in the order of the instruction."""
    tile = Operand(tuple(Reg("b32", number) for number in range(len(layout.registers))), layout, transposed)
    return [tile.at(row + r, column + c).index for r, c in ((0, 0), (0, 1), (8, 0), (8, 1))]


def fragment_parts(low: Lowering, find: Find, fragment: Fragment, name: str, count: int) -> Sequence[tuple[Reg, ...]]:
    """The operand's 32-bit registers for one instruction, for each of its parts."""
    known: dict[tuple[int, int], Registers] = {}

    def part(number: int, row: int, column: int) -> Reg:
        if (row, column) not in known:
            known[row, column] = parts_of(low, find(row, column), count)
        return known[row, column][number]

    return [_fragment_words(low, partial(part, number), fragment, name) for number in range(count)]


def _fragment_words(low: Lowering, find: Find, fragment: Fragment, name: str) -> tuple[Reg, ...]:
    """The operand's 32-bit registers for one instruction."""
    rows, columns = fragment.coordinates()
    count, packed = fragment.registers, fragment.packed
    return tuple(
        _packed(low, [find(int(rows[word, part, 0]), int(columns[word, part, 0])) for part in range(packed)], name)
        for word in range(count)
    )


def _packed(low: Lowering, elements: Sequence[Reg], name: str) -> Reg:
    """Pack elements in one register, the first one in the lowest bits."""
    if name == "tf32":
        return low.emit(Bitcast("b32"), elements[0])
    word = pack_elements(low, elements, WORD // len(elements))
    return low.k.shl(word, SHIFTS[name]) if name in SHIFTS else word


def metadata_word(
    low: Lowering, metadata: Operand, row: int, k: int, values: SSAValue, known: dict[tuple[int, int], Reg]
) -> Reg:
    """The metadata word that the thread supplies for 16 rows and the columns from `k` on."""
    word = k // word_columns(tensor_of(values).element_type)
    if (row, word) not in known:
        halves = [metadata.at(row, WORD_ENTRIES * word + half) for half in (0, 1)]
        known[row, word] = pack_elements(low, halves, WORD // len(halves))
    return known[row, word]
