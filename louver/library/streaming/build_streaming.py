"""Streaming kernels on groups in registers, by the PTX builder.

A CTA has the threads of a warpgroup. A tile has 64 rows and four steps along them. In every kernel, a thread has the
rows and spans of its words of metadata (`louver.isa.metadata`). So each thread stores four whole words of metadata:

    16-bit types and tf32   rows r and r + 8, four threads side by side, one step at a time
    8-bit types             row r, two threads side by side, two steps at a time

Converts elements on their way into a sparse tensor: an activation, a scale, and another element type.

The activation is computed in f32 and rounded once, after the scale. Elements are selected before: what `before` makes of
them has the order of their activations, which are not rounded yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from louver.isa.convert import FP8_MAX, Fp8, Half
from louver.isa.move import Bitcast
from louver.isa.scalar import Binary
from louver.library.streaming.frame import WARPS, Frame, Natural, Span
from louver.library.streaming.lanes import Byte, Lanes, numbers
from louver.library.streaming.place import Place, ahead
from louver.library.streaming.record import LEAST_SCALE, WHOLE_INDICES, Streaming
from louver.library.streaming.words import Words
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Kernel, Reg


@dataclass(frozen=True, slots=True)
class Conversion:
    """The conversion of a kernel. inverse: register with 1 / scale in f32; None without a scale."""

    k: KernelBuilder
    record: Streaming
    inverse: Reg | None = None

    @classmethod
    def of(cls, frame: Frame) -> Conversion:
        """The conversion of a kernel whose scale, if it has one, is given."""
        k, record = frame.k, frame.record
        if record.scaling is None:
            return cls(k, record)
        bits = frame.args["scale"]
        if record.scaling == "array":
            bits = k.reg("b32")
            k.load_global((bits,), Address(frame.args["scale"]))
        return cls(k, record, divided(k, 1.0, as_f32(k, bits)))

    def before(self, words: Sequence[Reg]) -> list[Reg]:
        """Elements whose magnitudes have the order of those of the activations."""
        if self.record.activation is None:
            return list(words)
        zero = self.k.mov(0)
        return [self.k.packed("max.NaN", self._half, word, zero) for word in words]

    def largest(self, words: Sequence[Reg], found: Reg) -> None:
        """Raise the register `found`, 0 or more, to the magnitudes of the results of `before` for some words, element by
        element. NaNs do not count.
        """
        k, low = self.k, Lanes(self.k, self.record.type.bits).low
        for word in words:
            size = word if self.record.activation is not None else k.and_(word, low)
            k.mov(k.packed("max", self._half, found, size), into=found)

    def activated(self, word: Reg) -> list[Reg]:
        """The activations of the elements of a word that `before` made, as f32."""
        found = numbers(Lanes(self.k, self.record.type.bits), self.record.type, word)
        return found if self.record.activation is None else [self.k.mul_f32(x, x) for x in found]

    def after(self, words: Sequence[Reg]) -> list[Reg]:
        """The words of stored values, from words that `before` made, in memory order."""
        k, stored = self.k, self.record.stored_type
        if not self.record.converts:
            return list(words)
        values = [value for word in words for value in self.activated(word)]
        if self.inverse is not None:
            values = [k.mul_f32(value, self.inverse) for value in values]
        if stored.bits == 16:
            return [k.pair_from_f32(cast("Half", stored.name), *values[at : at + 2]) for at in range(0, len(values), 2)]
        pairs = [k.fp8_pair_from_f32(cast("Fp8", stored.name), *values[at : at + 2]) for at in range(0, len(values), 2)]
        return [k.pack_b32(low, high) for low, high in zip(pairs[::2], pairs[1::2], strict=True)]

    def scale_of(self, largest: Reg) -> Reg:
        """The scale of a row, from the largest activation, as f32."""
        k = self.k
        scale = k.reg("f32")
        k.emit(Binary("max", "f32"), scale, divided(k, largest, FP8_MAX[cast("Fp8", self.record.stored)]), LEAST_SCALE)
        return scale

    @property
    def _half(self) -> Half:
        return cast("Half", self.record.type.name)


def divided(k: KernelBuilder, a: Reg | float, b: Reg | float) -> Reg:
    """a / b in f32, to nearest even."""
    result = k.reg("f32")
    k.emit(Binary("div.rn", "f32"), result, a, b)
    return result


def as_f32(k: KernelBuilder, bits: Reg) -> Reg:
    """The number whose bits are in a register."""
    result = k.reg("f32")
    k.emit(Bitcast("f32"), result, bits)
    return result


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
