"""Changes loads of sparse vectors and of sparse tiles with three or more axes to loads of matrices, for computed addresses.

Metadata is laid out for matrices. A vector of neighbours is the same line of memory as 16 rows that follow one another. The
leading axes of a larger tile become rows. Pointers and masks are reshaped, and the dense tile behind the load is reshaped back.
"""

from __future__ import annotations

from math import prod

from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.runs import Runs
from louver.compile.rewrite.insert import insert_before
from louver.ir import tile as tt
from louver.ir.refusal import unsupported
from louver.ir.tile.metadata import METADATA_ROWS, divides, least_columns
from louver.ir.tile.types import memory_bytes, tensor_of

KEPT_PROPERTIES = ("cache", "evict", "isVolatile")
"""Properties of a load that hold for the loads that replace it."""

_ONLY_ELEMENTS = "a sparse tile that is no matrix is read as a dense one: by operations on elements, sums and stores"


def as_matrix(load: tt.LoadOp, runs: Runs, *, across: bool) -> tt.LoadOp:
    """The load, or one of a matrix that replaces it. Masked elements are zeros.

    Rejects, with its line, a tile of too few elements, one that is not sparse along its neighbours, and uses that are no dense ones.
    """
    shape = tensor_of(load.result).get_shape()
    if len(shape) == 2:
        return load
    if across:
        raise unsupported(
            "a tile of a tensor that is sparse along its last axis but one is a matrix",
            load,
            "load [rows, columns], and reshape behind the load",
        )
    order = _order(load, runs)
    sizes = [shape[each] for each in order]
    matrix = [prod(sizes[:-1]), sizes[-1]] if len(shape) > 1 else [METADATA_ROWS, sizes[0] // METADATA_ROWS]
    element = tensor_of(load.result).element_type
    if prod(matrix) != prod(shape) or not divides(matrix, element):
        least = METADATA_ROWS * least_columns(element)
        raise unsupported(
            f"a sparse vector has a multiple of {least} elements, and the leading axes of a larger sparse tile a multiple of {METADATA_ROWS}, not "
            f"{'x'.join(map(str, shape))}",
            load,
            f"choose a block of {least}, or load {METADATA_ROWS} rows at once: rows[:, None] * K + columns[None, :]",
        )
    return _Matrix(load, order, matrix).replace()


def _order(load: tt.LoadOp, runs: Runs) -> list[int]:
    """The dimensions of a tile, that of neighbours last: the last one, unless neighbours are known along another one."""
    rank, size = tensor_of(load.result).get_num_dims(), memory_bytes(tensor_of(load.result))

    def neighbours(dimension: int) -> bool:
        run = runs.of(load.ptr, dimension, 2)
        return run is not None and run.step == size

    along = next((each for each in reversed(range(rank)) if neighbours(each)), rank - 1)
    return [*(each for each in range(rank) if each != along), along]


class _Matrix:
    """Replaces one load. order: the dimensions of its tile as they become rows and columns. shape: of the matrix."""

    def __init__(self, load: tt.LoadOp, order: list[int], shape: list[int]) -> None:
        self.load, self.order, self.shape = load, order, shape
        self.turned = order != sorted(order)

    def replace(self) -> tt.LoadOp:
        """Rewrite in place. Returns the load of the matrix."""
        load = self.load
        made = tt.LoadOp(self._arranged(load.ptr), None if load.mask is None else self._arranged(load.mask))
        made.properties |= {name: load.properties[name] for name in KEPT_PROPERTIES if name in load.properties}
        dense = insert_before(load, made)
        dense.name_hint = load.result.name_hint
        dense = insert_before(load, tt.DecompressOp(dense))
        self._give(load.result, self._back(dense), dense)
        Rewriter.erase_op(load)
        return made

    def _arranged(self, value: SSAValue) -> SSAValue:
        """A pointer or mask of each element, as a matrix."""
        value = insert_before(self.load, tt.TransOp(value, self.order)) if self.turned else value
        return insert_before(self.load, tt.ReshapeOp(value, self.shape))

    def _back(self, dense: SSAValue) -> SSAValue:
        """The dense tile in the load's shape."""
        shape = tensor_of(self.load.result).get_shape()
        back = insert_before(self.load, tt.ReshapeOp(dense, [shape[each] for each in self.order]))
        places = [self.order.index(each) for each in range(len(shape))]
        return insert_before(self.load, tt.TransOp(back, places)) if self.turned else back

    def _give(self, sparse: SSAValue, tile: SSAValue, matrix: SSAValue) -> None:
        """Replace a sparse tile by the dense one. matrix: the same elements as a matrix; what reshapes the tile to it takes that."""
        for use in list(sparse.uses):
            match op := use.operation:
                case tt.DecompressOp():
                    made = tile
                case tt.TransOp():
                    made = insert_before(op, tt.TransOp(tile, op.order.get_values()))
                case tt.ReshapeOp():
                    made = insert_before(op, tt.ReshapeOp(tile, tensor_of(op.result).get_shape()))
                case _:
                    raise unsupported(_ONLY_ELEMENTS, op, "load [rows, columns] for a dot")
            if isinstance(op, tt.DecompressOp):
                op.result.replace_all_uses_with(made)
            else:
                self._give(op.result, made, matrix)
            Rewriter.erase_op(op)
        if not self.turned:
            for use in list(tile.uses):
                if (
                    isinstance(op := use.operation, tt.ReshapeOp)
                    and list(tensor_of(op.result).get_shape()) == self.shape
                ):
                    op.result.replace_all_uses_with(matrix)
