"""Entries of metadata in the order of the hardware, from entries in rows.

Codes at computed addresses lie in rows: entry g of a row has the codes of its groups 4g to 4g + 3. In rows, an entry has the row of
its elements, so that both have one row number and one address. Threads that choose elements by their codes have the entries of
their own elements in either order: then nothing moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from xdsl.ir import Attribute, Operation, SSAValue

from louver.compile.decompose.memory import Axes
from louver.compile.rewrite.insert import insert_before
from louver.compile.rewrite.tile_numbers import TileNumbers
from louver.ir import tile as tt
from louver.ir.tile.metadata import METADATA_ROWS, QUAD, WORD_ENTRIES, word_columns
from louver.ir.tile.types import element_bits, tensor_of
from louver.isa.metadata import ENTRY_CODES, MAPS

HALF_ROWS = METADATA_ROWS // 2
"""Rows of the lower halves of metadata words. The upper ones, or those of odd threads, have as many."""


def hardware_places(
    make: TileNumbers, block: SSAValue, entry: SSAValue, element: Attribute, columns: int
) -> tuple[SSAValue, SSAValue]:
    """Row and first column in a tile of each entry of its metadata. Source: `louver.ir.tile.metadata`, `louver.isa.metadata`.

    block, entry: row and column of the metadata. columns: of the tile.
    """
    map_ = MAPS[element_bits(element)]
    word, rest = make.quotient(entry, WORD_ENTRIES), make.rest(entry, WORD_ENTRIES)
    thread, half = make.quotient(rest, 2), make.rest(rest, 2)
    row = make.add(make.times(block, METADATA_ROWS), make.quotient(thread, QUAD))
    if map_.selectors == 2:
        row, share = make.add(row, make.times(half, HALF_ROWS)), make.rest(thread, QUAD)
    else:
        row = make.add(row, make.times(make.rest(thread, 2), HALF_ROWS))
        share = make.add(make.times(make.rest(make.quotient(thread, 2), 2), 2), half)
    first = make.add(make.times(word, word_columns(element)), make.times(share, ENTRY_CODES * map_.group))
    # A tile of fewer columns than a word has entries that no product reads.
    return row, make.rest(first, columns) if columns < word_columns(element) else first


def in_hardware_order(entries: SSAValue, axes: Axes, element: Attribute, op: Operation) -> SSAValue:
    """The metadata of a tile, from a tile with the entries of each row: the inverse of `hardware_places`.

    axes: rows and columns of both. op: what comes next. A tile of fewer columns than a word repeats its entries, which no product
    reads.
    """

    def made(kind: Callable[[SSAValue, Sequence[int]], Operation], value: SSAValue, to: Sequence[int]) -> SSAValue:
        return insert_before(op, kind(value, to))

    turned = axes.columns == 0
    value = made(tt.TransOp, entries, (1, 0)) if turned else entries
    rows, count = tensor_of(value).get_shape()
    blocks, shares = rows // METADATA_ROWS, min(count, QUAD)
    value = made(tt.ReshapeOp, value, (blocks, 2, HALF_ROWS, count // shares, shares))
    if MAPS[element_bits(element)].selectors == 2:
        value = made(tt.TransOp, value, (0, 3, 2, 4, 1))
        if shares < QUAD:
            shape = (blocks, count // shares, HALF_ROWS, 1, shares, 2)
            value = made(tt.ReshapeOp, value, shape)
            value = insert_before(op, tt.BroadcastOp(value, (*shape[:3], QUAD // shares, *shape[4:])))
    else:
        value = made(tt.ReshapeOp, value, (blocks, 2, HALF_ROWS, count // shares, QUAD // 2, 2))
        value = made(tt.TransOp, value, (0, 3, 2, 4, 1, 5))
    shape = tensor_of(value).get_shape()
    value = made(tt.ReshapeOp, value, (blocks, prod(shape[1:])))
    return made(tt.TransOp, value, (1, 0)) if turned else value
