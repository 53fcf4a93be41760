"""The tiles that a loop multiplies unchanged, which `ring_copies.py` copies to shared memory ahead of time."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.integers import position
from louver.compile.plan.feeds.chunks import chunk_of, sure_chunk
from louver.compile.plan.feeds.copied_loads import (
    addresses,
    array_of,
    gives_zeros,
    goes_into,
    is_unchanged,
    known_ahead,
    may_be_copied,
    only_user,
)
from louver.compile.plan.feeds.neighbours import loaded_along
from louver.compile.rewrite.insert import insert
from louver.ir import tile as tt
from louver.ir.tile.staging import in_shared, tile_of
from louver.ir.tile.types import AnyTensor, register_encoding, tensor_of


@dataclass(frozen=True, slots=True)
class RingTile:
    """A tile that is copied to shared memory.

    load: the load that the copy replaces.
    turn: the transpose between load and conversion, if there is one.
    put: the conversion to shared memory.
    elsewhere: for metadata, an address of legal codes that is read in place of masked elements.
    chunk: bytes that a thread copies at once; not for boxes. sure: those at any address; fewer if addresses are tested.
    first: the load of the first tile, if the loop loads the tile of the next step.
    """

    load: tt.LoadOp
    turn: tt.TransOp | None
    put: tt.ConvertLayoutOp
    elsewhere: SSAValue | None
    chunk: int
    sure: int
    first: tt.LoadOp | None

    @property
    def is_tested(self) -> bool:
        """Whether the copy takes a branch."""
        return self.load.box is None and self.sure < self.chunk

    @property
    def memory(self) -> AnyTensor:
        """The type of the tile in shared memory, with the dimensions of the load.

        A transpose after the load swaps them.
        """
        put = tensor_of(self.put.result)
        encoding = register_encoding(put)
        assert isinstance(encoding, tt.SharedAttr)
        return put if self.turn is None else TensorType(put.element_type, put.get_shape()[::-1], encoding.turned())

    def read(self, slot: SSAValue) -> None:
        """Replace the tile by the memory of its slot."""
        if self.turn is None:
            Rewriter.replace_op(self.put, [], [slot])
        else:
            properties = dict(self.turn.properties)
            turned = tt.TransOp.create(operands=[slot], result_types=[self.put.result.type], properties=properties)
            assert isinstance(slot.owner, Operation) and slot.owner.next_op is not None
            Rewriter.replace_op(self.put, [], [insert(slot.owner.next_op, turned, self.turn).results[0]])
            Rewriter.erase_op(self.turn)
        Rewriter.erase_op(self.load)


def goes_to_ring(loop: scf.ForOp, load: tt.LoadOp, apart: Container[SSAValue]) -> bool:
    """Whether ring-copies copies the tile of a load, if shared memory is left."""
    return is_unchanged(load, loop, apart) and ring_tile(loop, load, apart) is not None


def ring_tile(loop: scf.ForOp, load: tt.LoadOp, apart: Container[SSAValue]) -> RingTile | None:
    """The tile of a load, if its only use is the conversion to shared memory, and masked elements are zeros or any
    legal codes.
    """
    tile, first = load.result, None
    if isinstance(end := only_user(tile), scf.YieldOp):
        index = position(tile, end.operands)
        tile, first = loop.body.block.args[index + 1], loop.iter_args[index].owner
        if not isinstance(first, tt.LoadOp) or loop.results[index].first_use or not goes_into(first, loop):
            return None
    user = only_user(tile)
    turn = user if isinstance(user, tt.TransOp) else None
    put = user if turn is None else only_user(turn.result)
    if not isinstance(put, tt.ConvertLayoutOp) or not in_shared(put.result):
        return None
    along = tile_of(put.result).fast
    along = along if turn is None else 1 - along
    chunk = 0 if load.box is not None else chunk_of(load, along)
    both = [load] if first is None else [load, first]
    if not all(map(may_be_copied, both)) or (load.box is not None and loaded_along(load.result) != along):
        return None
    if first is not None and any(each.box is not None for each in both):
        # No step would wait for the box that the last step copies.
        return None
    if load.box is None and (not chunk or any(chunk_of(each, along) != chunk for each in both)):
        return None
    if not known_ahead(loop, addresses(load), apart, repeated=True):
        return None
    elsewhere = next((array_of(each.ptr) for each in both if not gives_zeros(each)), None)
    sure = min(chunk, *(sure_chunk(each, along) for each in both))
    return None if elsewhere and sure < chunk else RingTile(load, turn, put, elsewhere, chunk, sure, first)
