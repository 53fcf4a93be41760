"""Rotates the loop of a ring, so that tensor cores have work while warps meet and load the operands of a step.

    repeat                                wait for copies; meet at a barrier
        wait for copies                   repeat
        meet at a barrier                     the last products of the step before, and between them
        begin copies                              loads of the first operands
        load operands               ⟶         the other products, and between them
        products                                  copies, and loads of later operands
        next step                             next step; wait for copies; meet at a barrier
                                          the last products

The last products before the first step multiply zeros. Waits, barriers, copies and loads keep their order. Products have
their operands in registers, so they may move past a barrier. The barrier ends the loop's body, because the assembler moves
products to the other side of a barrier, but not to another block. The loop meets once more after its last step.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from louver.compile.lower.tiles.keep_masks import keep_masks
from louver.compile.lower.tiles.order import read, written
from louver.isa.async_copy import AsyncCommit, AsyncCopy, AsyncWait
from louver.isa.instruction import Pure
from louver.isa.matrix import LoadMatrix
from louver.isa.mma import Mma
from louver.isa.move import Move
from louver.isa.sync import BarrierSync
from louver.ptx.module import Address, Arg, Block, If, Imm, Inst, Kernel, Node, Reg, While

AHEAD = 16
"""Products between the load of an operand and its product: with two warps on a quarter of an SM, 256 clocks of f16."""

BURSTS = 4
"""Groups in which the copies of a step begin. Before each group, sm_90's assembler waits for loads of shared memory."""

LEGAL_CODES = 0x44444444
"""Metadata of the first two values of each group."""


def rotate_loops(kernel: Kernel) -> bool:
    """Rewrite the loops of a kernel in place, after `order_by_demand`. Says whether any loop changed."""
    numbers = Counter[str]()
    for node in kernel.body.walk():
        for register in written(node) if isinstance(node, Inst) else ():
            numbers[register.type] = max(numbers[register.type], register.index)
    return any([_rotate(block, numbers) for block in list(_blocks(kernel.body))])


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for node in block.nodes:
        match node:
            case If():
                for inner in (node.then, node.otherwise):
                    if inner is not None:
                        yield from _blocks(inner)
            case While():
                yield from _blocks(node.body)
            case Inst():
                pass


def _rotate(block: Block, numbers: Counter[str]) -> bool:
    found, changed = list[Node](), False
    for node in block.nodes:
        if isinstance(node, While):
            found += keep_masks(node, numbers)
            step = _Step.of(node)
            if step is not None:
                before, node.body.nodes, after = step.rotated(numbers)
                found += [*before, node, *after]
                changed = True
                continue
        found.append(node)
    block.nodes = found
    return changed


def _is(node: Node, *kinds: type) -> bool:
    return isinstance(node, Inst) and isinstance(node.op, kinds)


@dataclass(frozen=True, slots=True)
class _Step:
    """The body of a loop.

    meeting: the wait and the barrier.
    copies: what begins copies, up to their commit.
    loads: loads of operands with what computes their addresses, each with the place of the product that needs it first.
    products: all but the last products, each with the nodes that need no later product.
    last: the last products. late: moves of their sums to the registers that the loop carries.
    end: the other nodes, which compute the next step's values.
    """

    meeting: list[Inst]
    copies: list[list[Inst]]
    loads: list[tuple[int, list[Inst]]]
    products: list[Inst]
    last: list[Inst]
    late: list[Inst]
    end: list[Inst]

    @classmethod
    def of(cls, loop: While) -> _Step | None:
        """The parts of a loop's body; None for a loop of another form."""
        nodes = [node for node in loop.body.nodes if isinstance(node, Inst)]
        meets = [place for place, node in enumerate(nodes) if _is(node, BarrierSync)]
        if len(nodes) < len(loop.body.nodes) or len(meets) != 1:
            return None
        meeting, rest = nodes[: meets[0] + 1], nodes[meets[0] + 1 :]
        commits = [place + 1 for place, node in enumerate(rest) if _is(node, AsyncCommit)]
        if len(commits) != 1 or not all(_is(node, AsyncWait, BarrierSync) for node in meeting):
            return None
        copies, rest = rest[: commits[0]], rest[commits[0] :]
        if not all(_is(node, AsyncCopy, AsyncCommit, Pure) for node in copies):
            return None
        if not all(_is(node, Pure, LoadMatrix, Mma) for node in rest):
            return None
        found = cls._divided(meeting, copies, rest)
        return found if found is not None and found._keeps([*copies, *rest]) else None

    @classmethod
    def _divided(cls, meeting: list[Inst], copies: list[Inst], rest: list[Inst]) -> _Step | None:
        every = [node for node in rest if _is(node, Mma)]
        ahead = min(AHEAD, len(every) // 2)
        split = len(every) - ahead
        products, last = every[:split], every[split:]
        ends = {register for node in last for register in written(node)}
        late = [node for node in rest if not _is(node, Mma) and not ends.isdisjoint(read(node))]
        if not last or not all(_is(node, Move) for node in late):
            return None
        makers: dict[Reg, Inst] = {}
        for node in (*copies, *rest):
            if not _is(node, Mma) and node.guard is None:
                for register in written(node):
                    makers.setdefault(register, node)
        places = {id(node): place for place, node in enumerate((*copies, *rest))}
        taken = set[int]()
        loads: list[tuple[int, list[Inst]]] = []
        for place, product in enumerate(every):
            for register in read(product):
                group: list[Inst] = []
                pending = [register]
                before = places[id(product)]
                while pending:
                    maker = makers.get(pending.pop())
                    # What a later node sets is the value of the step before.
                    if maker is not None and places[id(maker)] < before and id(maker) not in taken:
                        taken.add(id(maker))
                        group.append(maker)
                        pending += read(maker)
                if group:
                    loads.append((place, sorted(group, key=lambda node: places[id(node)])))
        begun = [node for node in copies if id(node) not in taken]
        apart = taken | set(map(id, late)) | set(map(id, every))
        end = [node for node in rest if id(node) not in apart]
        if any(_is(node, LoadMatrix) for node in end) or not loads:
            return None
        return cls(meeting, _bursts(begun), loads, products, last, late, end)

    def _order(self, last: Sequence[Inst]) -> list[Inst]:
        """The body of the loop, up to its meeting."""
        slots = [*last, *self.products]
        waiting, copies = list(self.loads), list(self.copies)
        found: list[Inst] = []
        for place, product in enumerate(slots):
            while waiting and waiting[0][0] <= place:
                found += waiting.pop(0)[1]
            if place == len(last):
                found += self.late
            # Copies begin behind the first loads.
            if place >= len(last) and copies and (place - len(last)) * len(self.copies) >= (
                len(self.copies) - len(copies)
            ) * len(self.products):
                found += copies.pop(0)
            found.append(product)
        return [*found, *itertools.chain.from_iterable(each for _, each in waiting), *itertools.chain(*copies), *self.end]

    def _keeps(self, before: Sequence[Inst]) -> bool:
        """Whether the new order gives the same results."""
        places = {id(node): place for place, node in enumerate(before)}
        behind = {id(node) for node in (*self.last, *self.late)}
        order = [node for node in self._order(self.last) if id(node) not in behind]
        # Nodes change their order only if neither writes what the other one reads or writes.
        reads, writes = dict[Reg, int](), dict[Reg, int]()
        for node in (*order, *self.last, *self.late):
            place = places[id(node)]
            if any(writes.get(register, -1) > place for register in read(node)):
                return False
            if any(max(writes.get(each, -1), reads.get(each, -1)) > place for each in written(node)):
                return False
            for register in read(node):
                reads[register] = max(reads.get(register, -1), place)
            for register in written(node):
                writes[register] = max(writes.get(register, -1), place)
        # The next step's nodes come before the last products, or between them.
        ends = {register for node in (*self.last, *self.late) for register in written(node)}
        return all(ends.isdisjoint((*read(node), *written(node))) for node in order if not _is(node, Mma))

    def rotated(self, numbers: Counter[str]) -> tuple[list[Node], list[Node], list[Node]]:
        """What comes before the loop, its body, and what comes after it."""
        made = {register: node for node in self.products for register in written(node)}
        changed = {register for _, nodes in self.loads for node in nodes for register in written(node)}
        soon = {
            register
            for place, nodes in self.loads
            if place < len(self.last)
            for node in nodes
            for register in written(node)
        }
        before: dict[Reg, Inst] = {}
        names: dict[Reg, Reg] = {}
        for node in self.last:
            for operand, arg in zip(node.op.operands, node.args, strict=True):
                for register in arg if isinstance(arg, tuple) else (arg,):
                    if not isinstance(register, Reg) or operand.role == "out":
                        continue
                    if operand.name == "c":
                        first = register
                        while first in made:
                            product = made[first]
                            results, sums = product.args[0], product.args[3]
                            assert isinstance(results, tuple) and isinstance(sums, tuple)
                            source = sums[results.index(first)]
                            assert isinstance(source, Reg)
                            first = source
                        if first is not register:
                            before[register] = Inst(Move(register.type), (register, first))
                    elif register in changed:
                        if register in soon and register not in names:
                            numbers[register.type] += 1
                            names[register] = Reg(register.type, numbers[register.type])
                        kept = names.get(register, register)
                        start = Imm(LEGAL_CODES if operand.name == "e" else 0)
                        before[kept] = Inst(Move(kept.type), (kept, start))
        last = [replace(node, args=tuple(_renamed(arg, names) for arg in node.args)) for node in self.last]
        turns = [Inst(Move(new.type), (new, register)) for register, new in names.items()]
        body: list[Node] = [*self._order(last), *turns, *self.meeting]
        return [*self.meeting, *before.values()], body, [*last, *self.late]


def _bursts(copies: Sequence[Inst]) -> list[list[Inst]]:
    """The nodes of copies in groups."""
    found: list[list[Inst]] = [[]]
    total = sum(_is(node, AsyncCopy) for node in copies)
    done = 0
    for node in copies:
        found[-1].append(node)
        if _is(node, AsyncCopy):
            done += 1
            if done * BURSTS >= len(found) * total and len(found) < BURSTS:
                found.append([])
    return found


def _renamed(arg: Arg, names: dict[Reg, Reg]) -> Arg:
    match arg:
        case Reg():
            return names.get(arg, arg)
        case Address(base=Reg() as base):
            return replace(arg, base=names.get(base, base))
        case tuple():
            return tuple(names.get(each, each) if isinstance(each, Reg) else each for each in arg)
        case _:
            return arg
