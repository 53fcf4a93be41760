"""Reports of violations: a kernel that finds at run time that it broke a rule sets a flag, see `louver.runtime.violations`."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, StringAttr, UnitAttr, i32
from xdsl.ir import SSAValue

from louver.compile.rewrite.insert import insert
from louver.compile.rewrite.tile_numbers import TileNumbers, shape_of
from louver.ir import tile as tt
from louver.ir.computed import VIOLATIONS
from louver.ir.tile.multiples import APART, DIVISIBILITY

FLAG_MULTIPLE = 16
"""Bytes to which a page of violations is aligned."""


def known_flag(function: tt.FuncOp) -> SSAValue | None:
    """The argument for the page of violations; None if there is none."""
    return next((value for value, name in function.argument_names.items() if name == VIOLATIONS), None)


def flag_of(function: tt.FuncOp) -> SSAValue:
    """The argument for the page of violations. A function that has none gets one behind its others."""
    block, known = function.body.block, known_flag(function)
    if known is not None:
        return known
    attributes = [*function.argument_attributes, {DIVISIBILITY: IntegerAttr(FLAG_MULTIPLE, 32), APART: UnitAttr()}]
    flag = block.insert_arg(tt.PointerType(i32), len(block.args))
    function.take_types()
    function.argument_attributes = attributes
    function.name_arguments({len(block.args) - 1: VIOLATIONS})
    return flag


def report(flag: SSAValue, wrong: SSAValue, make: TileNumbers) -> None:
    """Set the flag where a condition, or an element of a tile of conditions, is true. Several threads may report at once."""
    shape = shape_of(wrong)
    one = make.whole(make.constant(1), shape)
    kind = {"kind": StringAttr("or"), "sem": StringAttr("relaxed"), "scope": StringAttr("gpu")}
    operands = [make.whole(flag, shape), one, [wrong]]
    insert(make.op, tt.AtomicRMWOp.build(operands=operands, properties=kind, result_types=[one.type]), make.op)
