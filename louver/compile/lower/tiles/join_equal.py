"""Computes equal values once: an instruction whose operands are those of an earlier one takes the earlier result.

Operations are lowered one by one, so that rows, masks and divisors of several tiles come out again and again. `ptxas` joins them too,
but only after it has read them, and it computes quotient and remainder of the same numbers by a division each.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Hashable

from louver.isa.instruction import Instruction, Pure, RegType
from louver.isa.move import Move
from louver.isa.scalar import Binary
from louver.ptx.module import Address, Arg, Block, Imm, Inst, Node, Reg


def join_equal(body: Block, new: Callable[[RegType], Reg]) -> None:
    """Rewrite the body of a kernel in place. new: makes a register."""
    counts = Counter(register for node in body.walk() if isinstance(node, Inst) for register in node.registers()[1])
    _Joining({register for register, count in counts.items() if count == 1}, new).block(body)


class _Joining:
    """What is known at a place of the kernel.

    once: registers that one instruction writes. Only these hold the same value wherever they are read.
    known: the results of instructions, by form and operands. same: the register to read in place of another.
    """

    def __init__(self, once: set[Reg], new: Callable[[RegType], Reg]) -> None:
        self.once, self.new = once, new
        self.known: dict[Hashable, tuple[Reg, ...]] = {}
        self.same: dict[Reg, Reg] = {}

    def block(self, block: Block) -> None:
        """Rewrite a block. What is computed in it is not known behind it."""
        inside: list[Hashable] = []
        nodes: list[Node] = []
        for node in block.nodes:
            if isinstance(node, Inst):
                nodes += self._instruction(node, inside)
                continue
            nodes.append(node)
            for inner in node.blocks:
                self.block(inner)
            node.condition = self.same.get(node.condition, node.condition)
        block.nodes = nodes
        for key in inside:
            del self.known[key]

    def _instruction(self, node: Inst, inside: list[Hashable]) -> list[Node]:
        """What stands in place of an instruction. inside: receives what is known behind it."""
        reads, writes = node.registers()
        if node.guard is not None:
            node.guard = self.same.get(node.guard, node.guard)
        if not self.same.keys().isdisjoint(reads):
            node.rename(tuple(map(self._renamed, node.args)))
            reads = node.registers()[0]
        if not _is_pure(type(node.op)) or node.guard is not None or not self.once.issuperset(writes):
            return [node]
        if not self.once.issuperset(reads):
            return [node]
        key = node.op, *map(_exact, node.args[node.op.outputs :])
        found = tuple(reads) if isinstance(node.op, Move) and reads else self.known.get(key)
        if found is not None:
            self.same.update(zip(writes, found, strict=True))
            return []
        self.known[key] = tuple(writes)
        inside.append(key)
        return self._by_quotient(node) or [node]

    def _renamed(self, arg: Arg) -> Arg:
        same = self.same
        if isinstance(arg, Reg):
            return same.get(arg, arg)
        if isinstance(arg, tuple):
            return tuple(same.get(part, part) if isinstance(part, Reg) else part for part in arg)
        return (
            Address(same.get(arg.base, arg.base), arg.offset)
            if isinstance(arg, Address) and isinstance(arg.base, Reg)
            else arg
        )

    def _by_quotient(self, node: Inst) -> list[Node]:
        """A remainder by the quotient of the same numbers; nothing if that is not known."""
        op = node.op
        if not isinstance(op, Binary) or op.op != "rem":
            return []
        result, whole, by = node.args
        quotient = self.known.get((Binary("div", op.type), whole, by))
        if quotient is None or not isinstance(result, Reg):
            return []
        times = self.new(result.type)
        multiply, subtract = Binary("mul.lo", op.type), Binary("sub", op.type)
        return [
            Inst(multiply, (times, *quotient, by), place=node.place),
            Inst(subtract, (result, whole, times), place=node.place),
        ]


@functools.cache
def _is_pure(form: type[Instruction]) -> bool:
    return issubclass(form, Pure)


def _exact(arg: Arg) -> Hashable:
    """An operand, so that 0.0 differs from -0.0."""
    return str(arg.value) if isinstance(arg, Imm) and isinstance(arg.value, float) else arg
