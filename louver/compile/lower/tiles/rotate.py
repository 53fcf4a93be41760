"""Rotates the loop of a ring, so that tensor cores have work while warps meet and load the operands of a step.

    repeat                                wait for copies; meet at a barrier
        wait for copies                   repeat
        meet at a barrier                     the last products of the step before, and among them
        begin copies                              loads of the first operands
        load operands               ⟶         the other products, and among them
        products                                  copies, and loads of later operands
        next step                             next step; wait for copies; meet at a barrier
                                          the last products

Waits, barriers, copies and loads keep their order. Products have their operands in registers, so they may move past a
barrier. The barrier ends the body: the assembler moves products past a barrier too, but not from one block to another.
Before the first step, the last products multiply zeros. After the last step, the loop meets once more.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from louver.compile.lower.tiles.keep_masks import keep_masks
from louver.compile.lower.tiles.order import read, written
from louver.compile.lower.tiles.registers import Fresh, writes_of
from louver.compile.plan.register_tiles import LEAST_ROTATED
from louver.isa.async_copy import AsyncCommit, AsyncCopy, AsyncWait
from louver.isa.instruction import Pure
from louver.isa.matrix import LoadMatrix
from louver.isa.memory import Load
from louver.isa.mma import Mma
from louver.isa.move import Move
from louver.isa.sync import BarrierSync, MbarrierTryWait
from louver.ptx.module import Arg, Block, If, Imm, Inst, Kernel, Node, Reg, While, registers_of

AHEAD = 4
"""The part of a step's products between the load of an operand and its product: one of this number."""

BETWEEN = 16
"""Products between groups of copies. The assembler of sm_90 waits for loads of shared memory before each group."""

LEGAL_CODES = 0x44444444
"""Metadata of the first two values of each group."""


def rotate_loops(kernel: Kernel) -> None:
    """Rewrite the loops of a kernel in place, after `order_by_demand`."""
    writes = writes_of(kernel)
    fresh = Fresh(writes)
    for block in list(kernel.body.all_blocks()):
        found = list[Node]()
        for node in block.nodes:
            after = list[Node]()
            if isinstance(node, While) and (step := _Step.of(node)) is not None:
                before, node.body.nodes, after = step.rotated(fresh)
                found += [*keep_masks(node, writes, fresh), *before]
            found += [node, *after]
        block.nodes = found


def _is(node: Node, *kinds: type) -> bool:
    return isinstance(node, Inst) and isinstance(node.op, kinds)


def _changes(node: Node) -> Iterator[Reg]:
    """The registers that a node writes, also inside a branch."""
    for each in Block([node]).walk():
        if isinstance(each, Inst):
            yield from written(each)


@dataclass(frozen=True, slots=True)
class _Step:
    """The body of a loop.

    loop: the loop. meeting: the wait for copies and the barrier.
    copies: what begins copies, in groups.
    loads: the loads of operands with what computes their addresses, each with the place of the first product that needs it.
    products: all products but the last ones. last: the last products.
    late: moves of their sums to the registers that the loop carries.
    end: the other nodes. They compute the values of the next step.
    """

    loop: While
    meeting: list[Node]
    copies: list[list[Node]]
    loads: list[tuple[int, list[Inst]]]
    products: list[Inst]
    last: list[Inst]
    late: list[Inst]
    end: list[Inst]

    @classmethod
    def of(cls, loop: While) -> _Step | None:
        """The parts of a loop's body; None if it has another form, or another order would change its results."""
        nodes = loop.body.nodes
        meets = [place + 1 for place, node in enumerate(nodes) if _is(node, BarrierSync)]
        if len(meets) != 1 or not all(_meets(node) for node in nodes[: meets[0]]):
            return None
        meeting, rest = nodes[: meets[0]], nodes[meets[0] :]
        begun = max((place + 1 for place, node in enumerate(rest) if _copies(node)), default=0)
        copies = rest[:begun]
        others = [node for node in rest[begun:] if _loads(node) or _is(node, Pure, Mma)]
        if not begun or not all(_copies(node) or _is(node, Pure) for node in copies) or len(others) < len(rest) - begun:
            return None
        found = _divided(loop, meeting, copies, [node for node in others if isinstance(node, Inst)])
        return found if found is not None and found._keeps(rest) else None

    def _order(self, last: Sequence[Inst]) -> list[Node]:
        """The body of the loop, up to the values of the next step. last: the last products of the step before."""
        found: list[Node] = []
        loads, copies = list(self.loads), list(self.copies)
        for place, product in enumerate([*last, *self.products]):
            while loads and loads[0][0] <= place:
                found += loads.pop(0)[1]
            behind = place - len(last)
            if behind == 0:
                found += self.late
            if behind >= 0 and behind * len(self.copies) >= (len(self.copies) - len(copies)) * len(self.products):
                found += copies.pop(0) if copies else ()
            found.append(product)
        return [*found, *itertools.chain(*(nodes for _, nodes in loads), *copies), *self.end]

    def _keeps(self, before: Sequence[Node]) -> bool:
        """Whether the new order gives the same results."""
        places = {id(node): place for place, node in enumerate(before)}
        moved = {id(node) for node in (*self.last, *self.late)}
        order = [node for node in self._order(self.last) if id(node) not in moved]
        # Nodes change places only if neither writes what the other one reads or writes.
        reads, writes = dict[Reg, int](), dict[Reg, int]()
        for node in (*order, *self.last, *self.late):
            place, changed, used = places[id(node)], list(_changes(node)), list(read(node))
            if any(writes.get(register, -1) > place for register in used):
                return False
            if any(max(writes.get(register, -1), reads.get(register, -1)) > place for register in changed):
                return False
            reads |= {register: max(reads.get(register, -1), place) for register in used}
            writes |= {register: max(writes.get(register, -1), place) for register in changed}
        # A sum plus zeros is the sum only where it goes back to the register from which it came.
        if any(self._carried(source) != to for to, source in (node.args for node in self.late)):
            return False
        # Before the first step there are no operands of the step before: zeros stand for those that are loaded.
        loaded = {register for _, nodes in self.loads for node in nodes for register in written(node)}
        if not all(loaded.issuperset(_factors(product)) for product in self.last):
            return False
        # The next step begins before the last products.
        ends = {register for node in (*self.last, *self.late) for register in written(node)}
        return all(ends.isdisjoint((*read(node), *_changes(node))) for node in order if not _is(node, Mma))

    def rotated(self, fresh: Fresh) -> tuple[list[Node], list[Node], list[Node]]:
        """What comes before the loop, its body, and what comes after it."""
        loaded = {register for _, nodes in self.loads for node in nodes for register in written(node)}
        soon = [nodes for place, nodes in self.loads if place < len(self.last)]
        overwritten = {register for nodes in soon for node in nodes for register in written(node)}
        names: dict[Reg, Reg] = {}
        starts: dict[Reg, Inst] = {}
        for product in self.last:
            for operand, arg in zip(product.op.operands, product.args, strict=True):
                for register in registers_of(arg):
                    if operand.name == "c" and (first := self._carried(register)) != register:
                        starts[register] = Inst(Move(register.type), (register, first))
                    elif operand.name in ("a", "b", "e") and register in loaded:
                        if register in overwritten and register not in names:
                            names[register] = fresh(register.type)
                        kept, zero = names.get(register, register), LEGAL_CODES if operand.name == "e" else 0
                        starts[kept] = Inst(Move(kept.type), (kept, Imm(zero)))
        last = [replace(node, args=tuple(_renamed(arg, names) for arg in node.args)) for node in self.last]
        turns = [Inst(Move(kept.type), (kept, register)) for register, kept in names.items()]
        *waits, barrier = self.meeting
        # No copies come for a step that does not exist, and a barrier of their bytes would wait for ever.
        again = waits
        if any(isinstance(node, While) for node in waits):
            again = [If(self.loop.condition, Block(waits), negated=self.loop.negated, uniform=True)]
        body = [*self._order(last), *turns, *again, barrier]
        return [*self.meeting, *starts.values()], body, [*last, *self.late]

    def _carried(self, register: Arg) -> Arg:
        """The sum of the step before to which products of this step add until they have a register's sum."""
        makers = {result: product for product in (*self.products, *self.last) for result in written(product)}
        while isinstance(register, Reg) and (maker := makers.get(register)) is not None:
            results, sums = (list(registers_of(maker.args[place])) for place in (0, 3))
            register = sums[results.index(register)]
        return register


def _meets(node: Node) -> bool:
    """Whether a node waits for copies, or computes for what."""
    if isinstance(node, While):
        return all(_is(each, MbarrierTryWait) for each in node.body.nodes)
    return _is(node, AsyncWait, BarrierSync, Pure)


def _copies(node: Node) -> bool:
    """Whether a node begins copies. In a branch, one thread begins bulk copies."""
    return isinstance(node, If) or _is(node, AsyncCopy, AsyncCommit)


def _loads(node: Node) -> bool:
    """Whether a node loads from shared memory."""
    return isinstance(node, Inst) and (
        isinstance(node.op, LoadMatrix) or (isinstance(node.op, Load) and node.op.space == "shared")
    )


def _divided(loop: While, meeting: list[Node], copies: list[Node], rest: list[Inst]) -> _Step | None:
    """The parts of a step; None for a loop of another form."""
    every = [node for node in rest if _is(node, Mma)]
    if len(every) < LEAST_ROTATED:
        return None
    ahead = len(every) // AHEAD
    products, last = every[: len(every) - ahead], every[len(every) - ahead :]
    sums = {register for node in last for register in written(node)}
    late = [node for node in rest if not _is(node, Mma) and not sums.isdisjoint(read(node))]
    loads = _operands(every, [*copies, *rest])
    apart = {id(node) for node in itertools.chain(every, late, *(nodes for _, nodes in loads))}
    end = [node for node in rest if id(node) not in apart]
    if not last or not loads or any(not _is(node, Move) for node in late) or any(map(_loads, end)):
        return None
    return _Step(
        loop,
        meeting,
        _grouped([node for node in copies if id(node) not in apart], max(1, len(products) // BETWEEN)),
        loads,
        products,
        last,
        late,
        end,
    )


def _operands(products: Sequence[Inst], nodes: Sequence[Node]) -> list[tuple[int, list[Inst]]]:
    """What makes the operands of products, each with the place of the first product that needs it."""
    places = {id(node): place for place, node in enumerate(nodes)}
    makers: dict[Reg, Inst] = {}
    for node in nodes:
        if isinstance(node, Inst) and (_loads(node) or _is(node, Pure)) and node.guard is None:
            for register in written(node):
                makers.setdefault(register, node)
    taken = set[int]()
    found: list[tuple[int, list[Inst]]] = []
    for number, product in enumerate(products):
        group: list[Inst] = []
        pending = [(register, places[id(product)]) for register in read(product)]
        while pending:
            register, before = pending.pop()
            maker = makers.get(register)
            # A register that is written later has its value of the step before.
            if maker is not None and places[id(maker)] < before and id(maker) not in taken:
                taken.add(id(maker))
                group.append(maker)
                pending += [(each, places[id(maker)]) for each in read(maker)]
        if group:
            found.append((number, sorted(group, key=lambda node: places[id(node)])))
    return found


def _grouped(copies: Sequence[Node], groups: int) -> list[list[Node]]:
    """The nodes of copies in groups with equal numbers of copies."""
    count = sum(_is(node, AsyncCopy) for node in copies)
    found: list[list[Node]] = [[]]
    done = 0
    for node in copies:
        found[-1].append(node)
        done += _is(node, AsyncCopy)
        if _is(node, AsyncCopy) and done < count and done * groups >= len(found) * count:
            found.append([])
    return found


def _factors(product: Inst) -> Iterator[Reg]:
    """The registers of both operands of a product."""
    for operand, arg in zip(product.op.operands, product.args, strict=True):
        if operand.name in ("a", "b"):
            yield from registers_of(arg)


def _renamed(arg: Arg, names: Mapping[Reg, Reg]) -> Arg:
    if isinstance(arg, tuple):
        return tuple(names.get(each, each) if isinstance(each, Reg) else each for each in arg)
    return names.get(arg, arg) if isinstance(arg, Reg) else arg
