"""Converts elements on their way into a sparse tensor: an activation, a scale, and another element type.

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
from louver.library.streaming.frame import Frame
from louver.library.streaming.lanes import Lanes, numbers
from louver.library.streaming.record import LEAST_SCALE, Streaming
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Reg


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
