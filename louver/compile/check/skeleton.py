"""A kernel without its arithmetic: its accesses to shared memory, its waits, its products, and the control around them.

| operand | in the skeleton |
|---|---|
| address in shared memory, guard, condition, phase, bytes of a copy | computed as in the kernel |
| number from global memory, from other lanes or of a product | chosen by the check |
| stored value, fragment of a product | a constant |
| address in global memory, coordinate of a copy | none: copies fill with zeros |
| sum of a product | a move to itself, where the kernel reads or writes sums |

A skeleton needs no arrays, and has a tenth to a half of the kernel's instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.isa.async_copy import AsyncCopy
from louver.isa.bulk import BulkTensorLoad
from louver.isa.bytes import LoadByte, StoreByte
from louver.isa.instruction import Instruction, Pure, RegType
from louver.isa.matrix import StoreMatrix
from louver.isa.memory import (
    AddVector,
    AtomicAdd,
    AtomicCompareAndSwap,
    AtomicUpdate,
    Load,
    LoadParameter,
    Store,
    SymbolAddress,
)
from louver.isa.mma import Mma
from louver.isa.move import Elect, Move, ShuffleButterfly, ShuffleIndex, Special
from louver.isa.product_meaning import Shared
from louver.isa.sync import FenceGpu
from louver.isa.wgmma import Wgmma
from louver.ptx.module import Address, Arg, Block, If, Imm, Inst, Kernel, Node, Reg, While, registers_of

Chooser: TypeAlias = Callable[[Reg], int]
"""Chooses the value of a register that the skeleton does not compute."""

_COMPUTED = (Pure, LoadParameter, SymbolAddress, Special, Elect)
"""Instructions without a trace in memory. The skeleton has those that it needs."""

_LEFT_OUT = (AddVector, AtomicAdd, AtomicCompareAndSwap, AtomicUpdate, FenceGpu, Mma, ShuffleButterfly, ShuffleIndex)
"""Instructions that no skeleton has, beside accesses to global memory."""

_VALUES: dict[type[Instruction], tuple[str, ...]] = {
    AsyncCopy: ("src", "ignore-src", "src-size"),
    BulkTensorLoad: ("coordinates",),
    Store: ("b",),
    StoreByte: ("b",),
    StoreMatrix: ("r",),
    Wgmma: ("a", "sp-meta"),
}
"""Operands that the skeleton does not compute."""

_INSTEAD = {"ignore-src": 1}
"""What stands for such an operand, other than 0."""


@dataclass(frozen=True, slots=True)
class _Touch(Wgmma):
    """A product that reads its operands in shared memory, and leaves its sums as they are."""

    def meaning(
        self,
        d: NDArray[np.uint32],
        a: int | NDArray[np.uint32],
        b_desc: int,
        meta: NDArray[np.uint32] | None,
        scale_d: bool,
        shared: Shared,
    ) -> NDArray[np.uint32]:
        return d


def skeleton(kernel: Kernel, choose: Chooser) -> Kernel:
    """The skeleton of a kernel, which stays as it is."""
    return _Skeleton(kernel, choose).made()


@dataclass(slots=True)
class _Skeleton:
    """The making of a skeleton.

    kept: nodes of the kernel that it has. needed: registers that it computes. sums: registers of products, each with its product.
    begun: registers with the constants that they have at its begin.
    """

    kernel: Kernel
    choose: Chooser
    kept: set[int] = field(default_factory=set[int])
    needed: set[Reg] = field(default_factory=set[Reg])
    sums: dict[Reg, Inst] = field(default_factory=dict[Reg, Inst])
    begun: dict[Reg, int] = field(default_factory=dict[Reg, int])
    constants: dict[tuple[RegType, int], Reg] = field(default_factory=dict["tuple[RegType, int]", Reg])

    def made(self) -> Kernel:
        self._find()
        self.begun.update(dict.fromkeys(self.sums, 0))
        body = self._block(self.kernel.body)
        first = [_set(register, value) for register, value in self.begun.items()]
        return replace(self.kernel, body=Block([*first, *body.nodes]))

    def _find(self) -> None:
        """Find the instructions that access shared memory or wait, what computes their operands, and the control around them."""
        writers: dict[Reg, list[Inst]] = {}
        around: dict[int, tuple[If | While, ...]] = {}
        pending: list[Node] = []
        for node, outer in _nested(self.kernel.body, ()):
            around[id(node)] = outer
            if not isinstance(node, Inst):
                continue
            written = node.registers()[1]
            for register in written:
                writers.setdefault(register, []).append(node)
            if isinstance(node.op, Wgmma):
                self.sums.update(dict.fromkeys(written, node))
            if not isinstance(node.op, _COMPUTED) and not _is_left_out(node.op):
                pending.append(node)
        while pending:
            node = pending.pop()
            if id(node) not in self.kept:
                self.kept.add(id(node))
                pending += around[id(node)]
                new = [register for register in _computed_by(node) if register not in self.needed]
                self.needed.update(new)
                pending += (writer for register in new for writer in writers.get(register, ()))

    def _block(self, block: Block) -> Block:
        """The kept nodes. Where others use sums between them, one sum of each product is moved to itself."""
        found: list[Node] = []
        touched: dict[int, Reg] = {}
        for node in block.nodes:
            if id(node) not in self.kept:
                touched |= {id(self.sums[each]): each for each in _registers(node) if each in self.sums}
                continue
            found += (Inst(Move(each.type), (each, each)) for each in touched.values())
            touched.clear()
            found += self._node(node)
        return Block([*found, *(Inst(Move(each.type), (each, each)) for each in touched.values())])

    def _node(self, node: Node) -> Iterable[Node]:
        if isinstance(node, If):
            otherwise = None if node.otherwise is None else self._block(node.otherwise)
            return [replace(node, then=self._block(node.then), otherwise=otherwise)]
        if isinstance(node, While):
            return [replace(node, body=self._block(node.body))]
        if _is_left_out(node.op):
            wanted = [register for register in node.registers()[1] if register in self.needed]
            return [
                replace(_set(register, self.choose(register)), guard=node.guard, guard_negated=node.guard_negated)
                for register in wanted
            ]
        op, args = node.op, list[Arg]()
        for operand, arg in zip(op.operands, node.args, strict=True):
            args.append(
                arg if operand.name not in _VALUES.get(type(op), ()) else self._instead(operand.name, arg, operand.type)
            )
        if isinstance(op, Wgmma):
            op = _Touch(*(getattr(op, each.name) for each in fields(op)))
        return [replace(node, op=op, args=tuple(args))]

    def _instead(self, name: str, arg: Arg, kind: RegType) -> Arg:
        """What stands for an operand that the skeleton does not compute."""
        key = kind, _INSTEAD.get(name, 0)
        if key not in self.constants:
            taken = (
                each.index for each in (*self.kernel.body.registers(), *self.constants.values()) if each.type == kind
            )
            self.constants[key] = Reg(kind, max(taken, default=-1) + 1)
            self.begun[self.constants[key]] = key[1]
        register = self.constants[key]
        if isinstance(arg, Address):
            return Address(register)
        return (register,) * len(arg) if isinstance(arg, tuple) else register


def _set(register: Reg, value: int) -> Inst:
    return Inst(Move(register.type), (register, Imm(float(value) if register.type == "f32" else value)))


def _is_left_out(op: Instruction) -> bool:
    return isinstance(op, _LEFT_OUT) or (isinstance(op, Load | LoadByte | Store | StoreByte) and op.space == "global")


def _computed_by(node: Node) -> Iterator[Reg]:
    """The registers that the skeleton computes for a node that it has."""
    if not isinstance(node, Inst):
        yield node.condition
        return
    if node.guard is not None:
        yield node.guard
    if _is_left_out(node.op):
        return
    left = _VALUES.get(type(node.op), ())
    for operand, arg in zip(node.op.operands, node.args, strict=True):
        if operand.role == "in" and operand.name not in left:
            yield from registers_of(arg)


def _registers(node: Node) -> Iterable[Reg]:
    return Block([node]).registers()


def _nested(block: Block, outer: tuple[If | While, ...]) -> Iterator[tuple[Node, tuple[If | While, ...]]]:
    """All nodes, each with the branches and loops around it."""
    for node in block.nodes:
        yield node, outer
        if not isinstance(node, Inst):
            for inner in node.blocks:
                yield from _nested(inner, (*outer, node))
