"""PTX modules as light objects: registers, instructions in structured control flow, kernels, modules.

Plain slots, no xDSL: a kernel has thousands of them. The validator, printer and emulator read the same objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from louver.isa.instruction import Instruction, Once, RegType


@dataclass(frozen=True, slots=True, eq=False)
class Reg(metaclass=Once):
    """A virtual register: its class and its number in that class. Registers of one name are one object."""

    type: RegType
    index: int

    def __reduce__(self) -> tuple[type[Reg], tuple[RegType, int]]:
        return Reg, (self.type, self.index)


@dataclass(frozen=True, slots=True)
class Imm:
    """A constant: a Python int (any register class) or float (f32 only; printed as its bit pattern)."""

    value: int | float


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`: base is a register or a symbol (a parameter or a shared variable), offset in bytes."""

    base: Reg | str
    offset: int = 0


Arg: TypeAlias = Reg | Imm | Address | str | tuple["Reg | Imm", ...]
"""An operand of `Inst`: a register, a constant, an address, a symbol's name, or a vector."""


def registers_of(arg: Arg) -> Sequence[Reg]:
    """The registers of an operand."""
    if isinstance(arg, Reg):
        return (arg,)
    if isinstance(arg, tuple):
        return [part for part in arg if isinstance(part, Reg)]
    return (arg.base,) if isinstance(arg, Address) and isinstance(arg.base, Reg) else ()


@dataclass(slots=True)
class Inst:
    """An instruction: its form, arguments in operand order, and an optional guard `@p` or `@!p`.

    place: "file:line:column" of the user's text from which it comes, or None. Not printed.
    """

    op: Instruction
    args: tuple[Arg, ...]
    guard: Reg | None = None
    guard_negated: bool = False
    place: str | None = field(default=None, compare=False)
    _named: tuple[list[Reg], list[Reg]] | None = field(default=None, init=False, compare=False, repr=False)

    def registers(self) -> tuple[list[Reg], list[Reg]]:
        """The registers that its operands read, and those that they write, in operand order. The guard is in neither."""
        # Kept, because each pass on PTX asks for them.
        if self._named is None:
            self._named = self._found()
        return self._named

    def rename(self, args: tuple[Arg, ...]) -> None:
        """Replace the arguments."""
        self.args, self._named = args, None

    def _found(self) -> tuple[list[Reg], list[Reg]]:
        count, args = self.op.outputs, self.args
        if count is not None:
            return _all_registers(args[count:]), _all_registers(args[:count])
        reads, writes = list[Reg](), list[Reg]()
        for operand, arg in zip(self.op.operands, args, strict=True):
            found = registers_of(arg)
            if operand.role != "in":
                writes += found
            if operand.role != "out":
                reads += found
        return reads, writes


def _all_registers(args: tuple[Arg, ...]) -> list[Reg]:
    """The registers of several operands."""
    found: list[Reg] = []
    for arg in args:
        # Most are registers and constants, and a kernel has thousands of instructions.
        kind = arg.__class__
        if kind is Reg:
            found.append(cast(Reg, arg))
        elif kind is not Imm:
            found += registers_of(arg)
    return found


@dataclass(slots=True)
class If:
    """A structured branch on a predicate, lane by lane. uniform: all lanes of the warp agree (prints `bra.uni`)."""

    condition: Reg
    then: Block
    otherwise: Block | None = None
    negated: bool = False
    uniform: bool = False
    place: str | None = field(default=None, compare=False)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks inside, in program order."""
        return (self.then,) if self.otherwise is None else (self.then, self.otherwise)


@dataclass(slots=True)
class While:
    """A do-while loop: repeat `body` while `condition` (or its negation) holds. An `If` around it tests first."""

    body: Block
    condition: Reg
    negated: bool = False
    uniform: bool = False
    place: str | None = field(default=None, compare=False)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The block inside."""
        return (self.body,)


Node: TypeAlias = Inst | If | While


@dataclass(slots=True)
class Block:
    """A sequence of nodes."""

    nodes: list[Node] = field(default_factory=list[Node])

    def walk(self) -> Iterator[Node]:
        """All nodes in program order, outer before inner."""
        # One iterator for all depths: a nested one would pass on each node of a loop once for each loop around it.
        pending = [iter(self.nodes)]
        while pending:
            for node in pending[-1]:
                yield node
                if isinstance(node, Inst):
                    continue
                pending += (iter(block.nodes) for block in reversed(node.blocks))
                break
            else:
                pending.pop()

    def all_blocks(self) -> Iterator[Block]:
        """The block and all blocks inside, outer before inner."""
        yield self
        for node in self.nodes:
            for block in () if isinstance(node, Inst) else node.blocks:
                yield from block.all_blocks()

    def registers(self) -> set[Reg]:
        """The registers that instructions, guards and conditions name."""
        found: set[Reg] = set()
        for node in self.walk():
            if not isinstance(node, Inst):
                found.add(node.condition)
                continue
            if node.guard is not None:
                found.add(node.guard)
            for arg in node.args:
                found.update(registers_of(arg))
        return found


@dataclass(frozen=True, slots=True)
class Param:
    """A kernel parameter: a scalar type, or a 128-byte tensor map passed by value (`.param .align 64 .b8 name[128]`)."""

    name: str
    type: Literal["u32", "u64", "f32", "tensormap"]


@dataclass(slots=True)
class Kernel:
    """An entry function.

    threads: CTA size (`.reqntid`). min_ctas: `.minnctapersm`, which limits registers at entry so that setmaxnreg has an
    effect. cluster: CTAs of a cluster along x (`.reqnctapercluster` if above 1). dynamic_shared: bytes that the launch
    must give; the symbol `smem` names this window, aligned to 1,024 bytes.
    """

    name: str
    params: tuple[Param, ...]
    body: Block
    threads: int
    min_ctas: int = 1
    cluster: int = 1
    dynamic_shared: int = 0


@dataclass(slots=True)
class Module:
    """Kernels for one target, such as `sm_90a`."""

    target: str
    kernels: list[Kernel] = field(default_factory=list[Kernel])
