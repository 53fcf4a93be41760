"""What a kernel takes for granted of its arguments: that they are multiples of a power of two, as Triton's attribute says it."""

from __future__ import annotations

from collections.abc import Collection

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr
from xdsl.ir import Attribute

from louver.ir.tile.function import FuncOp
from louver.ir.tile.types import PointerType

DIVISIBILITY = "tt.divisibility"
"""The attribute of an argument that says what it is a multiple of: bytes of an address. Source: Triton."""

MULTIPLE = 16
"""What arguments are marked as multiples of: bytes of the widest access, and elements of it."""


def mark_multiples(function: FuncOp, names: Collection[str]) -> None:
    """Mark the arguments of these names as multiples of `MULTIPLE`, in place."""
    arguments = function.body.block.args
    given: list[dict[str, Attribute]] = [{} for _ in arguments]
    if function.arg_attrs is not None:
        given = [dict(each.data) for each in function.arg_attrs]
    for argument, attributes in zip(arguments, given, strict=True):
        if argument.name_hint in names:
            attributes[DIVISIBILITY] = IntegerAttr(MULTIPLE, 32)
    function.arg_attrs = ArrayAttr([DictionaryAttr(each) for each in given])


def multiples_of(function: FuncOp) -> list[int]:
    """The greatest power of two that each argument is marked as a multiple of; 1 without a mark."""
    if function.arg_attrs is None:
        return [1] * len(function.body.block.args)
    found: list[int] = []
    for attributes in function.arg_attrs:
        mark = attributes.data.get(DIVISIBILITY)
        number = mark.value.data if isinstance(mark, IntegerAttr) else 1
        found.append(number & -number if number > 0 else 1)
    return found


def has_known_addresses(function: FuncOp) -> bool:
    """Whether the address of any array is known to be a multiple of something, so that elements may be moved together."""
    arguments = zip(function.body.block.args, multiples_of(function), strict=True)
    return any(isinstance(each.type, PointerType) and multiple > 1 for each, multiple in arguments)
