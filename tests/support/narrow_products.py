"""Products of elements below 8 bits and of blocks with scales: natural data, placed by the formulas of the PTX ISA.

Nothing here comes from `louver.isa`, so that it checks fragments, containers, metadata and scales.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from louver.isa.mma import Mma
from support.warp_products import THREADS, WarpProduct

LEGAL = (0x4, 0x8, 0x9, 0xC, 0xD, 0xE)
"""Two increasing 2-bit indices, the first in the low bits."""

FLOATS = {"e2m1": (2, 1, 1), "e2m3": (2, 3, 1), "e3m2": (3, 2, 3), "e4m3": (4, 3, 7), "e5m2": (5, 2, 15)}
"""Bits of the exponent and of the fraction, and the exponent's bias."""


class NarrowProduct(NamedTuple):
    """A product of four warps. exact: A (scaled, dense) times B (scaled), float64 [64, 8]."""

    product: WarpProduct
    exact: np.ndarray


def bits_of(name: str) -> int:
    """Bits of an element."""
    return 4 if name in ("s4", "u4") else 1 + sum(FLOATS[name][:2])


def number(code: int, name: str) -> float:
    """The value of an element's bits."""
    if name == "u4":
        return code
    if name == "s4":
        return code - 16 if code >= 8 else code
    exponent_bits, fraction_bits, bias = FLOATS[name]
    sign = -1.0 if code >> (exponent_bits + fraction_bits) else 1.0
    exponent = code >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction = (code & ((1 << fraction_bits) - 1)) / (1 << fraction_bits)
    return sign * (fraction * 2.0 ** (1 - bias) if exponent == 0 else (1 + fraction) * 2.0 ** (exponent - bias))


def draw(rng: np.random.Generator, name: str, shape: tuple[int, int]) -> np.ndarray:
    """Random bits of elements, uint8. Those of 8-bit floats are near 1, so that sums are exact."""
    if bits_of(name) < 8:
        return rng.integers(0, 1 << bits_of(name), shape).astype(np.uint8)
    exponent, sign = FLOATS[name][2] + rng.integers(-2, 3, shape), rng.integers(0, 2, shape)
    return (sign << 7 | exponent << FLOATS[name][1] | rng.integers(0, 1 << FLOATS[name][1], shape)).astype(np.uint8)


def values(codes: np.ndarray, name: str) -> np.ndarray:
    """The numbers of elements, float64."""
    return np.vectorize(number, otypes=[np.float64])(codes, name)


def make_narrow(form: Mma, rng: np.random.Generator) -> NarrowProduct:
    """A random product by one instruction. Bits and lanes that the instruction does not read are random too."""
    stored, b = draw(rng, form.a, (64, form.k_stored)), draw(rng, form.b, (form.k, 8))
    pair = 2 if form.k in (64, 128) and (form.a in ("s4", "u4") or form.k == 128) else 1
    if not form.sparse:
        pair = 2
    groups = form.k // (4 * pair)
    codes = rng.choice(LEGAL, (64, groups)).astype(np.uint8) if form.sparse else None
    dense = np.zeros((64, form.k))
    numbers = values(stored, form.a)
    if codes is None:
        dense = numbers
    else:
        for row, group in np.ndindex(64, groups):
            for which, index in enumerate((codes[row, group] & 3, codes[row, group] >> 2)):
                for part in range(pair):
                    column = 4 * pair * group + pair * int(index) + part
                    dense[row, column] = numbers[row, 2 * pair * group + pair * which + part]
    right = values(b, form.b)
    words = [] if codes is None else [_metadata(rng, form, codes)]
    if form.scale:
        of_a, of_b, scales = _scales(rng, form)
        dense = dense * of_a.repeat(form.k // form.blocks, axis=1)
        right = right * of_b.repeat(form.k // form.blocks, axis=0)
        words += scales
    a_words = np.concatenate([_a(form, stored[16 * w : 16 * w + 16], pair) for w in range(4)], axis=1)
    b_words = np.tile(_b(form, b, pair), 4)
    meta = None if not words else np.stack(words) if len(words) > 1 else words[0]
    product = WarpProduct(form, stored, b, codes, ((form, a_words, b_words, meta),))
    return NarrowProduct(product, dense @ right)


def _placed(code: int, name: str, part: int, pair: int) -> int:
    """The bits of an element within its register."""
    if pair == 2:
        return int(code) << 4 * part
    return int(code) << (8 * part + (2 if name == "e2m1" else 0))


def _a(form: Mma, stored: np.ndarray, pair: int) -> np.ndarray:
    """Registers of A, uint32 [count, 32]: 4 or 8 neighbours of a row in each."""
    each = 4 * pair
    found = np.zeros((form.k_stored // each // 2, 32), np.uint32)
    for register, lane, part in np.ndindex(len(found), 32, each):
        row, column = lane // 4 + 8 * (register % 2), each * (lane % 4) + part + 4 * each * (register // 2)
        found[register, lane] |= _placed(stored[row, column], form.a, part, pair)
    return found


def _b(form: Mma, b: np.ndarray, pair: int) -> np.ndarray:
    """Registers of B, uint32 [count, 32]: 4 or 8 neighbours of a column in each."""
    each = 4 * pair
    found = np.zeros((form.k // each // 4, 32), np.uint32)
    for register, lane, part in np.ndindex(len(found), 32, each):
        found[register, lane] |= _placed(
            b[each * (lane % 4) + part + 4 * each * register, lane // 4], form.b, part, pair
        )
    return found


def _metadata(rng: np.random.Generator, form: Mma, codes: np.ndarray) -> np.ndarray:
    """Eight groups of a row in each word. Of four lanes, the even ones have the row, the odd ones the row below by 8."""
    words = rng.integers(0, 1 << 32, THREADS, dtype=np.uint32)
    for warp, lane in np.ndindex(4, 32):
        half = lane // 2 % 2
        if codes.shape[1] == 8 and half != form.selector:
            continue
        first = 8 * half if codes.shape[1] == 16 else 0
        row = 16 * warp + lane // 4 + 8 * (lane % 2)
        words[32 * warp + lane] = sum(int(codes[row, first + index]) << 4 * index for index in range(8))
    return words


def _scales(rng: np.random.Generator, form: Mma) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Scales of A, [64, blocks], of B, [blocks, 8], and the words of both."""
    low = 127 - 3 if form.scale == "ue8m0" else (7 - 2) << 3
    raw_a = rng.integers(low, low + 6, (64, form.blocks)).astype(np.uint8)
    raw_b = rng.integers(low, low + 6, (form.blocks, 8)).astype(np.uint8)
    words = [rng.integers(0, 1 << 32, THREADS, dtype=np.uint32).view(np.uint8).reshape(THREADS, 4) for _ in "ab"]
    for row, block in np.ndindex(64, form.blocks):
        lane = 32 * (row // 16) + 4 * (row % 8) + 2 * form.scale_a[1] + row % 16 // 8
        words[0][lane, form.scale_a[0] + block] = raw_a[row, block]
    for warp, column, block in np.ndindex(4, 8, form.blocks):
        words[1][32 * warp + 4 * column + form.scale_b[1], form.scale_b[0] + block] = raw_b[block, column]

    def numbers(raw: np.ndarray) -> np.ndarray:
        return 2.0 ** (raw.astype(np.float64) - 127) if form.scale == "ue8m0" else values(raw, "e4m3")

    return numbers(raw_a), numbers(raw_b), [each.view(np.uint32).reshape(THREADS) for each in words]
