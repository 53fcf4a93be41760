"""Moves each instruction to a place right before its first reader, and removes instructions without a reader.

Lowering proceeds tile by tile: all addresses, all loads, all products. Values would be live from one tile to the next,
in more registers than a thread has. So an instruction without effects moves down to its first reader. Loads move too,
but not past a store or a barrier.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from louver.ir.walk import each_once
from louver.isa.async_copy import AsyncCommit, AsyncCopy, AsyncWait, StoreAsync
from louver.isa.bulk import BulkTensorLoad
from louver.isa.bytes import LoadByte, StoreByte
from louver.isa.instruction import Instruction, Pure
from louver.isa.matrix import LoadMatrix, StoreMatrix
from louver.isa.memory import AddVector, AtomicAdd, AtomicCompareAndSwap, AtomicUpdate, Load, Store
from louver.isa.sync import (
    BarrierSync,
    FenceGpu,
    FenceProxyAsync,
    MbarrierArriveExpect,
    MbarrierInit,
    MbarrierInvalidate,
    MbarrierTryWait,
    WarpSync,
)
from louver.isa.wgmma import Wgmma, WgmmaCommit, WgmmaFence, WgmmaWait
from louver.ptx.module import Block, Inst, Node, Reg, While

_ORDERS = (
    *(AddVector, AtomicAdd, AtomicUpdate, AtomicCompareAndSwap, Store, StoreByte, StoreMatrix),
    *(AsyncCopy, AsyncCommit, AsyncWait, StoreAsync, BarrierSync, WarpSync, FenceGpu),
    *(FenceProxyAsync, Wgmma, WgmmaCommit, WgmmaFence, WgmmaWait),
    *(MbarrierInit, MbarrierArriveExpect, MbarrierTryWait, MbarrierInvalidate, BulkTensorLoad),
)
"""Operations past which no load of memory moves."""

_LOADS = (Load, LoadByte, LoadMatrix)


class _Facts(NamedTuple):
    """Facts about an instruction.

    reads, writes: its registers.
    moves: whether its only effect is its result.
    loads: whether it loads memory.
    orders: whether loads may not move past it.
    """

    reads: list[Reg]
    writes: list[Reg]
    moves: bool
    loads: bool
    orders: bool

    @classmethod
    def of(cls, node: Inst) -> _Facts:
        reads, writes = node.registers()
        if node.guard is not None:
            # If the guard is false, the result register keeps its old value.
            reads = [node.guard, *writes, *reads]
        return cls(reads, writes, *_traits(type(node.op)))


Facts: TypeAlias = "dict[int, _Facts]"
"""The facts by the identity of instructions."""


def order_by_demand(body: Block) -> None:
    """Order the body of a kernel in place."""
    facts: Facts = {id(node): _Facts.of(node) for node in body.walk() if isinstance(node, Inst)}
    _drop_unread(body, facts)
    writes = Counter(register for node in body.walk() if isinstance(node, Inst) for register in facts[id(node)].writes)
    for block in body.all_blocks():
        block.nodes = _Order(block, writes, facts).nodes


@functools.cache
def _traits(kind: type[Instruction]) -> tuple[bool, bool, bool]:
    """The last three fields of `_Facts`."""
    loads = issubclass(kind, _LOADS)
    return loads or issubclass(kind, Pure), loads, issubclass(kind, _ORDERS)


def written(node: Inst) -> Sequence[Reg]:
    """The registers that an instruction writes."""
    return node.registers()[1]


def read(node: Node) -> Sequence[Reg]:
    """The registers that an instruction reads, or that any instruction inside a branch or loop reads."""
    nodes = Block([node]).walk()
    return [reg for each in nodes for reg in (_Facts.of(each).reads if isinstance(each, Inst) else (each.condition,))]


def _drop_unread(body: Block, facts: Facts) -> None:
    """Remove the instructions whose results do not reach an instruction with an effect."""
    writers: dict[Reg, list[Inst]] = {}
    pending: list[Reg] = []
    for node in body.walk():
        if not isinstance(node, Inst):
            pending.append(node.condition)
        elif (of := facts[id(node)]).moves:
            for register in of.writes:
                writers.setdefault(register, []).append(node)
        else:
            pending += of.reads
    seen: set[Reg] = set()
    for register in each_once(pending):
        seen.add(register)
        for writer in writers.get(register, ()):
            pending += facts[id(writer)].reads
    for block in body.all_blocks():
        block.nodes = [
            node
            for node in block.nodes
            if not isinstance(node, Inst) or not (of := facts[id(node)]).moves or not seen.isdisjoint(of.writes)
        ]


@dataclass(eq=False, slots=True)
class _Unit:
    """Instructions that move together: one instruction, or a guarded load with the instruction that sets its default
    value.

    loads: whether the unit loads memory.
    number: the index of the unit among those that wait.
    """

    nodes: list[Inst]
    reads: list[Reg]
    writes: list[Reg]
    loads: bool
    number: int = 0
    placed: bool = False


class _Order:
    def __init__(self, block: Block, writes: Counter[Reg], facts: Facts) -> None:
        self.nodes: list[Node] = []
        self.makers: dict[Reg, _Unit] = {}
        self.readers: dict[Reg, list[_Unit]] = {}
        self.waiting: dict[_Unit, None] = {}
        self.loading: dict[_Unit, None] = {}
        self.writes = writes
        self.facts = facts
        self.runs_on = False
        units = self._units(block)
        for index, node in enumerate(block.nodes):
            unit = units.get(index)
            if unit is None:
                if isinstance(node, Inst) and isinstance(node.op, WgmmaFence):
                    self._before_group(block.nodes[index + 1 :])
                if self.runs_on and isinstance(node, While):
                    # What reads the sums of products that have ended is computed while the others run.
                    self._place(list(self.waiting))
                if isinstance(node, Inst) and isinstance(node.op, WgmmaWait):
                    self.runs_on = node.op.pending > 0
                self._fixed(node)
            elif unit.nodes[-1] is node:
                self._wait(unit, index)
        self._place(list(self.waiting))

    def _wait(self, unit: _Unit, number: int) -> None:
        unit.number = number
        self.waiting[unit] = None
        if unit.loads:
            self.loading[unit] = None
        for register in unit.reads:
            self.readers.setdefault(register, []).append(unit)
        self.makers.update(dict.fromkeys(unit.writes, unit))

    def _units(self, block: Block) -> dict[int, _Unit]:
        """The units that move, by the indices of their instructions."""
        found: dict[int, _Unit] = {}
        starts: dict[Reg, int] = {}
        for index, node in enumerate(block.nodes):
            if not isinstance(node, Inst) or not (of := self.facts[id(node)]).moves:
                continue
            results = of.writes
            if node.guard is None:
                if all(self.writes[register] == 1 for register in results):
                    found[index] = _Unit([node], of.reads, results, of.loads)
                elif len(results) == 1:
                    starts[results[0]] = index
            elif all(self.writes[register] == 2 and register in starts for register in results):
                places = [starts[register] for register in results]
                nodes = [each for place in places if isinstance(each := block.nodes[place], Inst)] + [node]
                inner = set(results)
                read = [register for each in nodes for register in self.facts[id(each)].reads if register not in inner]
                written = [register for each in nodes for register in self.facts[id(each)].writes]
                found.update(dict.fromkeys((*places, index), _Unit(nodes, read, written, of.loads)))
        return found

    def _before_group(self, following: Iterable[Node]) -> None:
        """Place before the fence of a group of products all values that they read, and all units that read the old
        sums.
        """
        group = list(itertools.takewhile(lambda node: not _commits(node), following))
        changed = {register for node in group if isinstance(node, Inst) for register in self.facts[id(node)].writes}
        for unit in self.waiting:
            if not changed.isdisjoint(unit.reads):
                changed.update(unit.writes)
        self._place([unit for unit in self.waiting if not changed.isdisjoint(unit.reads)])
        for node in group:
            self._make(self._effects(node)[0])

    def _fixed(self, node: Node) -> None:
        """Place a node that does not move, after all units that it reads, and all units that must come before it."""
        reads, changed, orders = self._effects(node)
        first = {unit for register in changed for unit in self.readers.get(register, ()) if not unit.placed}
        if orders:
            first.update(self.loading)
        self._place(sorted(first, key=lambda unit: unit.number))
        self._make(reads)
        self.nodes.append(node)

    def _effects(self, node: Node) -> tuple[Sequence[Reg], Sequence[Reg], bool]:
        """The registers that a node and what is inside read and write, and whether loads may not move past it."""
        if isinstance(node, Inst):
            of = self.facts[id(node)]
            return of.reads, of.writes, of.orders
        reads, writes, orders = [node.condition], list[Reg](), False
        for each in (inner for block in node.blocks for inner in block.walk()):
            if isinstance(each, Inst):
                of = self.facts[id(each)]
                reads += of.reads
                writes += of.writes
                orders |= of.orders
            else:
                reads.append(each.condition)
        return reads, writes, orders

    def _make(self, reads: Iterable[Reg]) -> None:
        """Place the units that write these registers."""
        self._place([self.makers[register] for register in reads if register in self.makers])

    def _place(self, wanted: Iterable[_Unit]) -> None:
        """Place units, each after the units that it reads."""
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
                    self.loading.pop(unit, None)
                    self.nodes += unit.nodes


def _commits(node: Node) -> bool:
    return isinstance(node, Inst) and isinstance(node.op, WgmmaCommit)
