"""The instruction, tile and bytes of each dot; warnings about dots for which a target has no fast instruction."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import cast

from xdsl.dialects.builtin import FixedBitwidthType

from louver.compile.plan.encode.unit import by_warpgroups, is_transposed, product_shape
from louver.compile.tiles import CompiledTiles
from louver.ir.refusal import source_location
from louver.ir.tile import DotOp, MmaAttr, element_name
from louver.ir.tile.types import register_encoding, tensor_of
from louver.isa.fragments import ROWS


def describe_dots(made: CompiledTiles) -> Iterator[str]:
    """A text for each dot: its place, its instruction, its tile of M×N×K, and the bytes of its operands."""
    for op in made.encoded.walk():
        if not isinstance(op, DotOp):
            continue
        sparse = op.sparse_index is not None
        held = [tensor_of(each) for each in (op.a, op.b, *([] if op.metadata is None else [op.metadata]))]
        nbytes = sum(prod(each.get_shape()) * cast(FixedBitwidthType, each.element_type).size for each in held)
        (rows, columns), depth = tensor_of(op.d).get_shape(), tensor_of(op.a if is_transposed(op) else op.b)
        k = depth.get_shape()[1 if is_transposed(op) else 0]
        unit = ("wgmma" if by_warpgroups(op) else "mma") + (".sp" if sparse else "")
        place = source_location(op.location)
        where = f" at {place}" if place else ""
        yield f"the dot{where} is {unit} of {rows}×{columns}×{k}, {nbytes:,} bytes of operands"


def explain_units(made: CompiledTiles) -> str | None:
    """The change that avoids dots without a fast instruction; None if there is no such dot."""
    for op in made.encoded.walk():
        if not isinstance(op, DotOp):
            continue
        encoding, element = register_encoding(op.d.type), element_name(tensor_of(op.a).element_type)
        if element not in made.target.emulated or not isinstance(encoding, MmaAttr) or encoding.of_warpgroup:
            continue
        rows, _ = product_shape(op)
        place = source_location(op.location)
        which = "rows of the sparse operand" if op.sparse_index is not None else "rows"
        advice = (
            f"choose blocks with {ROWS} {which} or more"
            if rows % ROWS
            else "load both operands in the loop, from addresses and rows of multiples of 16 bytes"
        )
        return (
            f"{made.target.name} multiplies {element} in groups of {ROWS} {which}, loaded in 16 bytes; the dot"
            f"{f' at {place}' if place else ''} has {rows} and is made of other instructions, many times slower: {advice}"
        )
    return None
