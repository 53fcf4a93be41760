"""Keeps masks that do not change in a loop as bits of a register.

    repeat                                            bits = (row0 < rows) | (row1 < rows) << 1 | …
        copy …, if row0 < rows and column < columns   repeat
        copy …, if row1 < rows and column < columns       now = bits if column < columns else 0
        …                                      ⟶         copy …, if now & 1
                                                          copy …, if now & 2

A thread has seven predicates. The assembler would keep both sides of each comparison in registers, and compare in each
step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from louver.compile.lower.tiles.order import read, written
from louver.isa.instruction import Pure
from louver.isa.move import Select
from louver.isa.scalar import Binary, Compare
from louver.ptx.module import Imm, Inst, Node, Reg, While

LEAST = 4
"""Masks of a loop from which on bits hold them. The assembler keeps fewer ones in predicates."""

MOST = 32
"""Bits of a register."""


def keep_masks(loop: While, numbers: Counter[str]) -> list[Node]:
    """Rewrite a loop in place. Returns what comes before it. numbers: the last register of each class."""
    nodes = [node for node in loop.body.nodes if isinstance(node, Inst)]
    if len(nodes) < len(loop.body.nodes):
        return []
    writes = Counter(register for node in nodes for register in written(node))
    fixed: dict[Reg, Inst] = {}
    for node in nodes:
        if isinstance(node.op, Pure) and node.guard is None and all(writes[each] == 1 for each in written(node)):
            if all(not writes[each] or each in fixed for each in read(node)):
                fixed.update(dict.fromkeys(written(node), node))
    groups: dict[Reg, list[Inst]] = {}
    """Conjunctions of a fixed mask and another one, by the other one."""
    for node in nodes:
        if node.op == Binary("and", "pred") and node.guard is None and node.args[0] not in fixed:
            continue
    for node in nodes:
        if node.op != Binary("and", "pred") or node.guard is not None or node.args[0] in fixed:
            continue
    for node in nodes:
        if node.op == Binary("and", "pred") and node.guard is None:
            _, *sides = node.args
            known = [each for each in sides if isinstance(each, Reg) and each in fixed]
            other = [each for each in sides if isinstance(each, Reg) and each not in fixed and writes[each] <= 1]
            if len(known) == len(other) == 1:
                groups.setdefault(other[0], []).append(node)
    groups = {other: found for other, found in groups.items() if LEAST <= len(found) <= MOST}
    if not groups:
        return []

    def fresh(kind: str) -> Reg:
        numbers[kind] += 1
        return Reg(kind, numbers[kind])  # type: ignore[arg-type]

    before: list[Node] = []
    moved: dict[int, None] = {}

    def move(register: Reg) -> None:
        node = fixed.get(register)
        if node is not None and id(node) not in moved:
            for each in read(node):
                move(each)
            moved[id(node)] = None
            before.append(node)

    changed: dict[int, list[Inst]] = {}
    for other, found in groups.items():
        bits = None
        now = fresh("b32")
        for number, node in enumerate(found):
            result, *sides = node.args
            known = next(each for each in sides if isinstance(each, Reg) and each in fixed)
            move(known)
            bit, kept, word = fresh("b32"), fresh("b32"), 1 << number
            before.append(Inst(Select("b32"), (bit, Imm(word), Imm(0), known)))
            if bits is None:
                bits = bit
            else:
                both = fresh("b32")
                before.append(Inst(Binary("or", "b32"), (both, bits, bit)))
                bits = both
            changed[id(node)] = [
                Inst(Binary("and", "b32"), (kept, now, Imm(word))),
                Inst(Compare("ne", "u32"), (result, kept, Imm(0))),
            ]
            if number == 0:
                changed[id(node)].insert(0, Inst(Select("b32"), (now, Imm(0), Imm(0), other)))
        assert bits is not None
        changed[id(found[0])][0] = Inst(Select("b32"), (now, bits, Imm(0), other))
    loop.body.nodes = [
        each for node in nodes if id(node) not in moved for each in changed.get(id(node), [node])
    ]
    return before
