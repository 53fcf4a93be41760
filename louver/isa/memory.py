"""Loads, stores and atomics in global and shared memory, kernel parameters, symbols.

Source: PTX ISA, Data Movement and Conversion Instructions (ld, st, mov), red, atom.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from louver.isa.instruction import (
    LANES,
    REGISTER_BITS,
    STORAGE,
    Bits,
    Effect,
    Operand,
    RegType,
    Requirement,
    output,
    pointer,
    reads,
)
from louver.isa.machine import U8, AtomicKind, Outcome, WarpState
from louver.isa.rule import RuleError
from louver.isa.scalar import REGISTER, ScalarType, Values, to_bits, values

AtomicOrder: TypeAlias = Literal["", "acquire", "release", "acq_rel"]

VECTOR = {1: "", 2: ".v2", 4: ".v4"}
"""PTX qualifier of each vector length."""

VOLATILE = {False: "", True: ".volatile"}
"""PTX qualifier of accesses to memory that several CTAs access at once."""

WORD_BYTES = 4

MAX_BYTES = 16
"""Most bytes that one lane loads or stores."""


def bytes_to_registers(data: U8, kind: RegType, count: int) -> Bits:
    """Registers [32] or [count, 32] from bytes [32, count · size]."""
    lanes = np.ascontiguousarray(data).view(STORAGE[kind])
    return lanes[:, 0] if count == 1 else np.ascontiguousarray(lanes.T)


def registers_to_bytes(bits: Bits) -> U8:
    """Bytes [32, count · size] from registers [32] or [count, 32]."""
    lanes = bits[:, None] if bits.ndim == 1 else bits.T
    return np.ascontiguousarray(lanes).view(np.uint8).reshape(LANES, -1)


def in_space(space: Literal["global", "shared"]) -> Operand:
    """The address of an access to a space."""
    return pointer("a", "b64" if space == "global" else "b32")


def _size(kind: RegType, count: int) -> int:
    return REGISTER_BITS[kind] // 8 * count


def check_size(what: str, kind: RegType, count: int) -> None:
    """Raise ValueError unless a lane can load or store `count` registers of that kind at once."""
    if kind == "pred" or count not in VECTOR or _size(kind, count) > MAX_BYTES:
        raise RuleError(f"a {what} moves 1, 2 or 4 registers of at most {MAX_BYTES} bytes a lane, got {count} × {kind}")


@dataclass(frozen=True, slots=True)
class Load(Effect):
    """`ld[.volatile].space[.nc][.L1::no_allocate].vN.type d, [a]`: load `count` registers, aligned to all their bytes.

    space: "global" or "shared". read_only: `.nc`, for data that nobody writes meanwhile. streaming: data that is read
    once, and not kept in L1. volatile: of data that other CTAs store meanwhile. These flags are for global memory.
    """

    space: Literal["global", "shared"]
    type: RegType
    count: Literal[1, 2, 4] = 1
    read_only: bool = False
    streaming: bool = False
    volatile: bool = False

    def __post_init__(self) -> None:
        check_size("load", self.type, self.count)
        if self.volatile and (self.read_only or self.streaming):
            hint = "read_only" if self.read_only else "streaming"
            raise RuleError(f"a volatile load has no hints, got {hint}: leave read_only and streaming out")
        if (self.read_only or self.streaming or self.volatile) and self.space != "global":
            raise RuleError(
                "only global memory is read by .nc, past L1 or volatile, got shared: leave read_only, streaming and volatile out"
            )

    @property
    def operands(self) -> tuple[Operand, ...]:
        d = Operand("d", "out", self.type, self.count, "register", braces=self.count > 1)
        return d, in_space(self.space)

    @property
    def mnemonic(self) -> str:
        cache = (".nc" if self.read_only else "") + (".L1::no_allocate" if self.streaming else "")
        return f"ld{VOLATILE[self.volatile]}.{self.space}{cache}{VECTOR[self.count]}.{self.type}"

    @property
    def requires(self) -> Requirement:
        return Requirement((7, 4)) if self.streaming else Requirement()

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        size = _size(self.type, self.count)
        data = warp.load(self.space, inputs[0], size, read_only=self.read_only, volatile=self.volatile)
        return (bytes_to_registers(data, self.type, self.count),)


@dataclass(frozen=True, slots=True)
class Store(Effect):
    """`st[.volatile].space.vN.type [a], b`: the reverse of `Load`."""

    space: Literal["global", "shared"]
    type: RegType
    count: Literal[1, 2, 4] = 1
    volatile: bool = False

    def __post_init__(self) -> None:
        check_size("store", self.type, self.count)

    @property
    def operands(self) -> tuple[Operand, ...]:
        b = Operand("b", "in", self.type, self.count, "register", braces=self.count > 1)
        return in_space(self.space), b

    @property
    def mnemonic(self) -> str:
        return f"st{VOLATILE[self.volatile]}.{self.space}{VECTOR[self.count]}.{self.type}"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        warp.store(self.space, inputs[0], registers_to_bytes(inputs[1]), volatile=self.volatile)


@dataclass(frozen=True, slots=True)
class LoadParameter(Effect):
    """`ld.param.type d, [name]`: a scalar kernel parameter."""

    type: Literal["u32", "u64", "f32"]

    opcode = "ld.param.{self.type}"

    @property
    def operands(self) -> tuple[Operand, ...]:
        return output(REGISTER[self.type]), pointer("a", "b64")

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        data = warp.load("param", inputs[0], REGISTER_BITS[REGISTER[self.type]] // 8)
        return (bytes_to_registers(data, REGISTER[self.type], 1),)


@dataclass(frozen=True, slots=True)
class SymbolAddress(Effect):
    """`mov.b32 d, symbol` for shared memory, `mov.b64 d, symbol` for a parameter: the address of the symbol."""

    type: Literal["b32", "b64"]

    opcode = "mov.{self.type}"

    @property
    def operands(self) -> tuple[Operand, ...]:
        return output(self.type), pointer("a", "b64")

    def text(self, *args: str) -> str:
        """PTX has no brackets around this symbol."""
        d, symbol = args
        return f"{self.mnemonic} {d}, {symbol.strip('[]')}"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        if self.type == "b32":
            return (warp.shared_symbol(inputs[0]),)
        return (inputs[0].astype(STORAGE[self.type]),)


_SM_80, _SM_90 = Requirement(), Requirement((7, 8), "sm_90")


@dataclass(frozen=True, slots=True)
class AtomicType:
    """A type of atomic additions. register: class of a number or pair. suffix: in PTX. requires: target, version."""

    register: RegType
    suffix: str
    requires: Requirement = _SM_80


ATOMIC_TYPES: dict[AtomicKind, AtomicType] = {
    "u32": AtomicType("b32", "u32"),
    "s32": AtomicType("b32", "s32"),
    "u64": AtomicType("b64", "u64"),
    "f32": AtomicType("f32", "f32"),
    "f16": AtomicType("b16", "noftz.f16"),
    "bf16": AtomicType("b16", "noftz.bf16", _SM_90),
    "f16x2": AtomicType("b32", "noftz.f16x2"),
    "bf16x2": AtomicType("b32", "noftz.bf16x2", _SM_90),
}
"""The types of `AtomicAdd`. The halves of a pair are added separately."""


@dataclass(frozen=True, slots=True)
class AtomicAdd(Effect):
    """`atom.global.add.type d, [a], b`: add, and return the old number. Without `returns`, `red.global.add` without d.

    Relaxed: it orders no other access. Floating-point sums depend on the order of lanes and warps. Addresses are
    multiples of the type's size, 4 bytes for a pair.
    """

    type: AtomicKind
    returns: bool = False

    def __post_init__(self) -> None:
        if self.type not in ATOMIC_TYPES:
            raise RuleError(f"atomics add {', '.join(ATOMIC_TYPES)}, got {self.type}: convert the value first")

    @property
    def operands(self) -> tuple[Operand, ...]:
        kind = ATOMIC_TYPES[self.type].register
        d = (output(kind),) if self.returns else ()
        # PTX has no constants of halves.
        halves = "f16" in self.type
        b = Operand("b", "in", kind, kind="register" if halves else "value")
        return *d, pointer("a", "b64"), b

    @property
    def mnemonic(self) -> str:
        return f"{'atom' if self.returns else 'red'}.global.add.{ATOMIC_TYPES[self.type].suffix}"

    @property
    def requires(self) -> Requirement:
        return ATOMIC_TYPES[self.type].requires

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        old = warp.atomic_add("global", inputs[0], inputs[1], self.type, returns=self.returns)
        return (old,) if self.returns else ()


@dataclass(frozen=True, slots=True)
class AddVector(Effect):
    """`red.global.add.vN.type [a], {…}`: add `count` f32 or pairs of halves to neighbours in memory, each separately.

    Relaxed, like `AtomicAdd`. The address is a multiple of the vector's bytes.
    """

    type: AtomicKind = "f32"
    count: Literal[2, 4] = 2

    needs = Requirement((8, 1), "sm_90")

    def __post_init__(self) -> None:
        if self.type not in ("f32", "f16x2", "bf16x2") or self.count not in (2, 4):
            raise RuleError(f"a vector of 2 or 4 f32, f16x2 or bf16x2 is added, got {self.count} × {self.type}")

    @property
    def operands(self) -> tuple[Operand, ...]:
        kind = ATOMIC_TYPES[self.type].register
        return pointer("a", "b64"), Operand("b", "in", kind, self.count, braces=True)

    @property
    def mnemonic(self) -> str:
        return f"red.global.add.{'' if self.type == 'f32' else 'noftz.'}v{self.count}.{self.type}"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        address, numbers = inputs
        whole = np.ascontiguousarray(numbers.T).view(np.dtype((np.void, WORD_BYTES * self.count)))[:, 0]
        warp.atomic_add("global", address, whole, self.type, returns=False)


def _second(old: Bits, value: Bits) -> Bits:
    return value


ATOMIC_UPDATES: dict[str, tuple[tuple[str, ...], Callable[[Values, Values], Values]]] = {
    "min": (("s32", "u32", "s64", "u64"), np.minimum),
    "max": (("s32", "u32", "s64", "u64"), np.maximum),
    "and": (("b32", "b64"), np.bitwise_and),
    "or": (("b32", "b64"), np.bitwise_or),
    "xor": (("b32", "b64"), np.bitwise_xor),
    "inc": (("u32",), lambda old, most: np.where(old >= most, np.zeros_like(old), old + np.ones_like(old))),
    "exch": (("b32", "b64"), _second),
}
"""Types and meaning of the other atomics. `inc` counts from 0 to b, then starts again at 0."""


@dataclass(frozen=True, slots=True)
class AtomicUpdate(Effect):
    """`atom.global.op.type d, [a], b`: update, and return the old number. Without `returns`, `red.global.op` without d.

    op: a key of `ATOMIC_UPDATES`; `exch` always returns. order: "" is relaxed, like `AtomicAdd`. "release": accesses
    before it come before those after an "acquire" on the GPU that reads its number or a later one. "acq_rel": both.
    Source: PTX ISA, atom.
    """

    op: str
    type: ScalarType
    returns: bool = False
    order: AtomicOrder = ""

    def __post_init__(self) -> None:
        if self.op not in ATOMIC_UPDATES:
            raise RuleError(f"atomics change memory by {', '.join(ATOMIC_UPDATES)}, got {self.op!r}")
        types = ATOMIC_UPDATES[self.op][0]
        if self.type not in types:
            raise RuleError(f"an atomic {self.op} is on {', '.join(types)}, got {self.type}")
        if self.op == "exch" and not self.returns:
            raise RuleError("an exchange returns what was there, got returns=False: PTX has no reduction by exchange")
        if self.order not in get_args(AtomicOrder):
            raise RuleError(f'an atomic\'s order is "", "acquire", "release" or "acq_rel", got {self.order!r}')

    @property
    def operands(self) -> tuple[Operand, ...]:
        kind = REGISTER[self.type]
        d = (output(kind),) if self.returns else ()
        return *d, pointer("a", "b64"), *reads(kind, "b")

    @property
    def mnemonic(self) -> str:
        order = f".{self.order}.gpu" if self.order else ""
        return f"{'atom' if self.returns else 'red'}{order}.global.{self.op}.{self.type}"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        """Fences before and after stand for the order."""
        meaning = ATOMIC_UPDATES[self.op][1]

        def change(old: Bits, value: Bits) -> Bits:
            return to_bits(meaning(values(old, self.type), values(value, self.type)), self.type)

        if self.order in ("release", "acq_rel"):
            warp.fence_gpu()
        found = warp.atomic_update("global", inputs[0], inputs[1], change, returns=self.returns)
        if self.order in ("acquire", "acq_rel"):
            warp.fence_gpu()
        return (found,) if self.returns else ()


@dataclass(frozen=True, slots=True)
class AtomicCompareAndSwap(Effect):
    """`atom.global.cas.type d, [a], b, c`: replace a number with the bits of b by c; d is the old one. Relaxed."""

    type: Literal["b16", "b32", "b64"]

    opcode = "atom.global.cas.{self.type}"

    @property
    def operands(self) -> tuple[Operand, ...]:
        return output(self.type), pointer("a", "b64"), *reads(self.type, "b", "c")

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        def change(old: Bits, given: Bits) -> Bits:
            expected, value = given
            return np.where(old == expected, value, old)

        return (warp.atomic_update("global", inputs[0], np.stack(inputs[1:]), change, returns=True),)
