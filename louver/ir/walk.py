"""Walks over values and operations."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TypeVar

from xdsl.ir import Block, Operation

T = TypeVar("T", bound=Hashable)


def each_once(pending: list[T]) -> Iterator[T]:
    """Each of the items once, the last one first. The caller adds items to the list meanwhile, which may be known ones."""
    seen = set[T]()
    while pending:
        item = pending.pop()
        if item not in seen:
            seen.add(item)
            yield item


def ancestors(op: Operation) -> Iterator[Operation]:
    """The operations in whose regions an operation is, the innermost one first."""
    while (parent := op.parent_op()) is not None:
        yield parent
        op = parent


def ancestor_in(block: Block | None, op: Operation) -> Operation | None:
    """The operation of a block that is `op`, or in one of whose regions `op` is; None if there is none."""
    return next((each for each in (op, *ancestors(op)) if each.parent is block), None)
