"""Splits an operation on a sparse tensor into an operation on its values and one on its metadata."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Operation, SSAValue

from louver.compile.decompose.memory import (
    Axes,
    Entries,
    Parts,
    contiguous_axes,
    metadata_counts,
    part_types,
    split_offsets,
    split_shape,
    split_strides,
)
from louver.compile.rewrite.insert import insert_before
from louver.compile.rewrite.numbers import Numbers
from louver.ir import tile as tt
from louver.ir.refusal import unsupported
from louver.ir.tile.syntax import join_indices, split_indices
from louver.ir.tile.types import as_tensor, tensor_of


def decompose_operation(op: Operation, parts: Mapping[SSAValue, Parts], whole_rows: bool) -> Parts | SSAValue:
    """The result of `op` in parts, or the whole result for a dot. Operations are inserted before `op`.

    Rejects operations that cannot be decomposed.
    """
    if isinstance(op, tt.DotOp):
        return _dot(op, parts)
    part = parts.get(op.operands[0])
    if part is None:
        raise unsupported("a sparse tensor must be the first operand of an operation on it", op)
    match op:
        case tt.DecompressOp():
            return _decompressed(op, part)
        case tt.MakeTensorDescriptorOp():
            return _descriptor(op, part, whole_rows)
        case tt.MakeTensorPtrOp():
            return _block_pointer(op, part, whole_rows)
        case tt.AdvanceOp():
            return _advance(op, part)
        case tt.DescriptorLoadOp():
            return _descriptor_load(op, part)
        case tt.LoadOp():
            return _load(op, part)
        case tt.TransOp():
            axes = _axes(part).turned(op.order.get_values())
            order = op.order.get_values()
            return Parts(
                insert_before(op, tt.TransOp(part.values, order)),
                insert_before(op, tt.TransOp(part.metadata, order)),
                axes,
            )
        case tt.ReshapeOp():
            return _reshape(op, part)
        case _:
            raise AssertionError(f"no rule for {op.name}")


def _axes(part: Parts) -> Axes:
    assert part.axes is not None
    return part.axes


def _descriptor(op: tt.MakeTensorDescriptorOp, part: Parts, whole_rows: bool) -> Parts:
    tile = op.block
    encoding = tt.sparse_encoding(tile)
    assert encoding is not None
    if tile.get_num_dims() < 2:
        raise unsupported("a sparse tensor needs two dimensions at least, rows and columns", op)
    axes, narrow = Axes.last(tile.get_num_dims()), Numbers(op, 32)
    shapes = split_shape(op.sizes, axes, encoding, tile.element_type, narrow)
    wide = Numbers(op, 64)
    counts = metadata_counts(op.steps, axes, tile.element_type, wide) if whole_rows else shapes[1]
    strides = split_strides(op.steps, axes, counts, wide)
    made: list[SSAValue] = []
    types = part_types(op.result.type, axes, op)
    for base, shape, steps, type_ in zip((part.values, part.metadata), shapes, strides, types, strict=True):
        assert isinstance(type_, tt.DescriptorType)
        made.append(insert_before(op, tt.MakeTensorDescriptorOp(base, shape, steps, type_.block.get_shape())))
    _keep(op, made[0], "padding")
    return Parts(made[0], made[1], axes)


def _block_pointer(op: tt.MakeTensorPtrOp, part: Parts, whole_rows: bool) -> Parts:
    tile = op.block
    encoding = tt.sparse_encoding(tile)
    assert encoding is not None
    steps = join_indices(op.strides, op.static_strides)
    axes = contiguous_axes(steps, op)
    types = part_types(op.result.type, axes, op)
    wide = Numbers(op, 64)
    shapes = split_shape(join_indices(op.shape, op.static_shape), axes, encoding, tile.element_type, wide)
    counts = metadata_counts(steps, axes, tile.element_type, wide) if whole_rows else shapes[1]
    strides = split_strides(steps, axes, counts, wide)
    offsets = split_offsets(join_indices(op.offsets, op.static_offsets), axes, tile, Numbers(op, 32))
    made: list[SSAValue] = []
    for index, base in enumerate((part.values, part.metadata)):
        lists = [split_indices(entries[index]) for entries in (shapes, strides, offsets)]
        names = ("static_shape", "static_strides", "static_offsets")
        properties = {name: literals for name, (_, literals) in zip(names, lists, strict=True)}
        new = tt.MakeTensorPtrOp.build(
            operands=[base, *(values for values, _ in lists)],
            properties=properties | ({} if op.order is None else {"order": op.order}),
            result_types=[types[index]],
        )
        made.append(insert_before(op, new))
    return Parts(made[0], made[1], axes)


def _advance(op: tt.AdvanceOp, part: Parts) -> Parts:
    assert isinstance(op.result.type, tt.PointerType)
    tile = as_tensor(op.result.type.pointee)
    assert tile is not None
    moves = split_offsets(join_indices(op.offsets, op.static_offsets), _axes(part), tile, Numbers(op, 32), moves=True)
    made = [_advanced(base, entries, op) for base, entries in zip((part.values, part.metadata), moves, strict=True)]
    return Parts(made[0], made[1], part.axes)


def _advanced(base: SSAValue, entries: Entries, op: tt.AdvanceOp) -> SSAValue:
    values, literals = split_indices(entries)
    new = tt.AdvanceOp.build(operands=[base, values], properties={"static_offsets": literals}, result_types=[base.type])
    return insert_before(op, new)


def _descriptor_load(op: tt.DescriptorLoadOp, part: Parts) -> Parts:
    places = split_offsets(op.offsets, _axes(part), tensor_of(op.result), Numbers(op, 32))
    values, metadata = (
        insert_before(op, tt.DescriptorLoadOp(base, entries))
        for base, entries in zip((part.values, part.metadata), places, strict=True)
    )
    for made in (values, metadata):
        _keep(op, made, "cache", "evict")
    return Parts(values, metadata, part.axes)


def _load(op: tt.LoadOp, part: Parts) -> Parts:
    if part.axes is None or op.mask is not None:
        raise unsupported(
            "a sparse tile must be loaded through a block pointer, with boundary_check instead of a mask", op
        )
    values, metadata = (insert_before(op, tt.LoadOp(base)) for base in (part.values, part.metadata))
    for made in (values, metadata):
        _keep(op, made, "boundaryCheck", "cache", "evict", "isVolatile")
    # The padding of values outside of the tensor. Metadata there does not matter.
    _keep(op, values, "padding")
    return Parts(values, metadata, part.axes)


def _keep(op: Operation, made: SSAValue, *names: str) -> None:
    """Copy these properties of the old operation to the new one."""
    assert isinstance(made.owner, Operation)
    made.owner.properties |= {name: op.properties[name] for name in names if name in op.properties}


def _reshape(op: tt.ReshapeOp, part: Parts) -> Parts:
    after, axes = list(tensor_of(op.result).get_shape()), _axes(part)
    further = len(after) - tensor_of(part.values).get_num_dims()
    kept = list(tensor_of(op.src).get_shape()[-2:]) == after[-2:]
    if not kept or min(axes.rows, axes.columns) < tensor_of(part.values).get_num_dims() - 2:
        raise unsupported("a reshape of a sparse tile must keep its rows and columns, the last two dimensions", op)
    made: list[SSAValue] = []
    for value in (part.values, part.metadata):
        made.append(insert_before(op, tt.ReshapeOp(value, [*after[:-2], *tensor_of(value).get_shape()[-2:]])))
    return Parts(made[0], made[1], Axes(axes.rows + further, axes.columns + further))


def _decompressed(op: Operation, part: Parts) -> SSAValue:
    axes = _axes(part)
    if tensor_of(part.values).get_num_dims() != 2:
        raise unsupported(
            "a sparse tile must be a matrix where its elements are used", op, "reshape it to [rows, columns] first"
        )
    return insert_before(op, tt.DecompressOp(part.values, part.metadata, axes.columns))


def _dot(op: tt.DotOp, parts: Mapping[SSAValue, Parts]) -> SSAValue:
    index = 0 if op.a in parts else 1
    if op.metadata is not None:
        raise unsupported("a dot of a kernel takes its sparse operand by type, without metadata", op)
    operands = [op.a, op.b]
    part = parts[operands[index]]
    if _axes(part) == Axes(index, 1 - index):
        operands[index] = part.values
        return insert_before(op, op.decomposed(operands[0], operands[1], part.metadata, index))
    # The dot sums along the axis that is not sparse.
    operands[index] = _decompressed(op, part)
    return insert_before(op, op.on(operands[0], operands[1]))
