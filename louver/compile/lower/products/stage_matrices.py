"""Stores results of 16 and 8 bits to the staging area by `stmatrix`, as 8×8 matrices of 16-bit elements.

A line of a matrix is a piece of 16 bytes. The eight lines of a matrix are in eight lines of the area, and the swizzle
spreads their pieces over all banks.

16-bit results of a warp form a matrix directly. For an output [N, M] the instruction transposes it. With 8-bit results,
an element of a matrix holds two neighbours along its line, so lanes first exchange bytes:

- For an output [M, N], the four lanes of a row exchange. A lane holds two columns of each eight columns, and gets four
  neighbours of 16.
- For an output [N, M], the eight lanes of a column exchange. A lane holds rows r and r + 8, and gets rows 2r and 2r + 1
  of 16.
"""

from __future__ import annotations

from dataclasses import dataclass

from louver.compile.lower.products.epilogue import half, stored_bits, stored_pair
from louver.compile.lower.products.results import Half, Results
from louver.compile.lower.products.staging import PIECE, Area, Chunk, Lane
from louver.compile.lower.products.state import Lowering
from louver.ptx.module import Address, Imm, Reg


@dataclass(frozen=True, slots=True)
class _Exchange:
    """The two lanes from which a lane gets words, and the selector of the bytes that it takes."""

    first: Reg
    second: Reg
    bytes: Reg

    def of(self, low: Lowering, word: Reg) -> Reg:
        k = low.k
        return k.permute(k.shuffle(word, self.first), k.shuffle(word, self.second), self.bytes)


def stage_rows(low: Lowering, area: Area, results: Results, chunk: Chunk, lane: Lane) -> None:
    """Stage a chunk of an output [M, N].

    Four matrices are the two row halves (r and r + 8) of two neighbouring pieces of a line, or four pieces for a gated
    product.
    """
    k = low.k
    matrix, inner = k.shr(lane.lane, 3), k.and_(lane.lane, 7)
    halves = area.warp_rows // 8
    row = k.add(k.shl(k.and_(matrix, 1), 3), inner) if halves == 2 else inner
    line = k.mad_lo(lane.warp, area.warp_rows, row)
    first = area.swizzled(k, inner, k.div(matrix, halves))
    pieces, together = area.span // PIECE, 4 // halves
    places = [area.address(k, line, k.xor(first, piece)) for piece in range(0, pieces, together)]
    exchange = _along_rows(low, lane) if area.size == 1 else None
    for piece in range(0, chunk.columns * area.size // PIECE, together):
        panel, inside = divmod(piece, pieces)
        words = [word for each in range(together) for word in _row_words(results, chunk, piece + each, exchange)]
        address = Address(places[inside // together], chunk.offset + panel * area.panel_bytes)
        k.store_matrices(address, words, transpose=False)


def _row_words(results: Results, chunk: Chunk, piece: int, exchange: _Exchange | None) -> list[Reg]:
    """The lane's words of a piece, one for each of its rows."""
    low, element = results.low, results.op.element.data
    if exchange is None:
        return [stored_pair(low, *row, half(element)) for row in results.group(chunk, piece)]
    left, right = results.group(chunk, 2 * piece), results.group(chunk, 2 * piece + 1)
    words = [_four_bytes(low, *pair, element) for pair in zip(left, right, strict=True)]
    return [exchange.of(low, word) for word in words]


def _along_rows(low: Lowering, lane: Lane) -> _Exchange:
    """The exchange in which lane t of a row gets columns 4t to 4t + 3 of 16.

    They are the pairs of lanes 2 (t % 2) and 2 (t % 2) + 1 in group t / 2 of eight columns.
    """
    k = low.k
    first = k.or_(k.and_(lane.lane, 28), k.shl(k.and_(lane.lane, 1), 1))
    second_pairs = k.setp("ge", "u32", lane.pair, 2)
    return _Exchange(first, k.or_(first, 1), k.selp(Imm(0x7632), Imm(0x5410), second_pairs))


def stage_columns(low: Lowering, area: Area, results: Results, chunk: Chunk, lane: Lane) -> None:
    """Stage a chunk of an output [N, M].

    Four matrices are two row halves of two groups of eight columns, or four groups.
    """
    if area.size == 1:
        _stage_byte_columns(low, area, results, chunk, lane)
        return
    k = low.k
    element = half(results.op.element.data)
    matrix, inner = k.shr(lane.lane, 3), k.and_(lane.lane, 7)
    halves = area.warp_rows // 8
    together = 4 // halves
    line = k.add(k.shl(k.div(matrix, halves), 3), inner)
    piece = k.add(k.shl(lane.warp, 1), k.and_(matrix, 1)) if halves == 2 else lane.warp
    place = area.address(k, line, area.swizzled(k, inner, piece))
    for group in range(0, chunk.columns // 8, together):
        rows = [row for each in range(together) for row in results.group(chunk, group + each)]
        words = [stored_pair(low, *row, element) for row in rows]
        k.store_matrices(Address(place, chunk.offset + group * 8 * area.span), words, transpose=True)


def _stage_byte_columns(low: Lowering, area: Area, results: Results, chunk: Chunk, lane: Lane) -> None:
    k = low.k
    inner = k.and_(lane.lane, 7)
    # Lane 8q + r gives the line of column r of matrix q. That line has the lane's number, because matrix q is group q
    # of four.
    place = area.address(k, lane.lane, area.swizzled(k, inner, lane.warp))
    exchange = _along_columns(low, lane)
    for group in range(0, chunk.columns // 8, 4):
        words: list[Reg] = []
        for each in range(group, group + 4):
            first, second = results.group(chunk, each)
            words.append(exchange.of(low, _four_bytes(low, first, second, results.op.element.data)))
        k.store_matrices(Address(place, chunk.offset + group * 8 * area.span), words, transpose=True)


def _along_columns(low: Lowering, lane: Lane) -> _Exchange:
    """The exchange in which lane r of a column pair gets rows 2r and 2r + 1 of 16.

    They are row half r / 4 of lanes 2 (r % 4) and 2 (r % 4) + 1.
    """
    k = low.k
    first = k.or_(k.shl(k.and_(lane.row, 3), 3), lane.pair)
    second_half = k.setp("ge", "u32", lane.row, 4)
    return _Exchange(first, k.or_(first, 4), k.selp(Imm(0x7362), Imm(0x5140), second_half))


def _four_bytes(low: Lowering, first: Half, second: Half, element: str) -> Reg:
    """Pack four results as 8-bit elements, the first one in the lowest byte."""
    k = low.k
    match element:
        case "e4m3" | "e5m2":
            return k.pack_b32(k.fp8_pair_from_f32(element, *first), k.fp8_pair_from_f32(element, *second))
        case _:
            halves = [stored_bits(low, value, element) for value in (*first, *second)]
            return k.permute(k.pack_b32(*halves[:2]), k.pack_b32(*halves[2:]), 0x6420)
