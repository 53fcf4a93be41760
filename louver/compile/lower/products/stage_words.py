"""Stores results of 32 bits to the staging area, one or two words a lane, without bank conflicts.

Rows ([M, N]): a lane has two neighbouring columns, so the 16 lanes of half a warp write 32 bytes in each of four lines.
The swizzle alone puts lines r and r ^ 1 (for spans of 128 bytes; r and r ^ 2 for spans of 64) into the same pieces. So
every second one of these lines stores the eight columns that are half a line further on. That is two groups for a span
of 128, and one for a span of 64:

    lines     0    1    2    3     r = lane / 4 of a half warp, span 128, the store named after group 0
    group     0    2    0    2
    pieces   0 1  5 4  2 3  7 6

Columns ([N, M]): a line is one column, in which eight lanes have neighbouring words. The swizzle permutes the four
columns of a warp's store differently, so the 32 words are in all 32 banks.
"""

from __future__ import annotations

from louver.compile.lower.products.epilogue import stored_bits
from louver.compile.lower.products.results import Half, Results
from louver.compile.lower.products.staging import Area, Chunk, Lane
from louver.compile.lower.products.state import Lowering
from louver.isa.memory import Store
from louver.ptx.module import Address, Reg

GROUP_BYTES = 32
"""Bytes of eight columns in a line."""


def stage_rows(low: Lowering, area: Area, results: Results, chunk: Chunk, lane: Lane) -> None:
    """Stage a chunk of an output [M, N]."""
    k = low.k
    line = k.mad_lo(lane.warp, area.warp_rows, lane.row)
    apart = area.span // 64
    swapped = _swapped(low, area, lane)
    first = area.swizzled(k, lane.row, k.shr(lane.pair, 1))
    if swapped is not None:
        first = k.xor(first, k.selp(2 * apart, 0, swapped))
    groups = area.span // GROUP_BYTES
    word = k.shl(k.and_(lane.pair, 1), 3)
    places = [k.add(area.address(k, line, k.xor(first, 2 * group)), word) for group in range(groups)]
    for panel in range(chunk.columns // area.line_elements):
        start = chunk.offset + panel * area.panel_bytes
        for group in (g for g in range(groups) if not g & apart):
            here = _stored(results, chunk, panel * groups + group)
            there = None if swapped is None else _stored(results, chunk, panel * groups + group + apart)
            for half, own in enumerate(here):
                at = start + half * 8 * area.span
                if there is None:
                    _store(low, Address(places[group], at), *own)
                else:
                    _store_swapped(low, (places[group], places[group + apart]), at, own, there[half], swapped)


def _swapped(low: Lowering, area: Area, lane: Lane) -> Reg | None:
    """Whether the lane writes a group of columns other than the group of the store; None if no lane does."""
    bit = {128: 1, 64: 2}.get(area.span)
    return None if bit is None else low.k.setp("ne", "u32", low.k.and_(lane.row, bit), 0)


def _store_swapped(
    low: Lowering, places: tuple[Reg, Reg], offset: int, here: Half, there: Half, swapped: Reg | None
) -> None:
    assert swapped is not None
    k = low.k
    for place, own, other in zip(places, (here, there), (there, here), strict=True):
        chosen = (k.selp(theirs, mine, swapped) for mine, theirs in zip(own, other, strict=True))
        _store(low, Address(place, offset), *chosen)


def stage_columns(low: Lowering, area: Area, results: Results, chunk: Chunk, lane: Lane) -> None:
    """Stage a chunk of an output [N, M]: two panels of 32 rows, each of two warps, or one panel for a gated product."""
    k = low.k
    line = k.shl(lane.pair, 1)
    warps = area.line_elements // area.warp_rows
    piece = k.mad_lo(k.and_(lane.warp, warps - 1), area.warp_rows // 4, k.shr(lane.row, 2))
    first = area.swizzled(k, line, piece)
    word = k.mad_lo(k.div(lane.warp, warps), area.panel_bytes, k.shl(k.and_(lane.row, 3), 2))
    base = k.add(area.address(k, line, first), word)
    # Other rows and columns of the lane: row r + 8 is two pieces further, column c + 1 is the next line. Both flip one
    # bit.
    places = [[k.xor(base, 16 * (2 * half + pair)) for pair in (0, 1)] for half in (0, 1)]
    for group in range(chunk.columns // 8):
        for half, row in enumerate(_stored(results, chunk, group)):
            for pair, value in enumerate(row):
                at = chunk.offset + (8 * group + pair) * area.span
                _store(low, Address(places[half][pair], at), value)


def _stored(results: Results, chunk: Chunk, group: int) -> tuple[Half, ...]:
    low, element = results.low, results.op.element.data
    rows = results.group(chunk, group)
    return tuple((stored_bits(low, row[0], element), stored_bits(low, row[1], element)) for row in rows)


def _store(low: Lowering, address: Address, *words: Reg) -> None:
    if len(words) == 1:
        low.k.emit(Store("shared", words[0].type), address, words[0])
    else:
        low.k.emit(Store("shared", words[0].type, 2), address, words)
