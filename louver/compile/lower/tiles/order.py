"""Orders instructions: each right before its first reader. Instructions without a reader are dropped.

Lowering goes tile by tile: all addresses, all loads, all products. Values would live from one tile to the next, in more registers than a
thread has. So an instruction without effects moves down to its first reader. Loads move too, but not past a store or a barrier.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from louver.isa.async_copy import AsyncCommit, AsyncCopy, AsyncWait
from louver.isa.barrier import MbarrierArriveExpect, MbarrierInit, MbarrierInvalidate, MbarrierTryWait
from louver.isa.bulk import BulkTensorLoad
from louver.isa.bytes import LoadByte, StoreByte
from louver.isa.instruction import Pure
from louver.isa.matrix import LoadMatrix, StoreMatrix
from louver.isa.memory import AddVector, AtomicAdd, AtomicCompareAndSwap, AtomicUpdate, Load, Store
from louver.isa.sync import BarrierSync, FenceGpu, FenceProxyAsync, WarpSync
from louver.isa.wgmma import Wgmma, WgmmaCommit, WgmmaFence, WgmmaWait
from louver.ptx.module import Address, Arg, Block, If, Inst, Node, Reg, While

_ORDERS = (
    *(AddVector, AtomicAdd, AtomicUpdate, AtomicCompareAndSwap, Store, StoreByte, StoreMatrix),
    *(AsyncCopy, AsyncCommit, AsyncWait, BarrierSync, WarpSync, FenceGpu),
    *(FenceProxyAsync, Wgmma, WgmmaCommit, WgmmaFence, WgmmaWait),
    *(MbarrierInit, MbarrierArriveExpect, MbarrierTryWait, MbarrierInvalidate, BulkTensorLoad),
)
"""Operations that no load of memory is moved past."""

_LOADS = (Load, LoadByte, LoadMatrix)


def order_by_demand(body: Block) -> None:
    """A kernel's body, in place."""
    _drop_unread(body)
    writes = Counter(register for node in body.walk() if isinstance(node, Inst) for register in written(node))
    for block in _blocks(body):
        block.nodes = _Order(block, writes).nodes


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for node in block.nodes:
        for inner in _inside(node):
            yield from _blocks(inner)


def _inside(node: Node) -> list[Block]:
    match node:
        case If():
            return [node.then] if node.otherwise is None else [node.then, node.otherwise]
        case While():
            return [node.body]
        case Inst():
            return []


def _moves(node: Node) -> bool:
    """Whether a node has no effect but its result."""
    return isinstance(node, Inst) and (isinstance(node.op, Pure) or _loads(node))


def _loads(node: Inst) -> bool:
    return isinstance(node.op, _LOADS)


def written(node: Inst) -> Iterator[Reg]:
    """The registers that an instruction writes."""
    for operand, arg in zip(node.op.operands, node.args, strict=True):
        if operand.role != "in":
            yield from _registers(arg)


def read(node: Node) -> Iterator[Reg]:
    """The registers that an instruction reads, or anything inside a branch or loop."""
    match node:
        case Inst():
            if node.guard is not None:
                # Where the guard does not hold the result is what it was.
                yield node.guard
                yield from written(node)
            for operand, arg in zip(node.op.operands, node.args, strict=True):
                if operand.role != "out":
                    yield from _registers(arg)
        case If() | While():
            yield node.condition
            for block in _inside(node):
                for inner in block.nodes:
                    yield from read(inner)


def _registers(arg: Arg) -> Iterator[Reg]:
    match arg:
        case Reg():
            yield arg
        case Address(base=Reg() as base):
            yield base
        case tuple():
            yield from (each for each in arg if isinstance(each, Reg))
        case _:
            pass


def _drop_unread(body: Block) -> None:
    """Without the instructions whose results nothing reads that has an effect."""
    writers: dict[Reg, list[Inst]] = {}
    pending: list[Reg] = []
    for node in body.walk():
        match node:
            case Inst() if _moves(node):
                for register in written(node):
                    writers.setdefault(register, []).append(node)
            case Inst():
                pending += read(node)
            case _:
                pending.append(node.condition)
    seen: set[Reg] = set()
    while pending:
        register = pending.pop()
        if register not in seen:
            seen.add(register)
            for writer in writers.get(register, ()):
                pending += read(writer)
    for block in list(_blocks(body)):
        block.nodes = [
            node for node in block.nodes if not isinstance(node, Inst) or not _moves(node) or seen & set(written(node))
        ]


@dataclass(eq=False, slots=True)
class _Unit:
    """Instructions that move together: one, or a load and what its result is where it is not done."""

    nodes: list[Node]
    reads: list[Reg] = field(default_factory=list[Reg])
    placed: bool = False

    @property
    def loads(self) -> bool:
        """Whether it loads memory."""
        last = self.nodes[-1]
        return isinstance(last, Inst) and _loads(last)


class _Order:
    def __init__(self, block: Block, writes: Counter[Reg]) -> None:
        self.nodes: list[Node] = []
        self.makers: dict[Reg, _Unit] = {}
        self.waiting: dict[_Unit, None] = {}
        self.writes = writes
        units = self._units(block)
        for index, node in enumerate(block.nodes):
            unit = units.get(index)
            if unit is None:
                if isinstance(node, Inst) and isinstance(node.op, WgmmaFence):
                    self._before_group(block.nodes[index + 1 :])
                self._fixed(node)
            elif unit.nodes[-1] is node:
                self.waiting[unit] = None
                self.makers.update(dict.fromkeys((reg for each in unit.nodes for reg in _results(each)), unit))
        self._place(list(self.waiting))

    def _units(self, block: Block) -> dict[int, _Unit]:
        """The units that move, by the places of their instructions."""
        found: dict[int, _Unit] = {}
        starts: dict[Reg, int] = {}
        for index, node in enumerate(block.nodes):
            if not isinstance(node, Inst) or not _moves(node):
                continue
            results = list(written(node))
            if node.guard is None:
                if all(self.writes[register] == 1 for register in results):
                    found[index] = _Unit([node], list(read(node)))
                elif len(results) == 1:
                    starts[results[0]] = index
            elif all(self.writes[register] == 2 and register in starts for register in results):
                places = [starts[register] for register in results]
                nodes = [block.nodes[place] for place in places]
                inner = set(results)
                reads = [register for each in (*nodes, node) for register in read(each) if register not in inner]
                found.update(dict.fromkeys((*places, index), _Unit([*nodes, node], reads)))
        return found

    def _before_group(self, following: Iterable[Node]) -> None:
        """All that the products of a group read, before their fence, and what is made of the sums that they change."""
        group = list(itertools.takewhile(lambda node: not _commits(node), following))
        changed = {register for node in group for register in _results(node)}
        for unit in self.waiting:
            if not changed.isdisjoint(unit.reads):
                changed.update(register for node in unit.nodes for register in _results(node))
        self._place([unit for unit in self.waiting if not changed.isdisjoint(unit.reads)])
        for node in group:
            self._place([self.makers[register] for register in read(node) if register in self.makers])

    def _fixed(self, node: Node) -> None:
        """A node that stays where it is, behind all that it reads and that must come before it."""
        inside = [node, *(each for block in _inside(node) for each in block.walk())]
        instructions = [each for each in inside if isinstance(each, Inst)]
        changed = {register for each in instructions for register in written(each)}
        orders = any(isinstance(each.op, _ORDERS) for each in instructions)
        self._place([unit for unit in self.waiting if (orders and unit.loads) or not changed.isdisjoint(unit.reads)])
        self._place([self.makers[register] for register in read(node) if register in self.makers])
        self.nodes.append(node)

    def _place(self, wanted: Iterable[_Unit]) -> None:
        """Units, each behind those that it reads."""
        for first in wanted:
            pending = [first]
            while pending:
                unit = pending[-1]
                makers = [self.makers[register] for register in unit.reads if register in self.makers]
                missing = [] if unit.placed else [maker for maker in makers if not maker.placed]
                if missing:
                    pending += reversed(missing)
                    continue
                pending.pop()
                if not unit.placed:
                    unit.placed = True
                    self.waiting.pop(unit, None)
                    self.nodes += unit.nodes


def _commits(node: Node) -> bool:
    return isinstance(node, Inst) and isinstance(node.op, WgmmaCommit)


def _results(node: Node) -> Iterator[Reg]:
    return written(node) if isinstance(node, Inst) else iter(())
