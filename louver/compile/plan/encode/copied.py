"""Chooses loads whose tiles are copied to shared memory some steps ahead, and then read to registers.

They are tiles from which operands are computed, and tiles of one dimension such as scales. The elements of a thread are
far apart in such a tile. Tiles that products read from shared memory are not included.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects import scf
from xdsl.ir import SSAValue

from louver.compile.plan.feeds.chunks import chunk_of
from louver.compile.plan.feeds.copied_loads import addresses, is_unchanged, known_ahead, may_be_copied, only_user
from louver.compile.plan.feeds.neighbours import loaded_along, row_bytes, tile_bytes
from louver.compile.plan.feeds.steps_ahead import computed, only_loads
from louver.ir.tile import DotOp, FuncOp, LoadOp, TransOp
from louver.ir.tile.multiples import apart_of
from louver.ir.tile.types import as_tensor, tensor_of
from louver.isa.swizzle import CHUNK

MATRIX = 2
"""Dimensions of a matrix."""


def copied_loads(function: FuncOp, staged: Mapping[SSAValue, int]) -> dict[SSAValue, int]:
    """Tiles of loads that are copied and then read to registers, each with the dimension of its neighbours in memory.

    function: valid tile IR before assign-encodings.
    staged: operands of dots in shared memory, each with the dimension of its neighbours there.
    """
    found: dict[SSAValue, int] = {}
    apart = apart_of(function)
    for loop in [op for op in function.body.walk() if isinstance(op, scf.ForOp) and only_loads(op, stores=True)]:
        block = loop.body.block
        dots = [op for op in block.ops if isinstance(op, DotOp) and (op.a in staged or op.b in staged)]
        if not dots:
            continue
        loads = [op for op in block.ops if isinstance(op, LoadOp) and as_tensor(op.result.type) is not None]
        others, _ = computed([operand for load in loads for operand in load.operands], block)
        made, _ = computed([operand for dot in dots for operand in (dot.a, dot.b)], block)
        for load in loads:
            along = _taken_along(load, staged, multiplied=load in made)
            if along is None or load in others or not may_be_copied(load) or not is_unchanged(load, loop, apart):
                continue
            if known_ahead(loop, addresses(load), apart, repeated=True):
                found[load.result] = along
    return found


def _taken_along(load: LoadOp, staged: Mapping[SSAValue, int], *, multiplied: bool) -> int | None:
    """The dimension of neighbours of a tile that is read from shared memory; None for other tiles.

    multiplied: whether operands of dots are computed from the tile.
    """
    tile = load.result
    rank = len(tensor_of(tile).get_shape())
    if rank == 1:
        return 0 if tile_bytes(tile) >= CHUNK and chunk_of(load, 0) else None
    if not multiplied or rank > MATRIX:
        return None
    along = loaded_along(tile)
    if along is None or row_bytes(tile, along) < CHUNK or (load.box is None and not chunk_of(load, along)):
        return None
    user = only_user(tile)
    operand = user.result if isinstance(user, TransOp) else tile
    straight = operand in staged and staged[operand] == loaded_along(operand)
    return None if straight and all(isinstance(use.operation, DotOp) for use in operand.uses) else along
