"""Finds which elements of a tile are neighbours in memory, for loaded tiles and for tiles computed from them by
elementwise operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import cast

from xdsl.dialects import arith, scf
from xdsl.ir import Block, Operation, SSAValue

from louver.analysis.effects import is_elementwise
from louver.analysis.integers import constant_integer, position
from louver.compile.plan.feeds.chunks import known_chunk
from louver.ir import tile as tt
from louver.ir.comparisons import SelectOp
from louver.ir.tile.types import as_tensor, memory_bytes, tensor_of

Stride = int | None
"""The distance from an element to its neighbour along a dimension, in elements; None if it is not known."""


def is_computed(operand: SSAValue) -> bool:
    """Whether threads compute an operand, rather than load it."""
    owner = operand.owner
    return is_computed(owner.src) if isinstance(owner, tt.TransOp) else not isinstance(owner, tt.LoadOp | Block)


def is_gathered(operand: SSAValue) -> bool:
    """Whether an operand is loaded from addresses of which no neighbours are known."""
    owner = operand.owner
    if isinstance(owner, tt.TransOp):
        return is_gathered(owner.src)
    return isinstance(owner, tt.LoadOp) and loaded_along(operand) is None


def tile_bytes(value: SSAValue) -> int:
    """Bytes of a tile, or of a scalar."""
    tensor = as_tensor(value.type)
    return (1 if tensor is None else prod(tensor.get_shape())) * memory_bytes(value.type)


def row_bytes(value: SSAValue, dimension: int) -> int:
    """Bytes along a dimension of a tile."""
    return tensor_of(value).get_shape()[dimension] * memory_bytes(value.type)


def loaded_along(value: SSAValue) -> int | None:
    """The dimension along which a tile's elements are neighbours in memory.

    None for a tile that is not computed from loads by elementwise operations.
    """
    return _Reader().along(value)


def strides(value: SSAValue) -> tuple[Stride, ...]:
    """The strides of a tile of integers or pointers along each dimension, in elements."""
    return _Reader().strides(value)


class _Reader:
    """Reads values. A value with several uses is read once: paths to it may double with each operation."""

    def __init__(self) -> None:
        self._along: dict[SSAValue, int | None] = {}
        self._repeated: dict[SSAValue, bool] = {}
        self._strides: dict[SSAValue, tuple[Stride, ...]] = {}

    def along(self, value: SSAValue) -> int | None:
        """See `loaded_along`."""
        if value not in self._along:
            self._along[value] = self._loaded_along(value)
        return self._along[value]

    def strides(self, value: SSAValue) -> tuple[Stride, ...]:
        """See `strides`."""
        if value not in self._strides:
            self._strides[value] = self._strides_of(value)
        return self._strides[value]

    def _is_repeated(self, tile: SSAValue) -> bool:
        """Whether a tile is computed only from broadcast tiles, scalars and constants."""
        if tile not in self._repeated:
            self._repeated[tile] = self._repeats(tile.owner)
        return self._repeated[tile]

    def _repeats(self, owner: Operation | Block) -> bool:
        if isinstance(owner, tt.BroadcastOp | tt.SplatOp | arith.ConstantOp):
            return True
        return not isinstance(owner, Block) and is_elementwise(owner) and all(map(self._is_repeated, _tiles(owner)))

    def _loaded_along(self, value: SSAValue) -> int | None:
        owner = value.owner
        if isinstance(owner, Block):
            loop = owner.parent_op()
            index = position(value, owner.args) - 1
            return self.along(loop.iter_args[index]) if isinstance(loop, scf.ForOp) and index >= 0 else None
        match owner:
            case tt.LoadOp():
                found, pieces = self.strides(owner.ptr), known_chunk(owner)
                if found.count(1) == 1:
                    return found.index(1)
                # Columns by quotient and remainder are neighbours in pieces.
                return pieces[0] if pieces is not None and pieces[1] > memory_bytes(owner.result.type) else None
            case tt.TransOp():
                inner = self.along(owner.src)
                return None if inner is None else list(owner.order.get_values()).index(inner)
            case tt.ReshapeOp():
                return _kept(self.along(owner.src), tensor_of(owner.src).get_shape(), tensor_of(value).get_shape())
            case tt.DecompressOp(columns=along) | tt.CompressOp(columns=along) if along is not None:
                return along.value.data
            case (
                tt.DotOp()
                | tt.ReduceOp()
                | tt.ScanOp()
                | tt.JoinOp()
                | tt.GatherOp()
                | scf.ForOp()
                | scf.IfOp()
                | scf.WhileOp()
            ):
                return None
            case _:
                return self._of_operands(owner, tensor_of(value).get_shape())

    def _of_operands(self, op: Operation, shape: Sequence[int]) -> int | None:
        """The dimension for an elementwise operation.

        Each operand is a broadcast, or has its neighbours along this dimension.
        """
        tiles = _tiles(op)
        if not tiles or any(tuple(tensor_of(tile).get_shape()) != tuple(shape) for tile in tiles):
            return None
        found = {self.along(tile) for tile in tiles if not self._is_repeated(tile)}
        return next(iter(found)) if len(found) == 1 else None

    def _strides_of(self, value: SSAValue) -> tuple[Stride, ...]:
        tensor = as_tensor(value.type)
        if tensor is None:
            return ()
        rank, owner = len(tensor.get_shape()), value.owner
        match owner:
            case tt.MakeRangeOp():
                return (1,)
            case tt.SplatOp() | arith.ConstantOp():
                return (0,) * rank
            case tt.ExpandDimsOp():
                inner, axis = self.strides(owner.src), owner.axis.value.data
                return (*inner[:axis], 0, *inner[axis:])
            case tt.BroadcastOp():
                return self.strides(owner.src)
            case arith.AddiOp() | tt.AddPtrOp():
                pairs = zip(*map(self.strides, owner.operands), strict=True)
                return tuple(None if None in pair else sum(cast(Sequence[int], pair)) for pair in pairs)
            case arith.MuliOp():
                return self._scaled(owner)
            case arith.RemSIOp(lhs=rows) | SelectOp(lhs=rows) | arith.MinSIOp(lhs=rows) | arith.MaxSIOp(lhs=rows):
                # Rows that wrap, or that are limited to the last row, are neighbours up to there.
                return self.strides(rows)
            case Operation():
                tiles = _tiles(owner)
                # Loops and branches pass on what their regions compute.
                if owner.regions or any(tensor_of(each).get_shape() != tensor.get_shape() for each in tiles):
                    return (None,) * rank
                if len(tiles) == 1 and len(owner.operands) == 1 and not isinstance(owner, tt.LoadOp):
                    # A conversion to another integer width.
                    return self.strides(tiles[0])
                columns = zip(*map(self.strides, tiles), strict=True)
                return tuple(0 if not any(column) and None not in column else None for column in columns)
            case _:
                return (None,) * rank

    def _scaled(self, op: arith.MuliOp) -> tuple[Stride, ...]:
        """The strides of a product. A constant factor multiplies them."""
        for tile, by in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            factor = constant_integer(by.owner.src if isinstance(by.owner, tt.SplatOp) else by)
            if factor is not None:
                return tuple(None if each is None else each * factor for each in self.strides(tile))
        pairs = zip(self.strides(op.lhs), self.strides(op.rhs), strict=True)
        return tuple(0 if pair == (0, 0) else None for pair in pairs)


def _tiles(op: Operation) -> list[SSAValue]:
    """The operands that are tiles."""
    return [each for each in op.operands if as_tensor(each.type) is not None]


def _kept(dimension: int | None, before: Sequence[int], after: Sequence[int]) -> int | None:
    """The index of a dimension after a change of shape that only adds or drops dimensions of one element."""
    kept, found = ([axis for axis, size in enumerate(shape) if size > 1] for shape in (before, after))
    if dimension not in kept or [before[axis] for axis in kept] != [after[axis] for axis in found]:
        return None
    return found[kept.index(dimension)]
