"""Arguments of tile IR marked as multiples of 16, as Triton marks those that a call's are."""

from __future__ import annotations

from collections.abc import Collection

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp

from louver.ir.tile import FuncOp
from louver.passes.encode import DIVISIBILITY


def mark_multiples(module: ModuleOp, names: Collection[str]) -> ModuleOp:
    """The module with these arguments of its kernel marked, in place."""
    (function,) = [op for op in module.body.ops if isinstance(op, FuncOp)]
    arguments = function.body.block.args
    given = [{}] * len(arguments) if function.arg_attrs is None else [each.data for each in function.arg_attrs]
    function.arg_attrs = ArrayAttr(
        DictionaryAttr({**each, DIVISIBILITY: IntegerAttr(16, 32)} if argument.name_hint in names else each)
        for argument, each in zip(arguments, given, strict=True)
    )
    return module
