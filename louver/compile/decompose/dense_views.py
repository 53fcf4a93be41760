"""Reads the bounds of accesses to dense arguments of register tiles. A launch compares them with the arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import Operation, SSAValue

from louver.analysis.launch_size import launch_size
from louver.compile.canonical.describe_tiles import Describer, is_access, tile_shape
from louver.ir.conditions import DenseView
from louver.ir.polynomial import Polynomial, Size
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile import FuncOp, MakeTensorDescriptorOp, PointerType, sparse_encoding


def read_dense_views(function: FuncOp) -> tuple[DenseView, ...]:
    """The sizes of dense arguments in descriptors and masks, without duplicates.

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
    if isinstance(op, MakeTensorDescriptorOp):
        base, (sizes, strides) = (
            op.base,
            ([describer.affine.index(each) for each in part] for part in (op.sizes, op.steps)),
        )
    elif is_access(op) and tile_shape(op) is not None:
        access = describer.access(op)
        base, strides = access.base, [each.stride for each in access.dimensions]
        sizes = [each.size for each in access.dimensions if each.size is not None]
        if access.entry is not None or len(sizes) < len(strides):
            return None
    else:
        return None
    if base not in names or not isinstance(base.type, PointerType) or sparse_encoding(base.type) is not None:
        return None
    found = [_launched(part, names) for part in (sizes, strides)]
    return None if found[0] is None or found[1] is None else DenseView(names[base], found[0], found[1])


def _launched(values: Sequence[Polynomial], names: Mapping[SSAValue, str]) -> tuple[Size, ...] | None:
    # A sum comes from a mask that excludes more than the kernel reads, or from a part of a dimension.
    found = [size for each in values if len(each.terms) < 2 and (size := launch_size(each, names)) is not None]
    return tuple(found) if len(found) == len(values) else None
