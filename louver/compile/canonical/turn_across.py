"""turn-across: changes accesses to tensors [K, N] that are sparse along K to the stored form [N, K], with K contiguous.

A kernel describes the dense tensor [K, N], whose rows of N are contiguous. The pass describes the stored tensor [N, K],
loads the same tile of it, and transposes the tile. Input (after propagate-sparsity and make-host-descriptors) and
output are valid tile IR. describe-tiles and describe-sparse-tiles handle pointers and block pointers.
"""

from __future__ import annotations

from typing import TypeVar, cast

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.affine import launch_size
from louver.compile.condition_attributes import require_rows_apart
from louver.compile.rewrite.insert import insert_before
from louver.ir import tile as tt
from louver.ir.arith import ExtSIOp
from louver.ir.computed import LENGTH
from louver.ir.refusal import unsupported
from louver.ir.tile.function import text_of

T = TypeVar("T")

ACROSS = "louver.across"
"""The attribute of a function with the names of these arguments."""


def mark_across(function: tt.FuncOp, names: list[str]) -> None:
    """Mark the arguments that are such tensors."""
    if names:
        function.attributes[ACROSS] = ArrayAttr([StringAttr(name) for name in names])


def lengths_across(function: tt.FuncOp) -> dict[SSAValue, SSAValue]:
    """These arguments, each with the argument that is its length along the sparse axis."""
    marked = function.attributes.get(ACROSS)
    names = {name: argument for argument, name in function.argument_names.items()}
    found = [text_of(each) for each in cast("ArrayAttr[Attribute]", marked)] if isinstance(marked, ArrayAttr) else []
    return {names[name]: names[name + LENGTH] for name in found}


def turn_across(module: ModuleOp) -> None:
    """Rewrite descriptors in place.

    Rejects, with the line, strides that a launch cannot compare with the tensor.
    """
    for function in [op for op in module.body.ops if isinstance(op, tt.FuncOp)]:
        lengths = lengths_across(function)
        for op in list(function.body.walk()) if lengths else ():
            if not isinstance(op, tt.MakeTensorDescriptorOp) or (base := _base(op.base)) not in lengths:
                continue
            if not _is_turned(op, lengths[base]):
                _turn(function, op, base, lengths[base])


def _is_turned(op: tt.MakeTensorDescriptorOp, length: SSAValue) -> bool:
    """Whether the stride of rows is the length argument, which a user's kernel cannot use.

    The descriptor is then rewritten already.
    """
    rows_apart = op.steps[-2] if len(op.steps) > 1 else None
    return (
        isinstance(rows_apart, SSAValue) and isinstance(rows_apart.owner, ExtSIOp) and rows_apart.owner.input is length
    )


def _base(pointer: SSAValue) -> SSAValue:
    """The argument from which a pointer is computed."""
    while isinstance(pointer.owner, tt.AddPtrOp):
        pointer = pointer.owner.ptr
    return pointer


def _turn(function: tt.FuncOp, op: tt.MakeTensorDescriptorOp, base: SSAValue, length: SSAValue) -> None:
    names = function.argument_names
    sizes, steps, block = list(op.sizes), list(op.steps), list(op.block.get_shape())
    if len(sizes) < 2:
        raise unsupported("a sparse tensor needs two dimensions at least, rows and columns", op)
    apart = launch_size(steps[-2], names)
    if apart is None or len(apart.terms) > 1:
        raise unsupported("a stride of a sparse tensor must be an argument, a number, or a product of these", op)
    require_rows_apart(function, names[base], apart)
    steps[-2:] = [insert_before(op, ExtSIOp(length, i64)), 1]
    made = tt.MakeTensorDescriptorOp(op.base, _turned(sizes), steps, _turned(block))
    made.properties |= {name: op.properties[name] for name in ("padding",) if name in op.properties}
    turned = insert_before(op, made)
    turned.name_hint = op.result.name_hint
    order = _turned(list(range(len(block))))
    for use in list(op.result.uses):
        load = use.operation
        if not isinstance(load, tt.DescriptorLoadOp):
            raise unsupported(
                "a descriptor of a tensor that is sparse along its last axis but one may only be loaded through", load
            )
        new = tt.DescriptorLoadOp(turned, _turned(list(load.offsets)))
        new.properties |= {name: load.properties[name] for name in ("cache", "evict") if name in load.properties}
        value = insert_before(load, tt.TransOp(insert_before(load, new), order))
        Rewriter.replace_op(load, [], [value])
    Rewriter.erase_op(op)


def _turned(each: list[T]) -> list[T]:
    """The list with the last two entries exchanged."""
    return [*each[:-2], each[-1], each[-2]]
