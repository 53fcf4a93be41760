"""Promises about the arguments of a kernel: powers of two that divide them (Triton's attribute), arrays that do not overlap, and
sparse tensors that are one matrix.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from xdsl.dialects.builtin import IntegerAttr, UnitAttr
from xdsl.ir import Attribute, SSAValue

from louver.ir.tile.function import FuncOp
from louver.ir.tile.types import PointerType

DIVISIBILITY = "tt.divisibility"
"""The attribute with a number that divides an argument. Addresses are in bytes. Source: Triton."""

MULTIPLE = 16
"""The divisor with which arguments are marked: the bytes of the widest access, and its most elements."""

APART = "louver.apart"
"""The attribute of an array that does not overlap any other array of the call."""


MATRIX = "louver.matrix"
"""The attribute of a sparse tensor of two dimensions, that is sparse along the first one."""


def mark_multiples(function: FuncOp, multiples: Mapping[str, int]) -> None:
    """Mark arguments as multiples of a number, in place. multiples: the numbers by name, powers of two."""
    for name, of in multiples.items():
        _mark(function, (name,), DIVISIBILITY, IntegerAttr(of, 32))


def mark_apart(function: FuncOp, names: Collection[str]) -> None:
    """Mark the arrays with these names as not overlapping any other array, in place."""
    _mark(function, names, APART, UnitAttr())


def mark_matrices(function: FuncOp, names: Collection[str]) -> None:
    """Mark the sparse tensors with these names as single matrices that are sparse along the first axis, in place."""
    _mark(function, names, MATRIX, UnitAttr())


def _mark(function: FuncOp, names: Collection[str], key: str, mark: Attribute) -> None:
    given = function.argument_attributes
    for name, attributes in zip(function.argument_names.values(), given, strict=True):
        if name in names:
            attributes[key] = mark
    function.argument_attributes = given


def apart_of(function: FuncOp) -> frozenset[SSAValue]:
    """The arguments that are marked as not overlapping any other array."""
    arguments = zip(function.body.block.args, function.argument_attributes, strict=True)
    return frozenset(each for each, attributes in arguments if APART in attributes)


def multiples_of(function: FuncOp) -> list[int]:
    """For each argument, the largest power of two that divides it by its mark; 1 without a mark."""
    found: list[int] = []
    for attributes in function.argument_attributes:
        mark = attributes.get(DIVISIBILITY)
        number = mark.value.data if isinstance(mark, IntegerAttr) else 1
        found.append(number & -number if number > 0 else 1)
    return found


def has_known_addresses(function: FuncOp) -> bool:
    """Whether the alignment of any array is known, so that elements may be moved together."""
    arguments = zip(function.body.block.args, multiples_of(function), strict=True)
    return any(isinstance(each.type, PointerType) and multiple > 1 for each, multiple in arguments)
