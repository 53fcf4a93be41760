"""A dense argument that may hold a pattern: its memory in the order of a sparse tensor, and its check on the host. The axis
along which a kernel's dots sum it is asked of the kernel's operations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import louver
from louver.formats.dtypes import SPARSE_TYPES
from louver.formats.pattern import Pattern
from louver.formats.tensor import SparseTensor
from louver.ir.computed import TRANSPOSED
from louver.isa.targets import target as machine
from louver.library import streamed
from louver.runtime.arrays import ArrayView
from louver.runtime.dlpack import row_major
from louver.user.arguments import Kind
from louver.user.source import TileSource

Axis: TypeAlias = Literal[-1, -2]
"""An axis of the argument in memory: its rows, or the axis across them."""


def contracted_axis(source: TileSource, kind: Kind, name: str, pattern: str, target: str) -> Axis:
    """The axis of the argument `name`, in the order of memory, along which a dot sums.

    kind: of a call in which the argument is dense. pattern: the pattern that a sparse tensor would keep there.
    The argument alone is marked sparse along each axis, and the kernel is lowered as far as its sparse products. Raises
    ValueError with the argument if no dot sums along either.
    """
    reasons: list[str] = []
    marks: dict[Axis, str] = {-1: pattern, -2: pattern + TRANSPOSED}
    for axis, mark in marks.items():
        try:
            found = _multiplies(source, replace(kind, sparse=((name, mark),)), target)
        except ValueError as error:
            reasons.append(str(error))
            continue
        if found is None:
            return axis
        reasons += found
    why = "; ".join(dict.fromkeys(reasons)) or "no dot multiplies it"
    raise ValueError(
        f"find names arguments whose tiles a dot multiplies and sums along an axis, got {name!r} of {source.name}: {why}"
    )


def _multiplies(source: TileSource, kind: Kind, target: str) -> tuple[str, ...] | None:
    """None if the kernel has a sparse product; else the reasons why it has none."""
    # Imported here: a warm start reads kernels from disk and needs no xDSL until an argument is found.
    from louver.compile.kernel_state import KernelState
    from louver.compile.passes import run_passes
    from louver.compile.pipeline import TILES
    from louver.ir.tile import DotOp

    module = source.tile_ir(dict(kind.signature), dict(kind.constexprs), dict(kind.sparse), target)
    state = KernelState(module, machine(target))
    # Tiles are described, or addressed at run time.
    state = run_passes(TILES[0], state)
    sparse = any(isinstance(op, DotOp) and op.sparse_index is not None for op in state.kernel.walk())
    return None if sparse else state.dense


class NotFoundError(ValueError):
    """The reason why a call runs dense: its argument cannot be found, whatever it holds."""


def pattern_for(name: str, array: ArrayView) -> Pattern:
    """The pattern that sparse tensor cores multiply in this element type: 2:4, or 1:2 of f32. Raises NotFoundError."""
    if array.element.name not in SPARSE_TYPES:
        raise NotFoundError(f"{name!r} is of {array.element}, and sparse products are of {', '.join(SPARSE_TYPES)}")
    return Pattern(1, 2) if array.element.bits == 32 else Pattern(2, 4)


@dataclass(frozen=True, slots=True, eq=False)
class DenseArgument:
    """An argument named in `find`.

    array: its elements, with the axes in the order of memory, the last one contiguous. axis: that which a dot sums.
    """

    name: str
    array: ArrayView
    pattern: Pattern
    axis: Axis

    @property
    def facts(self) -> tuple[Any, ...]:
        """What decides the sparse tensor besides the contents."""
        return self.name, self.array.address, self.array.shape, self.array.element.name, self.axis

    @property
    def where(self) -> str:
        """The pattern and the axis in words."""
        return f"{self.pattern} along axis {len(self.array.shape) + self.axis} of its memory {list(self.array.shape)}"

    def sparse(self) -> SparseTensor | None:
        """The sparse tensor with the present elements, or None if they do not hold the pattern. Waits for the device."""
        if self.array.host is not None:
            if not louver.check(self.array.host, self.pattern, axis=self.axis, listed=0):
                return None
            return louver.compress(self.array.host, self.pattern, axis=self.axis)
        if not streamed.check(self.array, self.pattern, axis=self.axis, exact=False, listed=0):
            return None
        return streamed.compress(self.array, self.pattern, axis=self.axis, method=None)

    def pruned(self) -> SparseTensor:
        """A sparse tensor of a host array that breaks the pattern, as the check's kernel leaves one: legal, not the array."""
        return louver.compress(self.array.host, self.pattern, axis=self.axis, method="magnitude")


def in_memory_order(name: str, array: ArrayView) -> ArrayView:
    """The array with its axes in the order of memory. Raises NotFoundError unless its elements follow each other, as
    those of a sparse tensor's dense array do.
    """
    if len(array.shape) < 2:
        raise NotFoundError(f"{name!r} is sparse along one of its last two axes, got shape {list(array.shape)}")
    order = sorted(range(len(array.shape)), key=lambda axis: (-array.strides[axis], array.shape[axis] == 1))
    shape, strides = (tuple(each[axis] for axis in order) for each in (array.shape, array.strides))
    dense = row_major(shape)
    if 0 in shape or any(size > 1 and one != other for size, one, other in zip(shape, strides, dense, strict=True)):
        raise NotFoundError(
            f"{name!r} is found in memory without gaps, got shape {list(array.shape)} and strides {list(array.strides)}: a view of a "
            "part runs dense, its copy could be found"
        )
    host = None if array.host is None else array.host.transpose(order)
    return replace(array, shape=shape, strides=dense, host=host)
