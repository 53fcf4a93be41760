"""Rotates the loop of a ring, so that tensor cores have work while warps meet and load the operands of a step.

    repeat                                           wait; meet; load the operands of the first products
        wait for copies                              repeat
        meet at a barrier                                begin copies
        begin copies                                     load the operands of the last products
        load operands                        ⟶           the other products
        products                                         wait for the copies of the next step; meet at a barrier
        next step                                        load the operands of its first products
                                                         the last products

The order of waits, barriers, copies and loads stays the same. Products that have their operands in registers move past
a barrier. After its last step the loop waits once more, and loads registers that nobody reads, from memory of the ring.
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
from louver.isa.memory import Load
from louver.isa.mma import Mma
from louver.isa.move import Move
from louver.isa.sync import BarrierSync
from louver.ptx.module import Address, Arg, Block, If, Inst, Kernel, Node, Reg, While


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
        if isinstance(node, While) and (step := _Step.of(node)) is not None:
            found += step.head
            node.body.nodes = step.rotated(numbers)
            changed = True
        found.append(node)
    block.nodes = found
    return changed


def _is(node: Node, *kinds: type) -> bool:
    return isinstance(node, Inst) and isinstance(node.op, kinds)


@dataclass(frozen=True, slots=True)
class _Step:
    """The body of a loop.

    meeting: the wait and the barrier.
    first: what loads and computes the operands of the products that depend on no other product.
    copies: the other nodes up to the commit of the copies.
    early: the other nodes that do not depend on the last products.
    last: the last products. late: what depends on them.
    """

    meeting: list[Inst]
    first: list[Inst]
    copies: list[Inst]
    early: list[Inst]
    last: list[Inst]
    late: list[Inst]

    @property
    def head(self) -> list[Inst]:
        return [*self.meeting, *self.first]

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
        if not all(_is(node, AsyncCopy, AsyncCommit, Pure, LoadMatrix, Load, Mma) for node in rest):
            return None
        found = cls._divided(meeting, rest, commits[0])
        return found if found is not None and found._keeps(rest, loop.condition) else None

    @classmethod
    def _divided(cls, meeting: list[Inst], rest: list[Inst], end: int) -> _Step | None:
        after, makers = _dependences(rest)
        products = [node for node in rest if _is(node, Mma)]
        waited = set[int]().union(*(after[id(node)] for node in products))
        last = {id(node) for node in products if id(node) not in waited}
        late = {id(node) for node in rest if not after[id(node)].isdisjoint(last)}
        first = set[int]()
        pending = [reg for node in products if not after[id(node)] for reg in read(node)]
        while pending:
            maker = makers.get(pending.pop())
            if maker is not None and id(maker) not in first:
                first.add(id(maker))
                pending += read(maker)
        if not last or not first.isdisjoint(last | late) or any(id(node) in first for node in products):
            return None
        parts: tuple[list[Inst], ...] = ([], [], [], [], [])
        for place, node in enumerate(rest):
            kinds = (id(node) in first, place < end, True, id(node) in last, id(node) in late)
            part = 3 if kinds[3] else 4 if kinds[4] else kinds.index(True)
            parts[part].append(node)
        return cls(meeting, *parts)

    def _keeps(self, rest: Sequence[Inst], condition: Reg) -> bool:
        """Whether the new order gives the same results."""
        if any(node.guard is not None or not _is(node, Pure, LoadMatrix) for node in self.first):
            return False
        if any(not _is(node, Pure, Mma) for node in (*self.last, *self.late)):
            return False
        places = {id(node): place for place, node in enumerate(rest)}
        # Next step's operands are loaded before the late nodes.
        inputs = {register for node in self.first for register in read(node)}
        if any(not inputs.isdisjoint(written(node)) or condition in written(node) for node in self.late):
            return False
        order = [*self.first, *self.copies, *self.early, *self.last, *self.late]
        # Nodes change their order only if neither writes what the other one reads or writes.
        reads, writes = dict[Reg, int](), dict[Reg, int]()
        for node in order:
            place = places[id(node)]
            for register in read(node):
                if writes.get(register, -1) > place:
                    return False
            for register in written(node):
                if max(writes.get(register, -1), reads.get(register, -1)) > place:
                    return False
            for register in read(node):
                reads[register] = max(reads.get(register, -1), place)
            for register in written(node):
                writes[register] = max(writes.get(register, -1), place)
        return True

    def rotated(self, numbers: Counter[str]) -> list[Node]:
        """The body of the rotated loop."""
        names = dict[Reg, Reg]()
        for register in itertools.chain.from_iterable(map(written, self.first)):
            if register not in names:
                numbers[register.type] += 1
                names[register] = Reg(register.type, numbers[register.type])
        ahead = [replace(node, args=tuple(_renamed(arg, names) for arg in node.args)) for node in self.first]
        inside = {reg for node in (*self.copies, *self.early, *self.last, *self.late) for reg in read(node)}
        turns = [Inst(Move(to.type), (to, new)) for to, new in names.items() if to in inside]
        return [
            *_spread(_ahead(self.early), _pieces(self.copies)),
            *self.meeting,
            *_spread(self.last, [[each] for each in ahead]),
            *self.late,
            *turns,
        ]


def _dependences(rest: Sequence[Inst]) -> tuple[dict[int, set[int]], dict[Reg, Inst]]:
    """The products of a step on which each node depends, by identity, and what makes each register of the step.

    A register that is read before it is written holds what the step before wrote.
    """
    after: dict[int, set[int]] = {}
    known, makers, carried = dict[Reg, set[int]](), dict[Reg, Inst](), set[Reg]()
    for node in rest:
        found = set[int]().union(*(known.get(register, set()) for register in read(node)))
        after[id(node)] = found
        carried.update(register for register in read(node) if register not in known)
        for register in written(node):
            known[register] = {*found, id(node)} if _is(node, Mma) else found
            if register not in carried:
                makers[register] = node
    return after, makers


def _ahead(early: Sequence[Inst]) -> list[Inst]:
    """Loads for later products, spread evenly among the products before them."""
    end = max((place + 1 for place, node in enumerate(early) if _is(node, LoadMatrix)), default=0)
    end = max(end, max((place + 1 for place, node in enumerate(early) if _is(node, Mma)), default=0))
    products = [node for node in early[:end] if _is(node, Mma)]
    others = [node for node in early[:end] if not _is(node, Mma)]
    made = {register for node in products for register in written(node)}
    if any(not made.isdisjoint(read(node)) for node in others):
        return list(early)
    return [*_spread(products, _pieces(others, LoadMatrix)), *early[end:]]


def _pieces(nodes: Sequence[Inst], kind: type = AsyncCopy) -> list[list[Inst]]:
    """The nodes up to each one of a kind; the last piece takes the rest."""
    found: list[list[Inst]] = [[]]
    for node in nodes:
        found[-1].append(node)
        if _is(node, kind):
            found.append([])
    *most, end = found
    if most and end:
        most[-1] = [*most[-1], *end]
    return most or [end]


def _spread(nodes: Sequence[Inst], pieces: Sequence[Sequence[Inst]]) -> list[Inst]:
    """Pieces spread evenly among the products of a sequence."""
    places = [place for place, node in enumerate(nodes) if _is(node, Mma)]
    found = list[Inst]()
    left = list(pieces)
    count, total = 0, max(1, len(places))
    for place, node in enumerate(nodes):
        if _is(node, Mma):
            while left and (len(pieces) - len(left)) * total <= count * len(pieces):
                found += left.pop(0)
            count += 1
        found.append(node)
    return [*found, *itertools.chain.from_iterable(left)] if places else [*itertools.chain.from_iterable(left), *found]


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
