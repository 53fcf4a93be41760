"""Operations on the groups of a span in registers: prune, compress, expand and count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from louver.formats.codes import CODE_PARTS, FILLER
from louver.isa.scalar import Binary
from louver.library.streaming.lanes import Byte, Lanes, assemble
from louver.library.streaming.record import Streaming
from louver.library.streaming.select import (
    Bit,
    at_least,
    digits,
    exactly,
    first,
    holds,
    largest,
    marked,
    pick,
    slots,
    spared,
)
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Reg


@dataclass(slots=True)
class Found:
    """Registers with the findings of a thread.

    violated: not 0 if a group has more than N non-zeros, or an illegal index.
    lost: the number of -0.0 without a slot.
    """

    violated: Reg
    lost: Reg

    @classmethod
    def none(cls, k: KernelBuilder) -> Found:
        """New registers, set to 0."""
        return cls(k.mov(0), k.mov(0))


@dataclass(frozen=True, slots=True)
class Groups:
    """The operations of streaming kernels on spans. A span is a list of words in memory order."""

    k: KernelBuilder
    record: Streaming

    @property
    def lanes(self) -> Lanes:
        return Lanes(self.k, self.record.type.bits)

    def planes(self, words: Sequence[Reg]) -> list[list[Reg]]:
        """The planes of each unit of a span."""
        m = self.record.pattern.m
        return [self.lanes.planes(words[at : at + m], m) for at in range(0, len(words), m)]

    def pruned(self, words: Sequence[Reg]) -> list[Reg]:
        """A span with zeros except for the N largest elements of each group."""
        found: list[Reg] = []
        for planes in self.planes(words):
            masks = largest(self.lanes, self.record.type, planes, self.record.pattern.n)
            found += self.lanes.in_order([self.k.and_(x, mask) for x, mask in zip(planes, masks, strict=True)])
        return found

    def compressed(self, units: Sequence[Sequence[Reg]], found: Found) -> tuple[list[Reg], list[Byte]]:
        """The words of stored values of a span, and its bytes of indices. units: the planes of each unit."""
        pattern = self.record.pattern
        if self.record.method is not None:
            # An activation makes all elements positive.
            positive = self.record.activation is not None
            masks = [largest(self.lanes, self.record.type, planes, pattern.n, positive=positive) for planes in units]
        else:
            masks = self._marked_first(units, found)
        values: list[Reg] = []
        indices: list[list[Reg]] = []
        for planes, kept in zip(units, masks, strict=True):
            stored, places = self._stored(planes, kept)
            values += self.lanes.in_order(stored)
            indices.append(places)
        return values, self._index_bytes(indices)

    def _stored(self, planes: Sequence[Reg], masks: Sequence[Reg]) -> tuple[list[Reg], list[Reg]]:
        """The values of each slot, and their places: one register of codes, or a register of indices for each slot."""
        k, lanes, pattern = self.k, self.lanes, self.record.pattern
        parts = CODE_PARTS.get(pattern)
        values: list[Reg] = []
        places: list[Reg] = []
        for slot, candidates in enumerate(slots(lanes, masks, pattern.n)):
            values.append(k.mov(pick(lanes, candidates, planes)))
            numbers = range(pattern.m) if parts is None else parts[slot]
            places.append(k.mov(pick(lanes, candidates, [lanes.each(number) for number in numbers])))
        if parts is None:
            return values, places
        code = places[0]
        for part in places[1:]:
            code = k.or_(code, part)
        return values, [code]

    def _marked_first(self, units: Sequence[Sequence[Reg]], found: Found) -> list[list[Reg]]:
        """Masks of the stored elements of groups that keep the pattern: non-zeros, then -0.0, then +0.0. Of equals, the
        lowest index comes first.
        """
        k, lanes, n = self.k, self.lanes, self.record.pattern.n
        marks = [marked(lanes, planes) for planes in units]
        # Correct for groups with at most N elements other than +0.0. The branch below corrects the other groups.
        kept = [spared(lanes, of_unit, n) for of_unit in marks]
        crowded = k.mov(0)
        for of_unit in marks:
            crowded = k.or_(crowded, at_least(k, [holds(k, mark) for mark in of_unit], n + 1))
        with k.if_(k.setp("ne", "u32", k.and_(crowded, lanes.top), 0)):
            for planes, masks in zip(units, kept, strict=True):
                self._crowded(planes, masks, found)
        return kept

    def _crowded(self, planes: Sequence[Reg], masks: Sequence[Reg], found: Found) -> None:
        """Correct the masks of groups with more than N elements other than +0.0. Records violations, and counts lost
        -0.0.
        """
        k, lanes, pattern, floating = self.k, self.lanes, self.record.pattern, self.record.type.floating
        large = [lanes.nonzero(plane) for plane in planes] if floating else marked(lanes, planes)

        def before(i: int, j: int) -> Reg:
            if not floating:
                return k.logic(lambda a, b, c: a | ~b, large[i], large[j], 0)
            signs = k.logic(lambda a, b, c: a | ~b, planes[i], planes[j], 0)
            return k.logic(lambda a, b, c: a | ~b & c, large[i], large[j], signs)

        for mask, corrected in zip(masks, first(lanes, pattern.m, pattern.n, before), strict=True):
            k.mov(corrected, into=mask)
        violated = k.mov(0)
        for size, mask in zip(large, masks, strict=True):
            violated = k.logic(lambda a, b, c: a & ~b | c, size, mask, violated)
        violated = k.and_(violated, lanes.top)
        k.or_(found.violated, violated, into=found.violated)
        for plane, size, mask in zip(planes, large, masks, strict=True) if floating else ():
            lost = k.logic(lambda a, b, c: a & ~b & ~c, plane, size, mask)
            lost = k.logic(lambda a, b, c: a & ~b & c, lost, violated, lanes.top)
            k.add(found.lost, k.count_ones(lost), into=found.lost)

    # --- indices ---------------------------------------------------------------------------------------------------
    def _index_bytes(self, units: Sequence[Sequence[Reg]]) -> list[Byte]:
        """The bytes of indices of a span, from the codes or the indices of each unit."""
        k, count = self.k, self.lanes.count
        size = 4 // count
        if self.record.pattern not in CODE_PARTS:
            return [(slot, lane * size) for places in units for lane in range(count) for slot in places]
        if count == 1:
            pairs = zip(units[::2], units[1::2], strict=True)
            return [(k.or_(low, k.shl(high, 4)), 0) for (low,), (high,) in pairs]
        # The second code of each pair is shifted to the high half of the first code's byte.
        joined = [k.or_(code, k.shr(code, 32 // count - 4)) for (code,) in units]
        return [(word, lane * size) for word in joined for lane in range(0, count, 2)]

    def places(self, indices: Sequence[Byte]) -> list[list[Reg]]:
        """For each unit of a span, its codes or its indices by slot. The inverse of `_index_bytes`."""
        k, lanes, record = self.k, self.lanes, self.record
        size, n = 4 // lanes.count, record.pattern.n
        found: list[list[Reg]] = []
        for unit in range(record.units):
            groups = range(unit * lanes.count, (unit + 1) * lanes.count)
            if record.pattern not in CODE_PARTS:
                targets = [[indices[group * n + slot] for group in groups for _ in range(size)] for slot in range(n)]
                found.append([k.and_(word, lanes.each(0xFF)) for word in assemble(k, targets)])
                continue
            (pairs,) = assemble(k, [[indices[group // 2] for group in groups for _ in range(size)]])
            odd = sum((1 << lanes.bits) - 1 << lanes.bits * lane for lane, group in enumerate(groups) if group % 2)
            code = k.logic(lambda a, b, c: a & b | ~a & c, odd, k.shr(pairs, 4), pairs)
            found.append([k.and_(code, lanes.each(0xF))])
        return found

    def expanded(self, values: Sequence[Reg], indices: Sequence[Byte], found: Found) -> list[Reg]:
        """The words of a dense span."""
        k, lanes, pattern = self.k, self.lanes, self.record.pattern
        words: list[Reg] = []
        for unit, places in enumerate(self.places(indices)):
            stored = lanes.planes(values[unit * pattern.n : (unit + 1) * pattern.n], pattern.n)
            planes = [k.mov(0) for _ in range(pattern.m)]
            for slot, here in enumerate(self._here(self.legal(places, found))):
                for i, mask in here.items():
                    planes[i] = k.logic(lambda a, b, c: a & b | c, stored[slot], mask, planes[i])
            words += lanes.in_order(planes)
        return words

    def taken(self, words: Sequence[Reg], indices: Sequence[Byte]) -> list[Reg]:
        """The words of the stored values of a dense span: the inverse of `expanded`. An illegal index takes any element."""
        k, lanes = self.k, self.lanes
        values: list[Reg] = []
        for planes, places in zip(self.planes(words), self.places(indices), strict=True):
            stored: list[Reg] = []
            for here in self._here(self.legal(places, Found.none(k))):
                stored.append(k.mov(0))
                for i, mask in here.items():
                    stored[-1] = k.logic(lambda a, b, c: a & b | c, planes[i], mask, stored[-1])
            values += lanes.in_order(stored)
        return values

    def _here(self, slots_of: Sequence[Reg]) -> list[dict[int, Reg]]:
        """For each slot of a unit, the masks of the elements that it may hold, by element. slots_of: indices."""
        k, lanes, spare = self.k, self.lanes, self.record.pattern.m - self.record.pattern.n
        # The difference keeps the top bit only if the index is equal.
        return [
            {i: lanes.spread(k.sub(lanes.top, k.xor(place, lanes.each(i)))) for i in range(slot, slot + spare + 1)}
            for slot, place in enumerate(slots_of)
        ]

    def legal(self, places: Sequence[Reg], found: Found) -> list[Reg]:
        """The index of each slot's element, from the codes or indices of a unit. Records illegal indices."""
        k, lanes, pattern = self.k, self.lanes, self.record.pattern
        slots_of = list(places)
        parts = CODE_PARTS.get(pattern)
        if parts is not None and pattern.n == 1:
            # Bit 1 of the code is the element. The code must be the one for this element.
            element = k.and_(k.shr(places[0], 1), lanes.each(1))
            first_code, second_code = parts[0]
            right = k.xor(k.mul_lo(element, first_code ^ second_code), lanes.each(first_code))
            k.or_(found.violated, k.xor(places[0], right), into=found.violated)
            return [element]
        if parts is not None:
            slots_of = [k.and_(k.shr(places[0], 2 * slot), lanes.each(3)) for slot in range(pattern.n)]
        for lower, upper in zip(slots_of, slots_of[1:], strict=False):
            self._note(k.sub(k.or_(lower, lanes.top), upper), found)
        if parts is None:
            self._note(k.sub(k.or_(slots_of[-1], lanes.top), lanes.each(pattern.m)), found)
            for slot in slots_of:
                # The comparisons above do not hold for bytes with the top bit set, which are illegal in any case.
                self._note(slot, found)
        return slots_of

    def filled(self, indices: Sequence[Byte], groups: Reg, found: Found | None) -> list[Byte]:
        """The bytes of indices of a span, with padding codes after the first `groups` groups.

        found: records a violation if the padding had other codes; None to skip this test.
        """
        k, codes = self.k, 2 * len(indices)
        if self.record.pattern not in CODE_PARTS:
            return list(indices)
        fixed: list[Byte] = []
        for at in range(0, codes, 8):
            some = indices[at // 2 : at // 2 + 4]
            (word,) = assemble(k, [some])
            count = k.reg("b32")
            k.emit(Binary("max", "s32"), count, k.sub(groups, at), 0)
            padding = k.shl(0xFFFFFFFF, k.shl(count, 2))
            right = k.logic(lambda a, b, c: a & b | ~a & c, padding, FILLER * 0x11111111, word)
            fixed += [(right, byte) for byte in range(len(some))]
            if found is not None:
                there = (1 << 8 * len(some)) - 1
                changed = k.logic(lambda a, b, c: (a ^ b) & c, word, right, there)
                k.or_(found.violated, changed, into=found.violated)
        return fixed

    # --- counts ----------------------------------------------------------------------------------------------------
    def counted(self, words: Sequence[Reg], tally: Sequence[Reg], note: Callable[[int, Reg, Reg], None]) -> None:
        """Count the groups with 1, 2, … M non-zeros in the registers of `tally`.

        note: emits code for each group of the span, from the group's number in the span, the number of its non-zeros,
            and that of its -0.0. The code is in a branch for spans with a crowded group, or with an inexact group if
            the kernel lists those.
        """
        k, lanes, pattern = self.k, self.lanes, self.record.pattern
        strange: Reg | None = None
        units: list[tuple[list[Bit], list[tuple[Reg, Reg]]]] = []
        for planes in self.planes(words):
            marks = marked(lanes, planes)
            large = [lanes.nonzero(plane) for plane in planes] if self.record.type.floating else marks
            count = digits(k, [holds(k, each) for each in large])
            exact = [exactly(k, count, number, lanes.top) for number in range(1, pattern.m + 1)]
            for register, groups in zip(tally, exact, strict=True):
                k.add(register, k.count_ones(groups), into=register)
            crowded = at_least(k, [holds(k, each) for each in marks], pattern.n + 1)
            if self.record.exact:
                crowded = k.logic(lambda a, b, c: a | ~b, crowded, exact[pattern.n - 1], 0)
            strange = crowded if strange is None else k.or_(strange, crowded)
            units.append((count, list(zip(planes, large, strict=True)) if self.record.type.floating else []))
        assert strange is not None
        with k.if_(k.setp("ne", "u32", k.and_(strange, lanes.top), 0)):
            for unit, (count, elements) in enumerate(units):
                zeros = [holds(k, k.logic(lambda a, b, c: a & ~b, sign, size, 0)) for sign, size in elements]
                negative = digits(k, zeros)
                for lane in range(lanes.count):
                    note(unit * lanes.count + lane, self._number(count, lane), self._number(negative, lane))

    def _number(self, digits_of: Sequence[Bit], lane: int) -> Reg:
        """The number of one lane, whose binary digits are in the top bits of the lane."""
        k = self.k
        found = k.mov(0)
        for place, digit in enumerate(digits_of):
            top = (lane + 1) * self.lanes.bits - 1
            bit = k.and_(k.shr(digit.register, top), 1)
            found = k.or_(found, k.shl(bit, place) if place else bit)
        return found

    def _note(self, tops: Reg, found: Found) -> None:
        k = self.k
        k.or_(found.violated, k.and_(tops, self.lanes.top), into=found.violated)
