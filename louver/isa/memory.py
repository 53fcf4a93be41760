"""Loads and stores of global and shared memory, kernel parameters, symbols, and stmatrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from louver.isa.instruction import LANES, REGISTER_BITS, STORAGE, Bits, Effect, Operand, RegType, Requirement
from louver.isa.machine import U8, Suspend, WarpState

VECTOR = {1: "", 2: ".v2", 4: ".v4"}
"""Qualifier of each vector length."""


def _bytes_to_registers(data: U8, kind: RegType, count: int) -> Bits:
    """Registers [32] or [count, 32] from bytes [32, count · size]."""
    lanes = np.ascontiguousarray(data).view(STORAGE[kind])
    return lanes[:, 0] if count == 1 else np.ascontiguousarray(lanes.T)


def _registers_to_bytes(bits: Bits) -> U8:
    """Bytes [32, count · size] from registers [32] or [count, 32]."""
    lanes = bits[:, None] if bits.ndim == 1 else bits.T
    return np.ascontiguousarray(lanes).view(np.uint8).reshape(LANES, -1)


def _size(kind: RegType, count: int) -> int:
    return REGISTER_BITS[kind] // 8 * count


@dataclass(frozen=True, slots=True)
class Load(Effect):
    """`ld.space[.nc].vN.type d, [a]`. space: "global" or "shared". read_only: `.nc`, for data that no one writes meanwhile.

    count registers of `type` from count · size bytes, aligned to that size.
    """

    space: Literal["global", "shared"]
    type: RegType
    count: Literal[1, 2, 4] = 1
    read_only: bool = False

    def __post_init__(self) -> None:
        if self.type == "pred" or _size(self.type, self.count) > 16:
            raise ValueError(f"a load moves at most 16 bytes a lane, got {self.count} × {self.type}")
        if self.read_only and self.space != "global":
            raise ValueError("only global memory is read by .nc, got shared")

    @property
    def operands(self) -> tuple[Operand, ...]:
        """d, [a]."""
        address: RegType = "b64" if self.space == "global" else "b32"
        d = Operand("d", "out", self.type, self.count, "register", braces=self.count > 1)
        return d, Operand("a", "in", address, kind="address")

    @property
    def mnemonic(self) -> str:
        """The opcode."""
        nc = ".nc" if self.read_only else ""
        return f"ld.{self.space}{nc}{VECTOR[self.count]}.{self.type}"

    def execute(self, warp: WarpState, *inputs: Bits) -> tuple[Bits, ...] | Suspend:
        """Load each active lane's bytes."""
        data = warp.load(self.space, inputs[0], _size(self.type, self.count))
        return (_bytes_to_registers(data, self.type, self.count),)


@dataclass(frozen=True, slots=True)
class Store(Effect):
    """`st.space.vN.type [a], b`: as `Load`, the other way."""

    space: Literal["global", "shared"]
    type: RegType
    count: Literal[1, 2, 4] = 1

    def __post_init__(self) -> None:
        if self.type == "pred" or _size(self.type, self.count) > 16:
            raise ValueError(f"a store moves at most 16 bytes a lane, got {self.count} × {self.type}")

    @property
    def operands(self) -> tuple[Operand, ...]:
        """[a], b."""
        address: RegType = "b64" if self.space == "global" else "b32"
        b = Operand("b", "in", self.type, self.count, "register", braces=self.count > 1)
        return Operand("a", "in", address, kind="address"), b

    @property
    def mnemonic(self) -> str:
        """The opcode."""
        return f"st.{self.space}{VECTOR[self.count]}.{self.type}"

    def execute(self, warp: WarpState, *inputs: Bits) -> tuple[Bits, ...] | Suspend:
        """Store each active lane's bytes."""
        warp.store(self.space, inputs[0], _registers_to_bytes(inputs[1]))
        return ()


@dataclass(frozen=True, slots=True)
class LoadParameter(Effect):
    """`ld.param.type d, [name]`: a scalar kernel parameter."""

    type: Literal["u32", "u64", "f32"]

    @property
    def _register(self) -> RegType:
        registers: dict[str, RegType] = {"u32": "b32", "u64": "b64", "f32": "f32"}
        return registers[self.type]

    @property
    def operands(self) -> tuple[Operand, ...]:
        """d, [name]."""
        return Operand("d", "out", self._register, kind="register"), Operand("a", "in", "b64", kind="address")

    @property
    def mnemonic(self) -> str:
        """The opcode."""
        return f"ld.param.{self.type}"

    def execute(self, warp: WarpState, *inputs: Bits) -> tuple[Bits, ...] | Suspend:
        """Load the parameter."""
        data = warp.load("param", inputs[0], REGISTER_BITS[self._register] // 8)
        return (_bytes_to_registers(data, self._register, 1),)


@dataclass(frozen=True, slots=True)
class SymbolAddress(Effect):
    """`mov.b32 d, symbol` for shared memory, `mov.b64 d, symbol` for a parameter: the symbol's address in its space."""

    type: Literal["b32", "b64"]

    @property
    def operands(self) -> tuple[Operand, ...]:
        """d, the symbol."""
        return Operand("d", "out", self.type, kind="register"), Operand("a", "in", "b64", kind="address")

    @property
    def mnemonic(self) -> str:
        """The opcode."""
        return f"mov.{self.type}"

    def text(self, *args: str) -> str:
        """A symbol stands without brackets."""
        d, symbol = args
        return f"{self.mnemonic} {d}, {symbol.strip('[]')}"

    def execute(self, warp: WarpState, *inputs: Bits) -> tuple[Bits, ...] | Suspend:
        """The address, as the machine resolved it."""
        return (inputs[0].astype(STORAGE[self.type]),)


@dataclass(frozen=True, slots=True)
class StoreMatrix(Effect):
    """`stmatrix.sync.aligned.m8n8.x4[.trans].shared.b16 [a], {…}`: four 8×8 matrices of 16-bit elements to shared memory.

    Lane l holds elements 2·(l % 4), + 1 of row l / 4 of each matrix. Lanes 8i … 8i + 7 give the addresses of the eight
    rows of matrix i, 16 bytes each; with `transpose` those are its columns. Source: PTX ISA, stmatrix.
    """

    transpose: bool = False

    aligned: ClassVar[bool] = True

    @property
    def operands(self) -> tuple[Operand, ...]:
        """[a], {r0, r1, r2, r3}."""
        return Operand("a", "in", "b32", kind="address"), Operand("r", "in", "b32", 4, "register", braces=True)

    @property
    def mnemonic(self) -> str:
        """The opcode."""
        return f"stmatrix.sync.aligned.m8n8.x4{'.trans' if self.transpose else ''}.shared.b16"

    @property
    def requires(self) -> Requirement:
        """PTX 7.8, sm_90."""
        return Requirement((7, 8), "sm_90a")

    def execute(self, warp: WarpState, *inputs: Bits) -> tuple[Bits, ...] | Suspend:
        """Gather each matrix from the lanes and store its rows (or columns) at the lanes' addresses."""
        address, registers = inputs
        elements = np.ascontiguousarray(registers).view(np.uint16).reshape(4, 8, 8)
        rows = elements.transpose(0, 2, 1) if self.transpose else elements
        warp.store("shared", address, np.ascontiguousarray(rows).reshape(LANES, 8).view(np.uint8))
        return ()
