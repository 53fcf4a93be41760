"""Schedules in schedule IR with one change: an operation is gone, doubled or moved, or has another number."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xdsl.dialects.builtin import IntAttr, IntegerAttr, ModuleOp
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter

Change = Callable[[ModuleOp], None]

NUMBERS = (-(2**31), -1, 0, 1, 2, 3, 5, 64, 65536, 2**31 - 1)


def damages(module: ModuleOp) -> Iterator[tuple[str, Change]]:
    """Every change to a module, with a name. A change is made to a fresh copy of the same text."""
    for index, op in enumerate(module.walk()):
        if op is module:
            continue
        name = f"{index} {op.name}"
        if not any(result.uses for result in op.results):
            yield f"{name} removed", at(index, _remove)
        if not op.results and op.next_op is not None:
            yield f"{name} doubled", at(index, _double)
            if not op.next_op.results and op.next_op.next_op is not None:
                yield f"{name} moved behind the next", at(index, _swap)
        for key, value in {**op.properties, **op.attributes}.items():
            if isinstance(value, IntegerAttr | IntAttr):
                old = value.data if isinstance(value, IntAttr) else value.value.data
                for number in dict.fromkeys((old - 1, old + 1, 2 * old, *NUMBERS)):
                    if number != old:
                        yield f"{name} {key} {old} to {number}", at(index, set_number(key, number))


def at(index: int, change: Callable[[Operation], None]) -> Change:
    def apply(module: ModuleOp) -> None:
        change(next(op for number, op in enumerate(module.walk()) if number == index))

    return apply


def _remove(op: Operation) -> None:
    Rewriter.erase_op(op, safe_erase=False)


def _double(op: Operation) -> None:
    Rewriter.insert_op(op.clone(), InsertPoint.after(op))


def _swap(op: Operation) -> None:
    following = op.next_op
    assert following is not None
    op.detach()
    Rewriter.insert_op(op, InsertPoint.after(following))


def set_number(key: str, number: int) -> Callable[[Operation], None]:
    def change(op: Operation) -> None:
        held = op.properties if key in op.properties else op.attributes
        old = held[key]
        held[key] = IntAttr(number) if isinstance(old, IntAttr) else IntegerAttr(number, old.type, truncate_bits=True)  # type: ignore[attr-defined]

    return change
