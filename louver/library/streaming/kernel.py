"""Streaming kernels on groups in registers, by the PTX builder.

A CTA has the threads of a warpgroup. A tile has 64 rows and four steps along them. In every kernel, a thread has the
rows and spans of its words of metadata (`louver.isa.metadata`). So each thread stores four whole words of metadata:

    16-bit types and tf32   rows r and r + 8, four threads side by side, one step at a time
    8-bit types             row r, two threads side by side, two steps at a time
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from louver.library.streaming.converted import Conversion
from louver.library.streaming.frame import WARPS, Frame, Span
from louver.library.streaming.lanes import Byte
from louver.library.streaming.natural import Natural
from louver.library.streaming.place import Place, ahead
from louver.library.streaming.record import WHOLE_INDICES, Streaming
from louver.library.streaming.words import Words
from louver.ptx.module import Kernel, Reg


def build(record: Streaming) -> Kernel:
    """The kernel of a record. Its grid is columns of tiles × at most the rows of tiles of all entries."""
    frame = Frame(record, shared=4 * WARPS * record.pattern.m if record.kind == "check" else 0)
    work = {
        "prune": _prune,
        "check": _check,
        "compress": _compress,
        "dense": _expand,
        "take": _take,
        "prepack": _prepack,
    }
    work[record.kind](frame)
    return frame.k.finish()


def _prune(frame: Frame) -> None:
    source, out = frame.source(), frame.out()

    def work(spans: Sequence[Span], place: Place) -> None:
        for span, words in zip(spans, [source.load(*span) for span in spans], strict=True):
            out.store(*span, frame.groups.pruned(words))

    with frame.tiles() as tile:
        frame.stream(tile, work, source, out)


def _check(frame: Frame) -> None:
    source = frame.source()
    tally = [frame.k.mov(0) for _ in range(frame.record.pattern.m)]

    def work(spans: Sequence[Span], place: Place) -> None:
        for span, words in zip(spans, [source.load(*span) for span in spans], strict=True):
            frame.groups.counted(words, tally, _Note(frame, place, span))

    with frame.tiles() as tile:
        frame.stream(tile, work, source)
    frame.leave_found()
    frame.leave_tally(tally)


@dataclass(frozen=True, slots=True)
class _Note:
    """Emits code that lists a group and counts its lost -0.0. The code is in a branch that few spans take."""

    frame: Frame
    place: Place
    span: Span

    def __call__(self, number: int, count: Reg, zeros: Reg) -> None:
        frame, k = self.frame, self.frame.k
        n, m = frame.record.pattern.n, frame.record.pattern.m
        row, step = self.span
        allowed = k.setp("le", "u32", count, n)
        crowd = k.add(count, zeros)
        lost = k.selp(k.sub(crowd, n), 0, k.and_pred(allowed, k.setp("gt", "u32", crowd, n)))
        k.add(frame.found.lost, lost, into=frame.found.lost)
        inside = self.place.inside(k, row, ahead(frame.record, step) + number * m)
        wrong = k.setp("ne" if frame.record.exact else "gt", "u32", count, n)
        group = k.add(
            k.mul_lo(self.place.span, frame.record.span_groups),
            step * frame.record.spans * frame.record.span_groups + number,
        )
        groups = k.div(k.add(frame.shape[1], m - 1), m)
        whole = k.mad_wide(k.mad_lo(self.place.entry, frame.shape[0], self.place.rows[row]), groups, k.widen_u64(group))
        frame.list_group(whole, count, k.and_pred(inside, wrong))


def _compress(frame: Frame) -> None:
    source, natural, metadata = frame.source(), frame.natural(), Words(frame)
    conversion = Conversion.of(frame)

    def work(spans: Sequence[Span], place: Place) -> None:
        loaded = [source.load(*span) for span in spans]
        units = [frame.groups.planes(conversion.before(words)) for words in loaded]
        metadata.take(
            [store(frame, natural, conversion, span, planes) for span, planes in zip(spans, units, strict=True)]
        )

    with frame.tiles() as tile:
        frame.stream(tile, work, source, natural)
        metadata.store(tile)
    frame.leave_found()


def store(
    frame: Frame, natural: Natural, conversion: Conversion, span: Span, units: Sequence[Sequence[Reg]]
) -> list[Byte]:
    """Compress a span, given as the planes of its units, and store it. Returns its bytes of indices."""
    values, indices = frame.groups.compressed(units, frame.found)
    natural.store_values(*span, conversion.after(values))
    if frame.record.indices != WHOLE_INDICES:
        natural.store_indices(*span, indices)
    return indices


def _expand(frame: Frame) -> None:
    natural, out = frame.natural(), frame.out()

    def work(spans: Sequence[Span], place: Place) -> None:
        loaded = [(natural.load_values(*span), natural.load_indices(*span)) for span in spans]
        for span, (values, indices) in zip(spans, loaded, strict=True):
            filled = frame.groups.filled(indices, frame.groups_left(place, span), frame.found)
            out.store(*span, frame.groups.expanded(values, filled, frame.found))

    with frame.tiles() as tile:
        frame.stream(tile, work, natural, out)
    frame.leave_found()


def _take(frame: Frame) -> None:
    source, natural = frame.source(), frame.natural()

    def work(spans: Sequence[Span], place: Place) -> None:
        loaded = [(source.load(*span), natural.load_indices(*span)) for span in spans]
        for span, (words, indices) in zip(spans, loaded, strict=True):
            natural.store_values(*span, frame.groups.taken(words, indices))

    with frame.tiles() as tile:
        frame.stream(tile, work, source, natural)


def _prepack(frame: Frame) -> None:
    natural, metadata = frame.natural(), Words(frame)

    def work(spans: Sequence[Span], place: Place) -> None:
        loaded = [natural.load_indices(*span) for span in spans]
        filled = [
            frame.groups.filled(indices, frame.groups_left(place, span), None)
            for span, indices in zip(spans, loaded, strict=True)
        ]
        for indices in filled if frame.record.counts else ():
            for places in frame.groups.places(indices):
                frame.groups.legal(places, frame.found)
        metadata.take(filled)

    with frame.tiles() as tile:
        frame.stream(tile, work, natural)
        metadata.store(tile)
    frame.leave_found()
