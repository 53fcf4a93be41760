"""Reads the bounds of accesses to dense arguments of register tiles. A launch compares them with the arrays."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Operation, SSAValue

from louver.analysis.access import Dimension
from louver.analysis.affine import Affine, launch_size
from louver.analysis.ends import Ends
from louver.compile.canonical.describe_tiles import Describer, is_access, tile_shape
from louver.ir.conditions import DenseView
from louver.ir.polynomial import Extreme, Polynomial, Size
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile import FuncOp, MakeTensorDescriptorOp, PointerType, sparse_encoding


def read_dense_views(function: FuncOp) -> tuple[DenseView, ...]:
    """The sizes of dense arguments in descriptors and masks, without duplicates. A mask may be wider than what is read.

    Empty for a kernel without a sparse argument. Accesses that a launch cannot compare are left out: accesses without
    bounds, to matrices of a batch, or not of tiles.
    """
    names = function.argument_names
    if all(sparse_encoding(argument.type) is None for argument in names):
        return ()
    describer, found = Describer.of(function), dict[DenseView, None]()
    for op in function.body.walk():
        try:
            view = _view(describer, op, names)
        except UnsupportedKernelError:
            continue
        if view is not None:
            found[view] = None
    return tuple(found)


def _view(describer: Describer, op: Operation, names: Mapping[SSAValue, str]) -> DenseView | None:
    affine = describer.affine
    if isinstance(op, MakeTensorDescriptorOp):
        base, (sizes, strides) = op.base, ([affine.index(each) for each in part] for part in (op.sizes, op.steps))
        ends = [_launched(each, names) for each in sizes]
    elif is_access(op) and tile_shape(op) is not None:
        access = describer.access(op)
        if access.entry is not None:
            return None
        base, strides = access.base, [each.stride for each in access.dimensions]
        ends = [_end(each, affine, names) for each in access.dimensions]
    else:
        return None
    if base not in names or not isinstance(base.type, PointerType) or sparse_encoding(base.type) is not None:
        return None
    steps = [_launched(each, names) for each in strides]
    known = [(end, step) for end, step in zip(ends, steps, strict=True) if end is not None and step is not None]
    if len(known) < len(strides):
        return None
    return DenseView(names[base], tuple(end for end, _ in known), tuple(step for _, step in known))


def _end(each: Dimension, affine: Affine, names: Mapping[SSAValue, str]) -> Size | None:
    """The end of what is read along a dimension with a mask: its size, or the end of the last tile."""
    size = None if each.size is None else _launched(each.size, names)
    ends = Ends(affine, names)
    last = ends.of(each.first, "greatest")
    if size is None or last is None or ends.needs or each.wrapped:
        return size
    end = last + each.extent
    return Extreme("min", size, end).made(size, end)


def _launched(value: Polynomial, names: Mapping[SSAValue, str]) -> Size | None:
    # A sum comes from a mask that excludes more than the kernel reads, or from a part of a dimension.
    return launch_size(value, names) if len(value.terms) < 2 else None
