"""Chooses the operands of dots that go through shared memory.

These are loaded operands in kernels with several dots or a loop of dots, and computed operands of warpgroup products.
The products of a warp need an operand in a special order, and warps share operands. Direct loads in that order would
read each row by many short accesses, and again for each warp. Instead, threads load rows once, 16 bytes a thread, and
store them to shared memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from louver.analysis.integers import position
from louver.analysis.passages import end_of, stepping_loop
from louver.compile.plan.encode.unit import is_transposed, multiplies, product_left, turns_sums
from louver.compile.plan.feeds.neighbours import is_computed, is_gathered, loaded_along, row_bytes, tile_bytes
from louver.ir import tile as tt
from louver.ir.tile.multiples import has_known_addresses
from louver.ir.tile.types import as_tensor, memory_bytes, tensor_of
from louver.ir.walk import ancestor_in, each_once
from louver.isa.swizzle import CHUNK
from louver.isa.wgmma import TRANSPOSABLE

STAGED_BYTES = 96 * 1024
"""Bytes of all staged operands that are live at one time. With this limit two CTAs and their exchanges fit an SM."""


def staged_operands(function: tt.FuncOp, *, warpgroups: bool = True) -> dict[SSAValue, int]:
    """The staged operands, each with the dimension of its neighbours in shared memory.

    They may be dense operands, values of sparse operands, and metadata of warpgroup products. The dimension is that of
    neighbours in memory, or K if warpgroup products accept only K. The choice affects speed only.

    function: valid tile IR without sparse types, descriptors and block pointers (after expand-blocks).
    warpgroups: whether the target has warpgroup products.
    """
    dots = [op for op in function.body.walk() if isinstance(op, tt.DotOp)]
    if len(dots) == 1 and not stepping_loop(dots[0]):
        # The dot runs once, so shared memory gains nothing.
        return {}
    wide = has_known_addresses(function)
    found: dict[SSAValue, int] = {}
    room = _Room(function)
    for value, k in ((each, k) for op in dots for each, k in ((op.a, 1), (op.b, 0))):
        dimension = k if is_gathered(value) else loaded_along(value)
        if value in found or dimension is None or not room.fits(found, value) or row_bytes(value, dimension) < CHUNK:
            continue
        if wide or memory_bytes(value.type) > 1:
            # Single bytes would take a register each until a chunk is complete.
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
            # Each warp computes the rows that it multiplies, so no thread waits for another one.
            del found[left]
    for op in dots:
        # Warps load metadata from memory when they need it. For a warpgroup it comes with the operands.
        if wide and op.metadata is not None and multiplies(op, found):
            along = loaded_along(op.metadata)
            if along is not None and row_bytes(op.metadata, along) >= CHUNK:
                found[op.metadata] = along
    return found


class _Room:
    """Tests which tiles of a function fit shared memory at one time."""

    def __init__(self, function: tt.FuncOp) -> None:
        self._numbers = {op: number for number, op in enumerate(function.body.walk())}

    def fits(self, staged: Iterable[SSAValue], *more: SSAValue) -> bool:
        """Whether further tiles fit shared memory beside the staged tiles."""
        tiles = [*dict.fromkeys((*staged, *more))]
        lives = {tile: self._life(tile) for tile in tiles}
        return all(
            sum(tile_bytes(tile) for tile in tiles if lives[tile][0] <= at <= lives[tile][1]) <= STAGED_BYTES
            for at, _ in lives.values()
        )

    def _life(self, tile: SSAValue) -> tuple[int, int]:
        """The live range of a tile in shared memory: the numbers of its first and last operation."""
        owner = tile.owner
        if isinstance(owner, Block):
            parent = owner.parent_op()
            assert parent is not None
            return self._numbers[parent], self._end(parent)
        return self._numbers[owner], max(self._end(_beside(use.operation, owner)) for use in tile.uses)

    def _end(self, op: Operation) -> int:
        """The number of the last operation inside `op`."""
        return max(self._numbers[each] for each in op.walk())


def _beside(op: Operation, other: Operation) -> Operation:
    """The operation, or its ancestor, that is in the block of `other`."""
    found = ancestor_in(other.parent, op)
    assert found is not None
    return found


def _made(op: tt.DotOp, known: Mapping[SSAValue, int]) -> dict[SSAValue, int]:
    """The computed operands that a warpgroup product reads from shared memory.

    A dense A in the layout of its registers is left out.
    """
    found: dict[SSAValue, int] = {}
    for k, value in ((1, op.a), (0, op.b)):
        turns = tt.element_name(tensor_of(value).element_type) in TRANSPOSABLE
        summed = _summed_along(value) if turns else None
        along = k if summed is None else summed
        fits = k == product_left(op)[1] and turns and along == k
        if value not in known and not fits and row_bytes(value, along) >= CHUNK:
            found[value] = along
    return found


def _stays(op: tt.DotOp, left: SSAValue) -> bool:
    """Whether threads compute A of a product, with elements that may stay in the registers of that product."""
    if op.parts > 1 or tt.element_name(tensor_of(left).element_type) not in TRANSPOSABLE or not is_computed(left):
        return False
    return all(isinstance(use.operation, tt.DotOp) and use.index == is_transposed(use.operation) for use in left.uses)


def _summed_along(value: SSAValue) -> int | None:
    """The dimension along which a thread has neighbours, for a tile computed from the sums of a dot; None for other
    tiles.
    """
    pending, turned = [value], {value: 0}
    for each in each_once(pending):
        owner = each.owner
        if isinstance(owner, Block) or tensor_of(each).get_num_dims() != 2:
            continue
        if isinstance(owner, tt.DotOp):
            return turned[each] ^ (not is_transposed(owner) or turns_sums(owner))
        if isinstance(owner, scf.ForOp):
            sources = [end_of(owner.body.block).operands[position(each, owner.results)]]
        else:
            sources = [operand for operand in owner.operands if as_tensor(operand.type) is not None]
        for source in sources:
            turned[source] = turned[each] ^ isinstance(owner, tt.TransOp)
        pending += sources
    return None
