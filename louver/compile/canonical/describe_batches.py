"""describe-batches: changes a descriptor whose pointer was moved to one matrix of a batch to a descriptor of the batch.

`tl.make_tensor_descriptor(a + e * stride, [M, K], …)` has the sizes of one matrix. The new descriptor starts at the
argument itself, so facts about the argument, such as its encoding, hold for the descriptor. e becomes an index.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.affine import Elements
from louver.analysis.batch import batch_entry
from louver.compile.canonical.describe_tiles import Describer
from louver.compile.rewrite.insert import insert, insert_before
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir import tile as tt
from louver.ir.polynomial import Polynomial


def describe_batches(module: ModuleOp) -> None:
    """Rewrite in place. Rejects, with operation and source line, a moved descriptor that is not a matrix of a batch."""
    for function in [op for op in module.body.ops if isinstance(op, tt.FuncOp)]:
        if describe_moved(Describer.of(function), sparse=False):
            remove_dead(function)


def describe_moved(describer: Describer, *, sparse: bool) -> bool:
    """Describe moved descriptors, only of sparse tensors if `sparse`. Returns whether there were any."""
    arguments = describer.function.body.block.args
    moved = [
        op
        for op in describer.function.body.walk()
        if isinstance(op, tt.MakeTensorDescriptorOp) and op.base not in arguments
        if not sparse or tt.sparse_encoding(op.block) is not None
        if all(
            isinstance(use.operation, tt.DescriptorLoadOp | tt.DescriptorStoreOp | tt.DescriptorReduceOp)
            for use in op.result.uses
        )
    ]
    for op in moved:
        _describe(describer, op)
    return bool(moved)


def _describe(describer: Describer, op: tt.MakeTensorDescriptorOp) -> None:
    found = describer.affine.pointer(op.base)
    assert isinstance(found, Elements)
    pitches = [describer.affine.index(each) for each in op.steps]
    entry = batch_entry(found.offset, op, gapless=tt.sparse_encoding(op.block) is not None, pitches=pitches)
    if entry is None:
        Rewriter.replace_op(op, tt.MakeTensorDescriptorOp(found.base, op.sizes, op.steps, op.block.get_shape()))
        return
    describer.require_one_row(found.base, entry, op)
    batch = describer.descriptors.of_batch(op, op, found.base, entry)
    for use in list(op.result.uses):
        user = use.operation
        if isinstance(user, tt.DescriptorLoadOp):
            load_of_batch(describer, user, batch, entry.index, user.offsets)
        elif isinstance(user, tt.DescriptorStoreOp | tt.DescriptorReduceOp):
            value = insert_before(user, tt.ReshapeOp(user.src, [1, *op.block.get_shape()]))
            first = describer.descriptors.first(entry.index, user)
            insert(user, user.through(batch, [first, *user.offsets], value), user)
            Rewriter.erase_op(user)
    Rewriter.erase_op(op)


def load_of_batch(
    describer: Describer, op: tt.DescriptorLoadOp, batch: SSAValue, index: Polynomial, offsets: Sequence[tt.Index]
) -> None:
    """Replace a load of a matrix by one of the batch. index: of the matrix. offsets: in it."""
    load = tt.DescriptorLoadOp(batch, [describer.descriptors.first(index, op), *offsets])
    load.properties |= {name: op.properties[name] for name in ("cache", "evict") if name in op.properties}
    value = insert_before(op, tt.ReshapeOp(insert_before(op, load), op.result.type.get_shape()))
    Rewriter.replace_op(op, [], [value])
