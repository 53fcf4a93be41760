"""Spreads the copies of a step among its products, so that tensor cores do not wait until all copies have begun.

    wait, barrier, copy, copy, copy, commit, products   ⟶   wait, barrier, products, copy, products, copy, …, commit

A step copies into a slot that nobody reads, so the order of its copies and its products does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence

from louver.compile.lower.tiles.order import read, written
from louver.isa.async_copy import AsyncCommit, AsyncCopy
from louver.isa.instruction import Pure
from louver.isa.matrix import LoadMatrix
from louver.isa.mma import Mma
from louver.isa.sync import BarrierSync
from louver.ptx.module import Block, Inst, Node, Reg, While

SPREAD = 3, 4
"""The share of a step's products among which copies begin. The commit follows the last one."""


def spread_copies(body: Block) -> None:
    """Reorder the loops of a kernel in place, after `order_by_demand`."""
    for node in body.walk():
        if isinstance(node, While):
            node.body.nodes = _spread(node.body.nodes)


def _spread(nodes: Sequence[Node]) -> list[Node]:
    """The nodes of a loop's body in the new order, or in the same one if its form is another."""
    begin = next((place + 1 for place, node in enumerate(nodes) if _is(node, BarrierSync)), 0)
    end = next((place + 1 for place, node in enumerate(nodes) if _is(node, AsyncCommit)), 0)
    copies, rest = nodes[begin:end], nodes[end:]
    if not begin or not end or not all(isinstance(each, Inst) and _moves(each) for each in copies):
        return list(nodes)
    pieces = _pieces(copies)
    products = [place for place, node in enumerate(rest) if _is(node, Mma)]
    count = len(products) * SPREAD[0] // SPREAD[1]
    if len(pieces) < 2 or count < len(pieces):
        return list(nodes)
    places = [products[(index + 1) * count // len(pieces)] + 1 for index in range(len(pieces))]
    made, found, left = set[Reg](), list(nodes[:begin]), list(zip(places, pieces, strict=True))
    for each in copies:
        made.update(written(each) if isinstance(each, Inst) else ())
    used = {register for each in copies for register in read(each)}
    for place, node in enumerate(rest):
        reads, writes = set(read(node)), set(written(node)) if isinstance(node, Inst) else set[Reg]()
        # A later node reads what a copy computes, or changes what it reads.
        late = not isinstance(node, Inst) or not made.isdisjoint(reads) or not used.isdisjoint(writes)
        while left and (late or left[0][0] <= place):
            found += left.pop(0)[1]
        found.append(node)
    return [*found, *(each for _, piece in left for each in piece)]


def _pieces(copies: Sequence[Node]) -> list[list[Node]]:
    """The nodes up to each copy; the last piece ends with the commit."""
    found: list[list[Node]] = [[]]
    for node in copies:
        found[-1].append(node)
        if _is(node, AsyncCopy):
            found.append([])
    *most, last = found
    return [*most[:-1], [*most[-1], *last]] if most else [last]


def _moves(node: Inst) -> bool:
    return isinstance(node.op, AsyncCopy | AsyncCommit | Pure) and not isinstance(node.op, LoadMatrix)


def _is(node: Node, kind: type) -> bool:
    return isinstance(node, Inst) and isinstance(node.op, kind)
