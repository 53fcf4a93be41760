"""Writes the metadata words that products load (`louver.isa.metadata`), from a thread's bytes of indices."""

from __future__ import annotations

from collections.abc import Sequence

from louver.isa.instruction import LANES
from louver.isa.metadata import CODE_BITS, CODES, GROUPS, LOAD_BYTES, WARP_ROWS, WORD_BYTES, WORDS
from louver.library.streaming.frame import WARPS, Frame
from louver.library.streaming.lanes import Byte, assemble
from louver.library.streaming.place import Corner
from louver.library.streaming.record import WHOLE_INDICES
from louver.ptx.module import Address, Reg

BYTES = CODES * CODE_BITS // 8
"""Bytes of a word."""


class Words:
    """A thread's metadata words of a tile. Does nothing for kernels without metadata."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._words = [frame.k.mov(0) for _ in range(WORDS)] if frame.record.words is not None else []

    def take(self, spans: Sequence[Sequence[Byte]]) -> None:
        """Append the words of the next steps, from the bytes of their spans. Rows of a word are consecutive spans."""
        if not self._words:
            return
        k, whole = self._frame.k, [byte for indices in spans for byte in indices]
        new = assemble(k, [whole[at : at + BYTES] for at in range(0, len(whole), BYTES)])
        # The loop body is the same code for all steps. So the words are shifted, instead of written to changing
        # registers.
        for to, word in zip(self._words, [*self._words[len(new) :], *new], strict=True):
            k.mov(word, into=to)

    def store(self, corner: Corner) -> None:
        """Write the words of all four steps of a tile, and the indices if no thread has written its own."""
        if self._frame.record.indices == WHOLE_INDICES:
            self._store_indices(corner)
        match self._frame.record.words:
            case None:
                return
            case "rows":
                self._store_rows(corner)
            case "words":
                self._store_words(corner)

    def _store_indices(self, corner: Corner) -> None:
        """Write the indices of the tile in their natural order. Rows are whole pieces, one for each thread of a row."""
        frame, k, record = self._frame, self._frame.k, self._frame.record
        rows, size = frame.shape
        piece = WHOLE_INDICES // record.spans
        first = k.mad_lo(frame.span, record.columns // record.spans, corner.column)
        row_bytes = k.div(size, record.columns // WHOLE_INDICES)
        column = k.mad_wide(frame.span, piece, k.mad_wide(frame.column_tile, WHOLE_INDICES, frame.args["indices"]))
        for own, words in zip(frame.rows, self._pieces(), strict=True):
            row = k.add(corner.row, own)
            inside = k.and_pred(k.setp("lt", "u32", row, rows), k.setp("lt", "u32", first, size))
            line = k.mad_wide(k.mad_lo(corner.entry, rows, row), row_bytes, column)
            k.store_global(Address(line), words, guard=inside)

    def _pieces(self) -> list[list[Reg]]:
        """For each row of the thread the indices of some columns, in memory order: those of all threads of the row in one
        step (16 bits), or in two (8 bits).
        """
        k, record = self._frame.k, self._frame.record
        words = list(self._words)
        sides = [bit for bit, (_, groups) in enumerate(record.map.thread) if groups]
        # Bit i of a thread's place in its row and bit i of the step change places; with one such bit, it is the upper
        # one of the step.
        for number, bit in enumerate(sides, 2 - len(sides)):
            upper = k.setp("ne", "u32", k.and_(self._frame.thread, 1 << bit), 0)
            for low in (step for step in range(WORDS) if not step >> number & 1):
                high = low | 1 << number
                other = k.shuffle_xor(k.selp(words[low], words[high], upper), 1 << bit)
                words[low], words[high] = k.selp(other, words[low], upper), k.selp(words[high], other, upper)
        if len(sides) == 1:
            return [[words[0], words[2], words[1], words[3]]]
        return [[k.permute(words[at], words[at + 1], half) for at in (0, 2)] for half in (0x5410, 0x7632)]

    def _store_words(self, corner: Corner) -> None:
        """Write the words as products read them. Prepacked metadata is padded to whole tiles, so all words are
        written.
        """
        frame, k = self._frame, self._frame.k
        block = k.mad_lo(corner.entry, frame.args["row_tiles"], corner.number)
        load = k.mad_lo(block, k.special("%nctaid.x"), frame.column_tile)
        base = k.mad_wide(load, LOAD_BYTES, k.mad_wide(frame.thread, BYTES, frame.args["words"]))
        for at, word in enumerate(self._words):
            k.store_global(Address(base, at * WORD_BYTES), word)

    def _store_rows(self, corner: Corner) -> None:
        """Write the words in the layout of `metadata_rows`. Only warps with rows and words with columns are written,
        because this layout has no other padding.
        """
        frame, k, record = self._frame, self._frame.k, self._frame.record
        rows, size = frame.shape
        columns = GROUPS * record.pattern.m
        warps, count = (k.div(k.add(n, by - 1), by) for n, by in ((rows, WARP_ROWS), (size, columns)))
        warp = k.mad_lo(corner.number, WARPS, k.div(frame.thread, LANES))
        first = k.mul_lo(frame.column_tile, WORDS)
        line = k.mad_lo(k.mad_lo(corner.entry, warps, warp), count, first)
        lane = k.mad_wide(k.and_(frame.thread, LANES - 1), BYTES, frame.args["words"])
        base = k.mad_wide(line, BYTES * LANES, lane)
        for at, word in enumerate(self._words):
            inside = k.and_pred(k.setp("lt", "u32", warp, warps), k.setp("lt", "u32", k.add(first, at), count))
            k.store_global(Address(base, at * BYTES * LANES), word, guard=inside)
