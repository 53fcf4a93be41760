"""An instruction as one object: its PTX text, its operands, its limits and its meaning.

The printer uses `text`, the validator uses `operands` and `requires`, the emulator uses `compute` or `execute`,
and the tests use all of them. Nothing else in Louver knows what an instruction does.
"""

from __future__ import annotations

import abc
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from louver.isa.machine import Outcome, WarpState

RegType = Literal["pred", "b16", "b32", "b64", "f32"]
"""Register classes. PTX lets a bit-typed register stand for any type of its size; f32 is kept apart for readability."""

REGISTER_BITS: dict[RegType, int] = {"pred": 1, "b16": 16, "b32": 32, "b64": 64, "f32": 32}
"""Bits per lane of each register class."""

LANES = 32
"""Threads of a warp."""

Bits = NDArray[Any]
"""A register's raw bits over a warp: shape [32] (one register) or [count, 32] (a vector operand).
dtype: bool for pred, uint16, uint32 or uint64 by size. f32 registers hold their bit pattern as uint32."""

STORAGE: dict[RegType, type[np.generic]] = {
    "pred": np.bool_,
    "b16": np.uint16,
    "b32": np.uint32,
    "b64": np.uint64,
    "f32": np.uint32,
}
"""The NumPy dtype that holds a register class's bits."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of an instruction form.

    name: as the PTX ISA calls it. role: "in", "out" or "inout". type: register class.
    count: registers in a vector operand, `{a, b, …}`; 1 prints bare unless `braces`.
    kind: "value" (register or immediate), "register" (register only), "immediate" (compile-time constant only),
    "address" (register plus byte offset, printed in brackets).
    """

    name: str
    role: Literal["in", "out", "inout"]
    type: RegType
    count: int = 1
    kind: Literal["value", "register", "immediate", "address"] = "value"
    braces: bool = False

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"operand {self.name}: count must be at least 1, got {self.count}")
        if self.role != "in" and self.kind not in ("register", "value"):
            raise ValueError(f"operand {self.name}: an output must be a register, got kind {self.kind!r}")


@dataclass(frozen=True, slots=True)
class Requirement:
    """The requirements of an instruction on its module: the least PTX ISA version and the targets that have it."""

    ptx: tuple[int, int] = (7, 0)
    target: str = "sm_80"


SM90 = Requirement((8, 0), "sm_90")
"""Of asynchronous copies with mbarriers, and of clusters."""


class Instruction(abc.ABC):
    """Base of all instruction forms. Subclasses are frozen dataclasses whose fields are the qualifiers.

    A form states as constants what its fields do not change: `opcode`, `takes` and `needs`. It overrides the property otherwise.
    """

    __slots__ = ()
    aligned: ClassVar[bool] = False
    """True when all lanes of the warp must execute it together (`.aligned`)."""

    opcode: ClassVar[str]
    """The mnemonic, with fields of the form in braces: `cvt.rn.{self.to}.f32`."""

    takes: ClassVar[tuple[Operand, ...]] = ()
    needs: ClassVar[Requirement] = Requirement()

    def __init_subclass__(cls) -> None:
        """Make the operands of a form once: a kernel has thousands of instructions of a few forms, and each is asked often."""
        super().__init_subclass__()
        operands = cls.__dict__.get("operands")
        # A dataclass with slots is made twice, the second time of what the first one holds.
        if isinstance(operands, property) and not hasattr(operands.fget, "cache_info"):
            assert operands.fget is not None
            type.__setattr__(cls, "operands", property(functools.cache(operands.fget), doc=operands.__doc__))

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The operands in the order of the PTX text, outputs included."""
        return self.takes

    @property
    def mnemonic(self) -> str:
        """The opcode with its qualifiers, such as `add.u32`."""
        return self.opcode.format(self=self)

    @property
    def requires(self) -> Requirement:
        """The requirement on the module."""
        return self.needs

    def text(self, *args: str) -> str:
        """The PTX statement without guard and semicolon; `args` are printed operands, one for each of `operands`."""
        return f"{self.mnemonic} {', '.join(args)}" if args else self.mnemonic


class Pure(Instruction):
    """An instruction whose outputs are a lane-wise function of its inputs and nothing else."""

    __slots__ = ()

    @abc.abstractmethod
    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        """Outputs (in operand order) from inputs (those with role "in" or "inout", in operand order)."""


class Effect(Instruction):
    """An instruction that touches memory, barriers, other lanes or an asynchronous engine."""

    __slots__ = ()

    @abc.abstractmethod
    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        """Run on one warp.

        Address operands arrive as uint64 [32] with the byte offset already added.
        Only lanes set in `warp.active` count. A `Suspend` must leave the machine unchanged, except for having arrived.
        """


class Emit(Protocol):
    """Appends an instruction to a kernel and returns the register of its result."""

    def __call__(self, op: Instruction, /, *args: Any) -> Any: ...
