"""Chooses the operands of dots that go through shared memory.

These are loaded operands in kernels with several dots or a loop of dots, and computed operands of warpgroup products.

A warp's products take an operand in an order of their own, and warps share operands: read from memory as they take it, each row
is touched by many short accesses, again for each warp. Rows loaded once, 16 bytes a thread, are put into shared memory instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import FixedBitwidthType
from xdsl.ir import Block, Operation, SSAValue

from louver.analysis.elementwise import ELEMENTWISE
from louver.analysis.integers import constant_integer, position
from louver.compile.plan.encode.unit import is_transposed, multiplies, product_left
from louver.ir.comparisons import SelectOp
from louver.ir.tile import (
    AddPtrOp,
    BroadcastOp,
    CompressOp,
    DecompressOp,
    DotOp,
    ExpandDimsOp,
    FuncOp,
    GatherOp,
    JoinOp,
    LoadOp,
    MakeRangeOp,
    ReduceOp,
    ReshapeOp,
    ScanOp,
    SplatOp,
    TransOp,
    element_name,
)
from louver.ir.tile.multiples import has_known_addresses
from louver.ir.tile.types import as_tensor, tensor_of
from louver.isa.swizzle import CHUNK
from louver.isa.wgmma import TRANSPOSABLE

STAGED_BYTES = 96 * 1024
"""Of all staged operands that a kernel needs at one time: two CTAs fit the shared memory of an SM, and exchanges have room."""

Stride = int | None
"""Elements from an element to its neighbour along a dimension; None where that is not known."""


def staged_operands(function: FuncOp, *, warpgroups: bool = True) -> dict[SSAValue, int]:
    """Dense operands and values of sparse ones, and metadata for warpgroups, each with the dimension of its neighbours in shared memory.

    That is the dimension whose neighbours are neighbours in memory, or K where warpgroups multiply nothing else. warpgroups: whether the
    target multiplies by them. Valid tile IR without sparse types, descriptors and block pointers (after expand-blocks). The choice is about speed alone:
    any tile may go either way.
    """
    dots = [op for op in function.body.walk() if isinstance(op, DotOp)]
    if len(dots) == 1 and not isinstance(dots[0].parent_op(), scf.ForOp):
        # It runs once: nothing is gained by another way.
        return {}
    wide = has_known_addresses(function)
    found: dict[SSAValue, int] = {}
    room = _Room(function)
    for value in (operand for op in dots for operand in (op.a, op.b)):
        dimension = loaded_along(value)
        if value in found or dimension is None or not room.fits(found, value) or row_bytes(value, dimension) < CHUNK:
            continue
        if wide or element_bytes(value) > 1:
            # Single bytes would be in a register each until a chunk is whole.
            found[value] = dimension
    for op in dots if wide and warpgroups else ():
        along_k = {op.a: 1, op.b: 0}
        if all(value in found and row_bytes(value, along) >= CHUNK for value, along in along_k.items()):
            turned = found | along_k
            if multiplies(op, turned) and not multiplies(op, found):
                found = turned
    for op in dots if wide and warpgroups else ():
        made = _made(op, found)
        if made and room.fits(found, *made) and multiplies(op, {**found, **made}):
            found |= made
    for op in dots if wide and warpgroups else ():
        left, k = product_left(op)
        if found.get(left) == k and _stays(op, left) and multiplies(op, found):
            # Each warp computes the rows that it multiplies: no thread waits for another one.
            del found[left]
    for op in dots:
        # Warps take it from memory as they need it; to a warpgroup it comes with the operands.
        if wide and op.metadata is not None and multiplies(op, found):
            along = loaded_along(op.metadata)
            if along is not None and row_bytes(op.metadata, along) >= CHUNK:
                found[op.metadata] = along
    return found


class _Room:
    """The tiles of a function that stand in shared memory at one time."""

    def __init__(self, function: FuncOp) -> None:
        self._numbers = {op: number for number, op in enumerate(function.body.walk())}

    def fits(self, staged: Iterable[SSAValue], *more: SSAValue) -> bool:
        """Whether there is room for further tiles beside the staged ones."""
        tiles = [*dict.fromkeys((*staged, *more))]
        lives = {tile: self._life(tile) for tile in tiles}
        return all(
            sum(tile_bytes(tile) for tile in tiles if lives[tile][0] <= at <= lives[tile][1]) <= STAGED_BYTES
            for at, _ in lives.values()
        )

    def _life(self, tile: SSAValue) -> tuple[int, int]:
        """The numbers of the first and the last operation that need a tile in shared memory."""
        owner = tile.owner
        if isinstance(owner, Block):
            parent = owner.parent_op()
            assert parent is not None
            return self._numbers[parent], self._end(parent)
        return self._numbers[owner], max(self._end(_beside(use.operation, owner)) for use in tile.uses)

    def _end(self, op: Operation) -> int:
        """The number of the last operation within one."""
        return max(self._numbers[each] for each in op.walk())


def _beside(op: Operation, other: Operation) -> Operation:
    """The ancestor of an operation, or the operation itself, in the block of another one."""
    while op.parent_block() is not other.parent_block():
        parent = op.parent_op()
        assert parent is not None
        op = parent
    return op


def _made(op: DotOp, known: Mapping[SSAValue, int]) -> dict[SSAValue, int]:
    """The computed operands that a product of warpgroups takes from shared memory: not a dense A that lies as its registers do."""
    found: dict[SSAValue, int] = {}
    for k, value in ((1, op.a), (0, op.b)):
        turns = element_name(tensor_of(value).element_type) in TRANSPOSABLE
        summed = _summed_along(value) if turns else None
        along = k if summed is None else summed
        fits = value is product_left(op)[0] and turns and along == k
        if value not in known and not fits and row_bytes(value, along) >= CHUNK:
            found[value] = along
    return found


def _stays(op: DotOp, left: SSAValue) -> bool:
    """Whether threads compute a product's A, of elements that they can take as its registers have them."""
    if op.parts > 1 or element_name(tensor_of(left).element_type) not in TRANSPOSABLE or not is_computed(left):
        return False
    return all(isinstance(use.operation, DotOp) and product_left(use.operation)[0] is left for use in left.uses)


def is_computed(operand: SSAValue) -> bool:
    """Whether threads compute an operand of what they have loaded."""
    owner = operand.owner
    return is_computed(owner.src) if isinstance(owner, TransOp) else not isinstance(owner, LoadOp | Block)


def tile_bytes(value: SSAValue) -> int:
    """Bytes of a tile of numbers."""
    return prod(tensor_of(value).get_shape()) * element_bytes(value)


def row_bytes(value: SSAValue, dimension: int) -> int:
    """Bytes along a dimension of a tile."""
    return tensor_of(value).get_shape()[dimension] * element_bytes(value)


def element_bytes(value: SSAValue) -> int:
    """Bytes of an element of a tile of numbers."""
    element = tensor_of(value).element_type
    assert isinstance(element, FixedBitwidthType)
    return element.bitwidth // 8


def loaded_along(value: SSAValue) -> int | None:
    """The dimension along which a tile's elements are loaded side by side; None for what is not made of loads element by element."""
    owner = value.owner
    if isinstance(owner, Block):
        loop = owner.parent_op()
        index = position(value, owner.args) - 1
        return loaded_along(loop.iter_args[index]) if isinstance(loop, scf.ForOp) and index >= 0 else None
    match owner:
        case LoadOp():
            found = strides(owner.ptr)
            return found.index(1) if found.count(1) == 1 else None
        case TransOp():
            inner = loaded_along(owner.src)
            return None if inner is None else list(owner.order.get_values()).index(inner)
        case ReshapeOp():
            return _kept(loaded_along(owner.src), tensor_of(owner.src).get_shape(), tensor_of(value).get_shape())
        case DecompressOp(columns=along) | CompressOp(columns=along) if along is not None:
            return along.value.data
        case DotOp() | ReduceOp() | ScanOp() | JoinOp() | GatherOp() | scf.ForOp() | scf.IfOp() | scf.WhileOp():
            return None
        case _:
            return _of_operands(owner, tensor_of(value).get_shape())


def _summed_along(value: SSAValue) -> int | None:
    """The dimension along which a thread has neighbours of a tile that is made of a dot's sums; None for other tiles."""
    seen: set[SSAValue] = set()
    pending, turned = [value], {value: 0}
    while pending:
        value = pending.pop()
        owner = value.owner
        if value in seen or isinstance(owner, Block) or tensor_of(value).get_num_dims() != 2:
            continue
        seen.add(value)
        if isinstance(owner, DotOp):
            return turned[value] ^ (not is_transposed(owner))
        if isinstance(owner, scf.ForOp):
            end = owner.body.block.last_op
            assert end is not None
            sources = [end.operands[position(value, owner.results)]]
        else:
            sources = [each for each in owner.operands if as_tensor(each.type) is not None]
        for each in sources:
            turned[each] = turned[value] ^ isinstance(owner, TransOp)
        pending += sources
    return None


def _kept(dimension: int | None, before: Sequence[int], after: Sequence[int]) -> int | None:
    """The place of a dimension after a change of shape that only adds or drops dimensions of one element."""
    kept, found = ([axis for axis, size in enumerate(shape) if size > 1] for shape in (before, after))
    if dimension not in kept or [before[axis] for axis in kept] != [after[axis] for axis in found]:
        return None
    return found[kept.index(dimension)]


def _of_operands(op: Operation, shape: Sequence[int]) -> int | None:
    """Of an operation on elements: its operands are repeated rows, or loaded along one dimension."""
    tiles = [operand for operand in op.operands if as_tensor(operand.type) is not None]
    if not tiles or any(tuple(tensor_of(tile).get_shape()) != tuple(shape) for tile in tiles):
        return None
    found = {loaded_along(tile) for tile in tiles if not _is_repeated(tile)}
    return next(iter(found)) if len(found) == 1 else None


def _is_repeated(tile: SSAValue) -> bool:
    """Whether a tile is made of rows, columns and numbers alone."""
    owner = tile.owner
    if isinstance(owner, BroadcastOp | SplatOp | arith.ConstantOp):
        return True
    if isinstance(owner, Block) or not isinstance(owner, ELEMENTWISE):
        return False
    return all(_is_repeated(each) for each in owner.operands if as_tensor(each.type) is not None)


def strides(value: SSAValue) -> tuple[Stride, ...]:
    """Of a tile of integers or pointers, along each dimension, in elements."""
    tensor = as_tensor(value.type)
    if tensor is None:
        return ()
    rank, owner = len(tensor.get_shape()), value.owner
    match owner:
        case MakeRangeOp():
            return (1,)
        case SplatOp() | arith.ConstantOp():
            return (0,) * rank
        case ExpandDimsOp():
            inner, axis = strides(owner.src), owner.axis.value.data
            return (*inner[:axis], 0, *inner[axis:])
        case BroadcastOp():
            return strides(owner.src)
        case arith.AddiOp() | AddPtrOp():
            pairs = zip(*map(strides, owner.operands), strict=True)
            return tuple(None if None in pair else sum(cast(Sequence[int], pair)) for pair in pairs)
        case arith.MuliOp():
            return _scaled(owner)
        case arith.RemSIOp(lhs=rows) | SelectOp(lhs=rows) | arith.MinSIOp(lhs=rows) | arith.MaxSIOp(lhs=rows):
            # Rows that wrap, or stay at the last one, are side by side until then.
            return strides(rows)
        case Operation():
            tiles = [each for each in owner.operands if as_tensor(each.type) is not None]
            if any(tensor_of(each).get_shape() != tensor.get_shape() for each in tiles):
                return (None,) * rank
            if len(tiles) == 1 and len(owner.operands) == 1 and not isinstance(owner, LoadOp):
                # An extension of the integers.
                return strides(tiles[0])
            columns = zip(*map(strides, tiles), strict=True)
            return tuple(0 if not any(column) and None not in column else None for column in columns)
        case _:
            return (None,) * rank


def _scaled(op: arith.MuliOp) -> tuple[Stride, ...]:
    """Of a product: with a number, so many times the stride."""
    for tile, by in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        factor = constant_integer(by.owner.src if isinstance(by.owner, SplatOp) else by)
        if factor is not None:
            return tuple(None if each is None else each * factor for each in strides(tile))
    pairs = zip(strides(op.lhs), strides(op.rhs), strict=True)
    return tuple(0 if pair == (0, 0) else None for pair in pairs)
