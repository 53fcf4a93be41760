"""Register fragments: the elements that each thread holds. `mma_fragments.py` has those of one warp's products.

A fragment is a sum of steps: each bit of the thread index and of the element index moves by some rows and columns.
Elements are counted register by register, from the low bits of each.

Accumulators D (m64nN): columns 8b … 8b+7 of one warp's 16 rows. T is a lane, d an element index; the next 8 columns add
4 to each index. Warp w holds rows 16w … 16w+15. A register holds one element of f32 or s32, or two of f16 (d0 d1 in
register 0):

    row    cols 0 1     cols 2 3     cols 4 5     cols 6 7
     0     T0: d0 d1    T1: d0 d1    T2: d0 d1    T3: d0 d1
     1     T4: d0 d1    T5: d0 d1    T6: d0 d1    T7: d0 d1
     …
     8     T0: d2 d3    T1: d2 d3    T2: d2 d3    T3: d2 d3
     …
    15     T28: d2 d3   T29: d2 d3   T30: d2 d3   T31: d2 d3

Operand A in registers, 32 bytes of a row for every type: rows 0 and 8 of a warp. In a sparse product, columns are those
of stored values. p is the number of elements in a register: 1, 2 or 4 for 32-, 16- or 8-bit types:

    row    cols 0 … p-1   p … 2p-1   2p … 3p-1   3p … 4p-1   4p … 5p-1   …          7p … 8p-1
     0     T0: r0         T1: r0     T2: r0      T3: r0      T0: r2      …          T3: r2
     8     T0: r1         T1: r1     T2: r1      T3: r1      T0: r3      …          T3: r3

Source: PTX ISA, Register Fragments for wgmma.mma_async.m64nNk16, k8, k32 and their sparse siblings.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from louver.isa.rule import RuleError
from louver.isa.targets import WARPGROUP_THREADS

ROWS = 64
"""Rows of every warpgroup product."""

Step = tuple[int, int]
"""The step of one bit of an index: (rows, columns)."""

IndexArray = NDArray[np.int64]

UNSIGNED: dict[int, type[np.uint8] | type[np.uint16] | type[np.uint32]] = {8: np.uint8, 16: np.uint16, 32: np.uint32}
"""Raw storage type for each element size in bits."""


def walk(steps: tuple[Step, ...], count: int) -> tuple[IndexArray, IndexArray]:
    """Rows and columns at the indices 0 … count-1, each int64 [count]: sums of the steps of their set bits.

    The last step is the stride of all remaining bits.
    """
    index = np.arange(count, dtype=np.int64)
    rows, columns = np.zeros_like(index), np.zeros_like(index)
    last = len(steps) - 1
    for bit, (row, column) in enumerate(steps):
        weight = index >> bit if bit == last else index >> bit & 1
        rows += weight * row
        columns += weight * column
    return rows, columns


@dataclass(frozen=True, slots=True)
class Fragment:
    """A matrix [rows, columns] of elements of `bits` bits, in 32-bit registers of `threads` threads.

    thread, element: steps for the bits of the thread index and of the element index; the last step is the stride of all
    remaining bits. rows, threads: those of a warpgroup by default. Raises ValueError unless the map is a bijection.
    """

    name: str
    columns: int
    bits: Literal[8, 16, 32]
    thread: tuple[Step, ...]
    element: tuple[Step, ...]
    rows: int = ROWS
    threads: int = WARPGROUP_THREADS

    def __post_init__(self) -> None:
        if self.rows * self.columns % (self.threads * self.packed):
            raise RuleError(
                f"{self.name}: {self.columns} columns do not fill whole registers of {self.threads} threads"
            )
        rows, columns = self.coordinates()
        inside = (rows >= 0) & (rows < self.rows) & (columns >= 0) & (columns < self.columns)
        if not inside.all() or np.unique(rows * self.columns + columns).size != self.rows * self.columns:
            raise RuleError(f"{self.name}: the steps do not visit each of {self.rows} x {self.columns} elements once")

    @property
    def packed(self) -> int:
        """Elements in one register."""
        return 32 // self.bits

    @property
    def registers(self) -> int:
        """Registers of one thread."""
        return self.rows * self.columns // self.threads // self.packed

    def coordinates(self) -> tuple[IndexArray, IndexArray]:
        """Row and column of (register, part of the register, thread): two int64 [registers, packed, threads]."""
        thread_rows, thread_columns = walk(self.thread, self.threads)
        element_rows, element_columns = walk(self.element, self.registers * self.packed)
        shape = (self.registers, self.packed, self.threads)
        rows = (element_rows[:, None] + thread_rows[None, :]).reshape(shape)
        return rows, (element_columns[:, None] + thread_columns[None, :]).reshape(shape)

    def offsets(self) -> dict[tuple[int, int], int]:
        """Number of each element of a thread, by its rows and columns from the thread's first element."""
        return _offsets(self)

    def gather(self, matrix: NDArray[np.unsignedinteger]) -> NDArray[np.uint32]:
        """Registers, uint32 [registers, threads], from raw elements, unsigned [rows, columns]."""
        storage = UNSIGNED[self.bits]
        if matrix.shape != (self.rows, self.columns) or matrix.dtype != storage:
            raise RuleError(
                f"{self.name} holds [{self.rows}, {self.columns}] of {np.dtype(storage)}, got {list(matrix.shape)} of {matrix.dtype}"
            )
        parts = np.ascontiguousarray(matrix).reshape(-1)[_flat(self)]
        return np.ascontiguousarray(parts.transpose(0, 2, 1)).view(np.uint32)[:, :, 0]

    def scatter(self, registers: NDArray[np.uint32]) -> NDArray[np.unsignedinteger]:
        """Raw elements, unsigned [rows, columns], from registers, uint32 [registers, threads]."""
        if registers.shape != (self.registers, self.threads) or registers.dtype != np.uint32:
            raise RuleError(
                f"{self.name} has uint32 [{self.registers}, {self.threads}] registers, got {registers.dtype} {list(registers.shape)}"
            )
        storage = UNSIGNED[self.bits]
        parts = np.ascontiguousarray(registers)[:, :, None].view(storage).transpose(0, 2, 1)
        matrix = np.empty(self.rows * self.columns, dtype=storage)
        matrix[_flat(self)] = parts
        return matrix.reshape(self.rows, self.columns)


@functools.lru_cache(maxsize=64)
def _flat(fragment: Fragment) -> IndexArray:
    rows, columns = fragment.coordinates()
    return rows * fragment.columns + columns


@functools.lru_cache(maxsize=64)
def _offsets(fragment: Fragment) -> dict[tuple[int, int], int]:
    rows, columns = walk(fragment.element, fragment.registers * fragment.packed)
    return {(int(row), int(column)): number for number, (row, column) in enumerate(zip(rows, columns, strict=True))}


def _threads(width: int) -> tuple[Step, ...]:
    """Lane bits 0-1 step over `width` columns, bits 2-4 over rows, warp bits over 16 rows."""
    return ((0, width), (0, 2 * width), (1, 0), (2, 0), (4, 0), (16, 0), (32, 0))


@functools.lru_cache(maxsize=64)
def accumulator(n: int, d: Literal["f32", "f16", "s32"]) -> Fragment:
    """Accumulators of a product with n columns: n/2 registers for f32 and s32, n/4 for f16."""
    bits = 16 if d == "f16" else 32
    return Fragment(f"D m64n{n} {d}", n, bits, _threads(2), ((0, 1), (8, 0), (0, 8)))


@functools.lru_cache(maxsize=4)
def operand_a(bits: Literal[8, 16, 32]) -> Fragment:
    """Operand A in four registers, 32 bytes of a row. In a sparse product, columns are those of stored values."""
    packed = 32 // bits
    within: tuple[Step, ...] = {1: (), 2: ((0, 1),), 4: ((0, 1), (0, 2))}[packed]
    return Fragment(f"A {bits}-bit", 8 * packed, bits, _threads(packed), (*within, (8, 0), (0, 4 * packed)))
