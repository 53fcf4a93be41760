"""8×8 matrices of 16-bit elements between a warp's registers and shared memory. Source: PTX ISA, ldmatrix and stmatrix.

Register i of all lanes is matrix i: lane l holds elements 2·(l % 4), + 1 of row l / 4. Lanes 8i … 8i + 7 give the
shared addresses of its eight rows, 16 bytes each and aligned to 16. If transposed, these are its columns.

    row 0: lanes  0  1  2  3      a row in shared memory: 16 bytes, of lane 4r      2 elements
    row 1: lanes  4  5  6  7                                               4r + 1  2 elements …
    …
    row 7: lanes 28 29 30 31
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from louver.isa.instruction import LANES, Bits, Effect, Operand, Requirement, pointer
from louver.isa.machine import Outcome, WarpState
from louver.isa.rule import RuleError

ROWS = 8
"""Rows of a matrix, and 16-bit elements of a row."""

ROW_BYTES = 16

_COUNTS = (1, 2, 4)


def _check(count: int) -> None:
    if count not in _COUNTS:
        raise RuleError(f"1, 2 or 4 matrices move at once, got {count}")


def _addresses(address: Bits, count: int) -> Bits:
    # Lanes past the last matrix have no address. They repeat the others without effect.
    return np.tile(address[: ROWS * count], LANES // (ROWS * count))


@dataclass(frozen=True, slots=True)
class StoreMatrix(Effect):
    """`stmatrix.sync.aligned.m8n8.xN[.trans].shared.b16 [a], {…}`: 1, 2 or 4 matrices to shared memory."""

    transpose: bool = False
    count: Literal[1, 2, 4] = 4

    aligned = True
    needs = Requirement((7, 8), "sm_90")

    def __post_init__(self) -> None:
        _check(self.count)

    @property
    def operands(self) -> tuple[Operand, ...]:
        return pointer("a", "b32"), Operand("r", "in", "b32", self.count, "register", braces=True)

    @property
    def mnemonic(self) -> str:
        return f"stmatrix.sync.aligned.m8n8.x{self.count}{'.trans' if self.transpose else ''}.shared.b16"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        address, registers = inputs
        matrices = np.ascontiguousarray(registers).view(np.uint16).reshape(self.count, ROWS, ROWS)
        rows = matrices.transpose(0, 2, 1) if self.transpose else matrices
        data = np.ascontiguousarray(rows).view(np.uint8).reshape(ROWS * self.count, ROW_BYTES)
        warp.store("shared", _addresses(address, self.count), np.tile(data, (LANES // len(data), 1)))


@dataclass(frozen=True, slots=True)
class LoadMatrix(Effect):
    """`ldmatrix.sync.aligned.m8n8.xN[.trans].shared.b16 {…}, [a]`: 1, 2 or 4 matrices from shared memory."""

    transpose: bool = False
    count: Literal[1, 2, 4] = 4

    aligned = True

    def __post_init__(self) -> None:
        _check(self.count)

    @property
    def operands(self) -> tuple[Operand, ...]:
        return Operand("r", "out", "b32", self.count, "register", braces=True), pointer("a", "b32")

    @property
    def mnemonic(self) -> str:
        return f"ldmatrix.sync.aligned.m8n8.x{self.count}{'.trans' if self.transpose else ''}.shared.b16"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        data = warp.load("shared", _addresses(inputs[0], self.count), ROW_BYTES)[: ROWS * self.count]
        rows = np.ascontiguousarray(data).view(np.uint16).reshape(self.count, ROWS, ROWS)
        matrices = rows.transpose(0, 2, 1) if self.transpose else rows
        return (np.ascontiguousarray(matrices).reshape(self.count, -1).view(np.uint32),)
