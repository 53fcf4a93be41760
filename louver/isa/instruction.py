"""An instruction as one object: PTX text, operands, requirements and meaning.

The printer uses `text`, the validator `operands` and `requires`, the emulator `compute` or `execute`. Nothing else in
Louver knows what an instruction does.
"""

from __future__ import annotations

import abc
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from louver.isa.rule import RuleError

if TYPE_CHECKING:
    from louver.isa.machine import Outcome, WarpState

RegType = Literal["pred", "b16", "b32", "b64", "f32"]
"""Register classes. In PTX, a register of bits holds any type of its size; f32 is separate for readability."""

REGISTER_BITS: dict[RegType, int] = {"pred": 1, "b16": 16, "b32": 32, "b64": 64, "f32": 32}
"""Bits of each register class in one lane."""

LANES = 32
"""Threads of a warp."""

Bits = NDArray[Any]
"""Raw bits of a register over a warp: [32], or [count, 32] for a vector operand. dtype: bool for pred, else uint16,
uint32 or uint64 by size. f32 registers hold their bit pattern as uint32.
"""

STORAGE: dict[RegType, type[np.generic]] = {
    "pred": np.bool_,
    "b16": np.uint16,
    "b32": np.uint32,
    "b64": np.uint64,
    "f32": np.uint32,
}
"""NumPy dtype for the bits of each register class."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of an instruction form.

    name: as in the PTX ISA. role: "in", "out" or "inout". type: register class. count: registers of a vector operand,
    `{a, b, …}`. braces: print a vector of one with braces. kind: "value" (register or constant), "register",
    "immediate" (constant), "address" (register plus byte offset, in brackets). values: those that it may have, if
    they are not all of its class; the validator checks constants, the emulator registers of effects too.
    """

    name: str
    role: Literal["in", "out", "inout"]
    type: RegType
    count: int = 1
    kind: Literal["value", "register", "immediate", "address"] = "value"
    braces: bool = False
    values: range | None = None
    register: RegType | None = field(init=False, repr=False, compare=False)
    """The class of a register that it may be on its own."""

    @property
    def rule(self) -> str:
        """Its values, in words."""
        assert self.values is not None
        step = f", a multiple of {self.values.step}" if self.values.step > 1 else ""
        return f"is from {self.values[0]} to {self.values[-1]}{step}"

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "register", self.type if self.count == 1 and self.kind in ("value", "register") else None
        )
        if self.count < 1:
            raise RuleError(f"operand {self.name}: count must be at least 1, got {self.count}")
        if self.role != "in" and self.kind not in ("register", "value"):
            raise RuleError(f"operand {self.name}: an output must be a register, got kind {self.kind!r}")


def output(type: RegType, name: str = "d") -> Operand:
    """The register that an instruction writes."""
    return Operand(name, "out", type, kind="register")


def register(name: str, type: RegType) -> Operand:
    """A register that an instruction reads."""
    return Operand(name, "in", type, kind="register")


def pointer(name: str, type: RegType) -> Operand:
    """An address: "b32" in shared memory, "b64" in global memory or of a parameter."""
    return Operand(name, "in", type, kind="address")


def reads(type: RegType, *names: str) -> tuple[Operand, ...]:
    """Registers or constants that an instruction reads."""
    return tuple(Operand(name, "in", type) for name in names)


@dataclass(frozen=True, slots=True)
class Requirement:
    """Requirements of an instruction: least PTX ISA version, and least target or, with a suffix, only target."""

    ptx: tuple[int, int] = (7, 0)
    target: str = "sm_80"


SM90 = Requirement((8, 0), "sm_90")
"""Of asynchronous copies with mbarriers, and of clusters."""


class Once(type):
    """The type of a class whose instances are immutable: equal arguments give the same instance."""

    if not TYPE_CHECKING:

        def __call__(cls, *args, **kwargs):
            key = cls, args, *kwargs.items()
            found = _MADE.get(key)
            if found is None:
                found = _MADE[key] = super().__call__(*args, **kwargs)
            return found


_MADE: dict[Any, Any] = {}
"""The instances by class and arguments."""


class _Form(Once, abc.ABCMeta):
    """The type of forms."""


def _keep(cls: type[Instruction]) -> None:
    """Let each form keep what is computed of it: a kernel has thousands of instructions, but few forms."""
    for name in ("operands", "outputs", "mnemonic", "requires"):
        computed = cls.__dict__.get(name)
        if isinstance(computed, property) and computed.fget is not None:
            kept = functools.cached_property(computed.fget)
            kept.__set_name__(cls, name)
            type.__setattr__(cls, name, kept)


class Instruction(metaclass=_Form):
    """Base of all instruction forms. Subclasses are frozen dataclasses whose fields are the qualifiers.

    A form sets `opcode`, `takes` and `needs` if they do not depend on its fields. Otherwise it overrides `mnemonic`,
    `operands` or `requires`.
    """

    # A dictionary for what is kept, beside the slots of the fields.
    __slots__ = ("__dict__",)
    aligned: ClassVar[bool] = False
    """Whether all lanes of the warp must execute it together (`.aligned`)."""

    opcode: ClassVar[str]
    """The mnemonic, with fields of the form in braces: `cvt.rn.{self.to}.f32`."""

    takes: ClassVar[tuple[Operand, ...]] = ()
    needs: ClassVar[Requirement] = Requirement()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _keep(cls)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The operands in the order of the PTX text, including outputs."""
        return self.takes

    @property
    def outputs(self) -> int | None:
        """The number of its operands that are written, if these come first and no other is; None where one is read too."""
        roles = [operand.role for operand in self.operands]
        count = roles.count("out")
        return count if roles == ["out"] * count + ["in"] * (len(roles) - count) else None

    @property
    def mnemonic(self) -> str:
        """The opcode with qualifiers, such as `add.u32`."""
        return self.opcode.format(self=self)

    @property
    def requires(self) -> Requirement:
        return self.needs

    def text(self, *args: str) -> str:
        """The PTX statement without guard and semicolon. args: one printed operand for each of `operands`."""
        return f"{self.mnemonic} {', '.join(args)}" if args else self.mnemonic


_keep(Instruction)


class Pure(Instruction):
    """An instruction whose outputs depend, lane by lane, only on its inputs."""

    __slots__ = ()

    @abc.abstractmethod
    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        """Outputs in operand order, from inputs (roles "in" and "inout") in operand order."""


class Effect(Instruction):
    """An instruction that uses memory, barriers, other lanes or an asynchronous engine."""

    __slots__ = ()

    @abc.abstractmethod
    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        """Run on one warp.

        Address operands are uint64 [32] and include the byte offset. Only lanes in `warp.active` count. A `Suspend`
        must leave the machine unchanged, except for an arrival.
        """


class Emit(Protocol):
    """Appends an instruction to a kernel and returns its result register."""

    def __call__(self, op: Instruction, /, *args: Any) -> Any: ...
