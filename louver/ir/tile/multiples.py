"""What a kernel takes for granted of its arguments: that they are multiples of a power of two, as Triton's attribute says it."""

from __future__ import annotations

from collections.abc import Collection

from xdsl.dialects.builtin import IntegerAttr

from louver.ir.tile.function import FuncOp
from louver.ir.tile.types import PointerType

DIVISIBILITY = "tt.divisibility"
"""The attribute of an argument that says what it is a multiple of: bytes of an address. Source: Triton."""

MULTIPLE = 16
"""What arguments are marked as multiples of: bytes of the widest access, and elements of it."""


def mark_multiples(function: FuncOp, names: Collection[str]) -> None:
    """Mark the arguments of these names as multiples of `MULTIPLE`, in place."""
    given = function.argument_attributes
    for name, attributes in zip(function.argument_names.values(), given, strict=True):
        if name in names:
            attributes[DIVISIBILITY] = IntegerAttr(MULTIPLE, 32)
    function.argument_attributes = given


def multiples_of(function: FuncOp) -> list[int]:
    """The greatest power of two that each argument is marked as a multiple of; 1 without a mark."""
    found: list[int] = []
    for attributes in function.argument_attributes:
        mark = attributes.get(DIVISIBILITY)
        number = mark.value.data if isinstance(mark, IntegerAttr) else 1
        found.append(number & -number if number > 0 else 1)
    return found


def has_known_addresses(function: FuncOp) -> bool:
    """Whether the address of any array is known to be a multiple of something, so that elements may be moved together."""
    arguments = zip(function.body.block.args, multiples_of(function), strict=True)
    return any(isinstance(each.type, PointerType) and multiple > 1 for each, multiple in arguments)
