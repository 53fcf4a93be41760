"""find-chunks: marks each load with the number of neighbouring bytes that may move together.

    %tile = tt.load %pointers, %mask {louver.chunk = array<i64: 1, 16>}

Here, along dimension 1, each aligned block of 16 bytes of the tile is 16 neighbouring bytes in memory. Its address is a
multiple of 16, and its elements have the same mask. A load without the attribute loads single elements. Later passes
choose copies to shared memory by the attribute.
The input is valid tile IR without block pointers (after split-addresses). The pass only adds the attribute.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import DenseArrayBase, i64

from louver.analysis.runs import Runs
from louver.ir import tile as tt
from louver.ir.tile.types import as_tensor, tensor_of

CHUNK = "louver.chunk"
"""The attribute. It holds the dimension of neighbours, and the number of bytes."""


def find_chunks(function: tt.FuncOp, multiples: Sequence[int]) -> None:
    """Adds the attributes in place.

    multiples: for each argument, a power of two that divides it. Addresses are in bytes.
    """
    runs = Runs(dict(zip(function.body.block.args, multiples, strict=True)))
    for op in function.body.walk():
        if isinstance(op, tt.LoadOp) and as_tensor(op.ptr.type) is not None:
            found = max((runs.chunk(op, each), -each) for each in range(len(tensor_of(op.ptr).get_shape())))
            if found[0]:
                op.attributes[CHUNK] = DenseArrayBase.from_list(i64, [-found[1], found[0]])


def chunk_of(load: tt.LoadOp, dimension: int) -> int:
    """The number of bytes that a load moves together along a dimension; 0 if it moves single elements."""
    found = known_chunk(load)
    return found[1] if found is not None and found[0] == dimension else 0


def known_chunk(load: tt.LoadOp) -> tuple[int, int] | None:
    """The dimension along which a load moves elements together, and the number of bytes; None if it moves single elements."""
    found = load.attributes.get(CHUNK)
    if not isinstance(found, DenseArrayBase):
        return None
    along, size = (int(each) for each in found.get_values())
    return along, size
