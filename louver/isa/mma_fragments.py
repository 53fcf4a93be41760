"""Fragments of one warp's product (mma.sync, mma.sp): each lane's elements of D[16, 8] = A[16, k] B[k, 8] + C[16, 8].

p is the number of elements in a register: 1, 2 or 4 for 32-, 16- or 8-bit types. T is a lane, r a register. The first
element is in the low bits of a register. In `Fragment`, the rows of B are those of K.

C and D: a register holds one element of f32 or s32, or two of f16 (d0 d1 in register 0, d2 d3 in register 1):

    row    cols 0 1     cols 2 3     cols 4 5     cols 6 7
     0     T0: d0 d1    T1: d0 d1    T2: d0 d1    T3: d0 d1
     1     T4: d0 d1    T5: d0 d1    T6: d0 d1    T7: d0 d1
     …
     8     T0: d2 d3    T1: d2 d3    T2: d2 d3    T3: d2 d3
     …
    15     T28: d2 d3   T29: d2 d3   T30: d2 d3   T31: d2 d3

A: two registers for 4p columns, four for 8p. In a sparse product, columns are those of stored values, half of K:

    row    cols 0 … p-1   p … 2p-1   2p … 3p-1   3p … 4p-1   4p … 5p-1   …   7p … 8p-1
     0     T0: r0         T1: r0     T2: r0      T3: r0      T0: r2      …   T3: r2
     1     T4: r0         T5: r0     T6: r0      T7: r0      T4: r2      …   T7: r2
     …
     8     T0: r1         T1: r1     T2: r1      T3: r1      T0: r3      …   T3: r3

B: one register for each 4p rows of K. A sparse product has all rows of K, so up to four registers:

    rows         col 0    col 1    col 2    …    col 7
    0 … p-1      T0: r0   T4: r0   T8: r0   …    T28: r0
    p … 2p-1     T1: r0   T5: r0   T9: r0   …    T29: r0
    2p … 3p-1    T2: r0   T6: r0   T10: r0  …    T30: r0
    3p … 4p-1    T3: r0   T7: r0   T11: r0  …    T31: r0
    4p … 5p-1    T0: r1   T4: r1   …

C, D and A of 8p columns are one warp's parts of the wgmma fragments in `fragments.py`.

Source: PTX ISA, Matrix Fragments for mma.m16n8k4, k8, k16, k32, and for sparse mma.m16n8k8, k16, k32, k64.
"""

from __future__ import annotations

import functools
from typing import Literal

from louver.isa.fragments import Fragment, Step
from louver.isa.instruction import LANES

ROWS = 16
"""Rows of A and D."""

COLUMNS = 8
"""Columns of B and D."""

ElementBits = Literal[8, 16, 32]


def _lanes(width: int) -> tuple[Step, ...]:
    """Lane bits 0-1 step over `width` columns, bits 2-4 over rows."""
    return (0, width), (0, 2 * width), (1, 0), (2, 0), (4, 0)


@functools.lru_cache(maxsize=4)
def warp_accumulator(d: Literal["f32", "f16", "s32"]) -> Fragment:
    """C and D, [16, 8]: four registers for f32 and s32, two for f16."""
    return Fragment(
        f"D m16n8 {d}", COLUMNS, 16 if d == "f16" else 32, _lanes(2), ((0, 1), (8, 0)), rows=ROWS, threads=LANES
    )


@functools.lru_cache(maxsize=8)
def warp_operand_a(bits: ElementBits, columns: int) -> Fragment:
    """A, [16, columns], in two or four registers. In a sparse product, columns are those of stored values."""
    packed = 32 // bits
    element = (*_inside(packed, (0, 1)), (8, 0), (0, 4 * packed))
    return Fragment(f"A m16k{columns} {bits}-bit", columns, bits, _lanes(packed), element, rows=ROWS, threads=LANES)


@functools.lru_cache(maxsize=16)
def warp_operand_b(bits: ElementBits, k: int) -> Fragment:
    """B, [k, 8], in one, two or four registers."""
    packed = 32 // bits
    lanes = ((packed, 0), (2 * packed, 0), (0, 1), (0, 2), (0, 4))
    element = (*_inside(packed, (1, 0)), (4 * packed, 0))
    return Fragment(f"B k{k}n8 {bits}-bit", COLUMNS, bits, lanes, element, rows=k, threads=LANES)


def _inside(packed: int, step: Step) -> tuple[Step, ...]:
    """Steps of the elements within one register; `step` is the first."""
    return tuple((row << bit, column << bit) for bit, (row, column) in enumerate([step] * (packed.bit_length() - 1)))
