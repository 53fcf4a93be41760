"""Chooses the operands of dots that go through shared memory.

These are loaded operands in kernels with several dots or a loop of dots, and computed operands of warpgroup products.

A warp's products take an operand in an order of their own, and warps share operands: read from memory as they take it, each row
is touched by many short accesses, again for each warp. Rows loaded once, 16 bytes a thread, are put into shared memory instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from louver.analysis.integers import position
from louver.compile.plan.encode.unit import is_transposed, multiplies, product_left
from louver.compile.plan.feeds.neighbours import element_bytes, is_computed, loaded_along, row_bytes, tile_bytes
from louver.ir.tile import (
    DotOp,
    FuncOp,
    TransOp,
    element_name,
)
from louver.ir.tile.multiples import has_known_addresses
from louver.ir.tile.types import as_tensor, tensor_of
from louver.isa.swizzle import CHUNK
from louver.isa.wgmma import TRANSPOSABLE

STAGED_BYTES = 96 * 1024
"""Of all staged operands that a kernel needs at one time: two CTAs fit the shared memory of an SM, and exchanges have room."""


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
