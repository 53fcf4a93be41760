"""PTX modules as light objects: registers, instructions in structured control flow, kernels, modules.

Plain slots, no xDSL: a kernel has thousands of them. The validator, printer and emulator read the same objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from louver.isa.instruction import Instruction, RegType


@dataclass(frozen=True, slots=True)
class Reg:
    """A virtual register: its class and its number in that class."""

    type: RegType
    index: int


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


@dataclass(slots=True)
class If:
    """A structured branch on a predicate, lane by lane. uniform: all lanes of the warp agree (prints `bra.uni`)."""

    condition: Reg
    then: Block
    otherwise: Block | None = None
    negated: bool = False
    uniform: bool = False
    place: str | None = field(default=None, compare=False)


@dataclass(slots=True)
class While:
    """A do-while loop: repeat `body` while `condition` (or its negation) holds. An `If` around it tests first."""

    body: Block
    condition: Reg
    negated: bool = False
    uniform: bool = False
    place: str | None = field(default=None, compare=False)


Node: TypeAlias = Inst | If | While


@dataclass(slots=True)
class Block:
    """A sequence of nodes."""

    nodes: list[Node] = field(default_factory=list[Node])

    def walk(self) -> Iterator[Node]:
        """All nodes in program order, outer before inner."""
        for node in self.nodes:
            yield node
            if isinstance(node, If):
                yield from node.then.walk()
                if node.otherwise is not None:
                    yield from node.otherwise.walk()
            elif isinstance(node, While):
                yield from node.body.walk()

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
                if isinstance(arg, Reg):
                    found.add(arg)
                elif isinstance(arg, tuple):
                    found.update(part for part in arg if isinstance(part, Reg))
                elif isinstance(arg, Address) and isinstance(arg.base, Reg):
                    found.add(arg.base)
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
