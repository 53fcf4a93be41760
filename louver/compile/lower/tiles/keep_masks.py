"""Keeps masks that do not change in a loop as bits of a register.

    repeat                                            bits = (row0 < rows) | (row1 < rows) << 1 | …
        copy …, if row0 < rows and column < columns   repeat
        copy …, if row1 < rows and column < columns       now = bits if column < columns else 0
        …                                      ⟶         copy …, if now & 1
                                                          copy …, if now & 2

A thread has seven predicates. Otherwise the assembler compares again in each step, with both sides of each comparison in
registers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from louver.compile.lower.tiles.order import read, written
from louver.compile.lower.tiles.registers import Fresh
from louver.isa.instruction import Pure
from louver.isa.move import Select
from louver.isa.scalar import Binary, Compare
from louver.ptx.module import Imm, Inst, Node, Reg, While

LEAST, MOST = 4, 32
"""Masks that a register holds. The assembler keeps fewer than the least in predicates."""

_BOTH = Binary("and", "pred")


@dataclass(frozen=True, slots=True)
class _Group:
    """Conjunctions of masks that do not change and one that does.

    changing: the mask that changes. fixed: the others, each with its conjunction.
    """

    changing: Reg
    fixed: list[tuple[Reg, Inst]]


def keep_masks(loop: While, writes: Mapping[Reg, int], fresh: Fresh) -> list[Node]:
    """Rewrite a loop in place. Returns what comes before it. writes: for each register, the instructions of the kernel that
    write it.
    """
    nodes = [node for node in loop.body.nodes if isinstance(node, Inst)]
    inside = {register for node in loop.body.walk() if isinstance(node, Inst) for register in written(node)}
    once = {register for register in inside if writes[register] == 1}
    makers = _fixed(nodes, inside, once)
    before: dict[int, Node] = {}

    def move(register: Reg) -> None:
        maker = makers.get(register)
        if maker is not None and id(maker) not in before:
            for each in read(maker):
                move(each)
            before[id(maker)] = maker

    found: list[Node] = []
    changed: dict[int, list[Inst]] = {}
    for group in _groups(nodes, makers, once):
        bits: list[Reg] = []
        now = fresh("b32")
        for number, (mask, both) in enumerate(group.fixed):
            move(mask)
            bit, kept = fresh("b32"), fresh("b32")
            found.append(Inst(Select("b32"), (bit, Imm(1 << number), Imm(0), mask)))
            bits.append(bit)
            changed[id(both)] = [
                Inst(Binary("and", "b32"), (kept, now, Imm(1 << number))),
                Inst(Compare("ne", "u32"), (both.args[0], kept, Imm(0))),
            ]
        while len(bits) > 1:
            either = fresh("b32")
            found.append(Inst(Binary("or", "b32"), (either, bits.pop(0), bits.pop(0))))
            bits.append(either)
        changed[id(group.fixed[0][1])].insert(0, Inst(Select("b32"), (now, bits[0], Imm(0), group.changing)))
    if changed:
        loop.body.nodes = [
            each
            for node in loop.body.nodes
            if id(node) not in before
            for each in (changed.get(id(node), [node]) if isinstance(node, Inst) else [node])
        ]
    return [*before.values(), *found]


def _fixed(nodes: Sequence[Inst], inside: Collection[Reg], once: Collection[Reg]) -> dict[Reg, Inst]:
    """What makes each register that has the same value in each step. inside: the registers that the loop writes. once: those
    that no other instruction of the kernel writes, so they have no value of the step before.
    """
    found: dict[Reg, Inst] = {}
    for node in nodes:
        results = list(written(node))
        if (
            isinstance(node.op, Pure)
            and node.guard is None
            and all(register in once for register in results)
            and all(register not in inside or register in found for register in read(node))
        ):
            found.update(dict.fromkeys(results, node))
    return found


def _groups(nodes: Sequence[Inst], fixed: Mapping[Reg, Inst], once: Collection[Reg]) -> list[_Group]:
    """The conjunctions that bits can hold, in the order of their first one."""
    found: dict[Reg, _Group] = {}
    for node in nodes:
        if node.op != _BOTH or node.guard is not None:
            continue
        masks = [each for each in node.args[1:] if isinstance(each, Reg)]
        for mask, other in zip(masks, reversed(masks), strict=True):
            if mask in fixed and other not in fixed and other in once:
                found.setdefault(other, _Group(other, [])).fixed.append((mask, node))
    return [group for group in found.values() if LEAST <= len(group.fixed) <= MOST]
