"""Writes the metadata words that products load (`louver.isa.prepack`), from a thread's bytes of indices."""

from __future__ import annotations

from collections.abc import Sequence

from louver.isa.instruction import LANES
from louver.isa.metadata import CODE_BITS, CODES, GROUPS, WARP_ROWS
from louver.isa.prepack import LOAD_BYTES, WORD_BYTES, WORDS
from louver.library.streaming.frame import WARPS, Frame
from louver.library.streaming.lanes import Byte, assemble
from louver.library.streaming.place import Corner
from louver.ptx.module import Address

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
        """Write the words of all four steps of a tile."""
        match self._frame.record.words:
            case None:
                return
            case "rows":
                self._store_rows(corner)
            case "words":
                self._store_words(corner)

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
