"""find-chunks: marks each load with the number of neighbouring bytes that may move together.

    %tile = tt.load %pointers, %mask {louver.chunk = array<i64: 1, 16>}

Here, along dimension 1, each aligned block of 16 bytes of the tile is 16 neighbouring bytes in memory. Its address is a
multiple of 16, and its elements have the same mask. A load without the attribute loads single elements. Later passes
choose copies to shared memory by the attribute.

    %tile = tt.load %pointers, %mask {louver.chunk = array<i64: 1, 4>, louver.guess = array<i64: 1, 16>}

These addresses depend on a loaded number, and are multiples of 16 if the number is. A copy of a ring tests its addresses, and
whether masks agree. It moves 4 bytes at once where they do not.
The input is valid tile IR without block pointers (after split-addresses). The pass only adds the attribute.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import scf
from xdsl.dialects.builtin import DenseArrayBase, i64

from louver.analysis.runs import Runs
from louver.ir import tile as tt
from louver.ir.tile.types import as_tensor, memory_bytes, tensor_of

CHUNK = "louver.chunk"
"""The attribute. It holds the dimension of neighbours, and the number of bytes."""

GUESS = "louver.guess"
"""The same for a chunk that is tested: its address, and its masks by pieces that asynchronous copies may move. Its elements are
neighbours in any case.
"""

MATRIX = 2
"""Dimensions of an operand of a product."""


def find_chunks(function: tt.FuncOp, multiples: Sequence[int]) -> None:
    """Adds the attributes in place.

    multiples: for each argument, a power of two that divides it. Addresses are in bytes.
    """
    sure = Runs(dict(zip(function.body.block.args, multiples, strict=True)))
    guess = sure.guessing()
    for op in function.body.walk():
        if isinstance(op, tt.LoadOp) and as_tensor(op.ptr.type) is not None:
            size, along = _longest(op, sure)
            if size:
                op.attributes[CHUNK] = DenseArrayBase.from_list(i64, [along, size])
            if not _may_be_multiplied(op):
                continue
            longer, along = _longest(op, guess, size // memory_bytes(tensor_of(op.result)))
            if longer > size:
                op.attributes[GUESS] = DenseArrayBase.from_list(i64, [along, longer])


def _longest(load: tt.LoadOp, runs: Runs, masked: int = 0) -> tuple[int, int]:
    """The largest number of bytes that one copy may move, and their dimension. masked: as for `Runs.chunk`."""
    size, along = max((runs.chunk(load, each, masked), -each) for each in range(len(tensor_of(load.ptr).get_shape())))
    return size, -along


def _may_be_multiplied(load: tt.LoadOp) -> bool:
    """Whether a loop with products loads a matrix, which a ring may copy."""
    loop = load.parent_op()
    multiplies = isinstance(loop, scf.ForOp) and any(isinstance(op, tt.DotOp) for op in loop.body.block.ops)
    return multiplies and len(tensor_of(load.ptr).get_shape()) == MATRIX


def chunk_of(load: tt.LoadOp, dimension: int) -> int:
    """The number of bytes that a copy moves together along a dimension, if its address is aligned to them; 0 if it moves single elements."""
    found = _read(load, GUESS) or known_chunk(load)
    return found[1] if found is not None and found[0] == dimension else 0


def is_tested(load: tt.LoadOp) -> bool:
    """Whether a copy in a ring tests its addresses."""
    return GUESS in load.attributes


def sure_chunk(load: tt.LoadOp, dimension: int) -> int:
    """The same at any address."""
    found = known_chunk(load)
    return found[1] if found is not None and found[0] == dimension else memory_bytes(tensor_of(load.result))


def known_chunk(load: tt.LoadOp) -> tuple[int, int] | None:
    """The dimension along which a load moves elements together, and the number of bytes; None if it moves single elements."""
    return _read(load, CHUNK)


def _read(load: tt.LoadOp, name: str) -> tuple[int, int] | None:
    found = load.attributes.get(name)
    if not isinstance(found, DenseArrayBase):
        return None
    along, size = (int(each) for each in found.get_values())
    return along, size
