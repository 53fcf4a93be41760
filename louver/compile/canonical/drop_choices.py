"""drop-choices: changes a choice of addresses that keeps a load inside of its tensor to a mask.

`tl.load(w + tl.where(inside, offsets, 0))` reads any element of the tensor where `inside` is false. If nothing that is read
there changes a result, a mask may leave it out: the tile is then the same box as with `mask=inside`. This is so where the mask
of the load, of the other operand of a dot, of `tl.where`, or of each store excludes the same elements. Input and output are
valid tile IR. Only loads of sparse tensors change.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, i1
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.atoms import Lane, lanes
from louver.analysis.integers import constant_everywhere
from louver.analysis.masks import Bound, read_mask
from louver.analysis.passages import roots_of
from louver.compile.canonical.describe_tiles import Describer
from louver.compile.canonical.propagate_sparsity import sparse_arguments
from louver.compile.rewrite.insert import insert_before
from louver.compile.rewrite.remove_dead import remove_dead
from louver.compile.rewrite.tile_numbers import TileNumbers
from louver.ir.arith import ExtSIOp
from louver.ir.comparisons import SelectOp
from louver.ir.polynomial import Polynomial
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile import AddPtrOp, FuncOp, LoadOp, SplatOp
from louver.ir.tile.types import as_tensor, tensor_of


def drop_choices(module: ModuleOp) -> None:
    """Rewrite in place. A choice of elements that may change a result stays."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        sparse = sparse_arguments(function)
        loads = [op for op in function.body.walk() if isinstance(op, LoadOp) and sparse & roots_of(op.ptr)]
        chosen = [(op, choice) for op in loads if (choice := _choice(op.ptr)) is not None]
        if not chosen:
            continue
        describer = Describer.of(function)
        dropped = [op for op, choice in chosen if _drop(op, choice, describer)]
        if dropped:
            remove_dead(function)


def _choice(pointer: SSAValue) -> SelectOp | None:
    """The choice by which a tile of pointers is made: of pointers, or of the offsets that are added last."""
    value = pointer.owner.offset if isinstance(pointer.owner, AddPtrOp) else pointer
    while isinstance(value.owner, ExtSIOp):
        value = value.owner.input
    choice = value.owner
    return choice if isinstance(choice, SelectOp) and as_tensor(choice.cond.type) is not None else None


def _drop(op: LoadOp, choice: SelectOp, describer: Describer) -> bool:
    """Take the addresses that a choice makes where its condition holds, or does not, and mask the others. Returns whether
    this can be done.
    """
    holds = _is_anywhere(choice.rhs)
    if holds == _is_anywhere(choice.lhs):
        return False
    try:
        bounds = read_mask(describer.affine, choice.cond, op, holds=holds)
        left_out = all(_is_left_out(op, bound, describer) for bound in bounds)
    except UnsupportedKernelError:
        return False
    if not left_out:
        return False
    make = TileNumbers(op)
    condition = choice.cond if holds else make.differ(choice.cond, make.filled(1, i1, tensor_of(op.result).get_shape()))
    new = LoadOp(_chosen(op.ptr, choice.lhs if holds else choice.rhs, op), make.both(op.mask, condition), op.other)
    new.properties |= {name: value for name, value in op.properties.items() if name != "operandSegmentSizes"}
    new.result.name_hint = op.result.name_hint
    Rewriter.replace_op(op, [], [insert_before(op, new)])
    return True


def _is_anywhere(value: SSAValue) -> bool:
    """Whether the addresses or offsets of a tile are all the same."""
    return constant_everywhere(value) is not None or isinstance(value.owner, SplatOp)


def _is_left_out(op: LoadOp, bound: Bound, describer: Describer) -> bool:
    """Whether elements outside of a bound change no result. Raises UnsupportedKernelError if they may."""
    dimensions = lanes(bound.value)
    if len(dimensions) != 1:
        return False
    (dimension,) = dimensions
    beyond = bound.value - Polynomial.atom(Lane(dimension))
    if lanes(beyond):
        return False
    if op.mask is None or not describer.excludes(op.mask, dimension, op, beyond=beyond):
        describer.check_beyond(op, dimension, beyond)
    return True


def _chosen(pointer: SSAValue, value: SSAValue, op: LoadOp) -> SSAValue:
    """The addresses of a load, with one side of the choice in place of it."""
    owner = pointer.owner
    if not isinstance(owner, AddPtrOp):
        return value
    offset = owner.offset.type
    wide = value if value.type == offset else insert_before(op, ExtSIOp(value, offset))
    return insert_before(op, AddPtrOp(owner.ptr, wide))
