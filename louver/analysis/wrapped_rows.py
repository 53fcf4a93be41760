"""Follows rows of a tile that lie outside its tensor, and proves that no store writes them. A program at the last rows
reads beyond them, with an index that is another row there: one that wraps (`% M`), or the last one. Louver reads zeros
instead. This is valid if results of these rows stay in their own rows, until a mask excludes them: that of a store, or
of `tl.where`, which replaces them.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import scf
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, Operation, SSAValue, Use
from xdsl.traits import is_side_effect_free

from louver.analysis.atoms import Iteration
from louver.analysis.integers import is_zero
from louver.analysis.passages import passed_to
from louver.ir import tile as tt
from louver.ir.comparisons import SelectOp
from louver.ir.polynomial import Polynomial
from louver.ir.refusal import unsupported
from louver.ir.tile.types import as_tensor, tensor_of

Writing = tt.StoreOp | tt.DescriptorStoreOp | tt.AtomicRMWOp | tt.DescriptorReduceOp

Rows = frozenset[int]
"""Dimensions of a tile along which it may have such rows."""

Excludes = Callable[[SSAValue, int, Operation, bool], bool]
"""Whether a condition of an operation, true or false as told, excludes the rows along a dimension."""

SHOWN = 1
"""The operand of a choice that its mask shows. The next one is shown where the mask is false."""

_RULE = "rows that wrap (%) may reach nothing but a store that masks them"
_ADVICE = "load with the mask rows < size instead of rows % size"


def check_wrapped_rows(
    load: tt.LoadOp,
    dimension: int,
    drops: Callable[[Writing, int], bool],
    excludes: Excludes,
    beyond: Polynomial,
) -> None:
    """Reject a load whose rows beyond the last one, along `dimension` of its tile, can affect results.

    drops: whether a writing operation leaves them out along a dimension of its tile. excludes: whether a condition of
    an operation does where it holds, or does not. beyond: what plus a row is at least 0 for such rows.
    """
    _Spread(drops, excludes, beyond).follow(load.result, frozenset({dimension}))


class _Spread:
    """found: the dimensions that are known for each value."""

    def __init__(self, drops: Callable[[Writing, int], bool], excludes: Excludes, beyond: Polynomial) -> None:
        self.drops, self.excludes, self.beyond = drops, excludes, beyond
        self.found: dict[SSAValue, Rows] = {}

    def follow(self, value: SSAValue, rows: Rows) -> None:
        known = self.found.get(value, frozenset())
        if rows <= known:
            return
        self.found[value] = known | rows
        for use in list(value.uses):
            self._use(use, known | rows)

    def _use(self, use: Use, rows: Rows) -> None:
        op = use.operation
        match op:
            case tt.StoreOp() | tt.DescriptorStoreOp() | tt.AtomicRMWOp() | tt.DescriptorReduceOp():
                written = op.src if isinstance(op, tt.DescriptorStoreOp | tt.DescriptorReduceOp) else op.value
                if op.operands[use.index] is not written or not all(self.drops(op, each) for each in rows):
                    raise unsupported(_RULE, op, _ADVICE)
                if isinstance(op, tt.AtomicRMWOp):
                    self.follow(op.result, rows)
            case scf.YieldOp() | scf.ConditionOp() if self._varies(op.parent_op()):
                # In the next iteration, conditions speak of other rows.
                raise unsupported(_RULE, op, _ADVICE)
            case scf.ForOp() | scf.WhileOp() | scf.YieldOp() | scf.ConditionOp():
                for name in passed_to(op, use.index):
                    self.follow(name, rows)
            case tt.DotOp():
                self.follow(op.d, self._of_dot(op, use.index, rows))
            case tt.ReduceOp():
                self._reduced(op, rows)
            case SelectOp() if use.index >= SHOWN and as_tensor(op.cond.type) is not None:
                shown = use.index == SHOWN
                self.follow(op.result, frozenset(each for each in rows if not self.excludes(op.cond, each, op, shown)))
            case tt.ReduceReturnOp() | tt.GatherOp():
                raise unsupported(_RULE, op, _ADVICE)
            case _:
                for result in op.results:
                    self.follow(result, _moved(op, rows))

    def _varies(self, loop: Operation | None) -> bool:
        """Whether a loop changes which rows these are."""
        leaves = [each.loop if isinstance(each, Iteration) else each for each in self.beyond.leaves]
        owners = [each.owner if isinstance(each, SSAValue) else each for each in leaves]
        return isinstance(loop, scf.ForOp | scf.WhileOp) and any(
            loop.is_ancestor(each) for each in owners if isinstance(each, Operation | Block)
        )

    def _reduced(self, op: tt.ReduceOp, rows: Rows) -> None:
        axis = op.axis.value.data
        if axis in rows:
            raise unsupported(_RULE, op, _ADVICE)
        for result in op.result:
            self.follow(result, frozenset(each - (each > axis) for each in rows))

    def _of_dot(self, op: tt.DotOp, index: int, rows: Rows) -> Rows:
        """Along the summed dimension such rows would enter every element, if the other operand is not zero there."""
        summed = {0: 1, 1: 0}.get(index)
        if tensor_of(op.d).get_num_dims() != 2 or op.operands[index] is op.metadata:
            raise unsupported(_RULE, op, _ADVICE)
        if summed in rows and not self._is_zero(op.operands[1 - index], 1 - summed):
            raise unsupported(_RULE, op, _ADVICE)
        return rows - {summed}

    def _is_zero(self, value: SSAValue, dimension: int) -> bool:
        """Whether a tile is zero along a dimension where the rows are, by the mask of its load or of `tl.where`."""
        while isinstance(value.owner, tt.TransOp):
            value, dimension = value.owner.src, list(value.owner.order.get_values())[dimension]
        load = value.owner
        if isinstance(load, SelectOp) and as_tensor(load.cond.type) is not None and is_zero(load.rhs):
            return self.excludes(load.cond, dimension, load, True) or self._is_zero(load.lhs, dimension)
        if not isinstance(load, tt.LoadOp) or load.mask is None or (load.other is not None and not is_zero(load.other)):
            return False
        return self.excludes(load.mask, dimension, load, True)


def _moved(op: Operation, rows: Rows) -> Rows:
    """The dimensions of such rows in the results of an operation without effects."""
    match op:
        case tt.TransOp():
            order = list(op.order.get_values())
            return frozenset(order.index(each) for each in rows)
        case tt.ExpandDimsOp():
            axis = op.axis.value.data
            return frozenset(each + (each >= axis) for each in rows)
        case tt.BroadcastOp():
            return rows
        case tt.ReshapeOp():
            source, result = (_squeezed(tensor_of(each)) for each in (op.src, op.result))
            if [size for _, size in source] == [size for _, size in result]:
                places = [place for place, _ in source]
                return frozenset(result[places.index(each)][0] for each in rows if each in places)
        case _:
            tiles = [as_tensor(value.type) for value in (*op.operands, *op.results)]
            shapes = {tuple(tile.get_shape()) for tile in tiles if tile is not None}
            elementwise = len(shapes) == 1 and None not in tiles[len(op.operands) :]
            if is_side_effect_free(op) and not op.regions and elementwise:
                return rows
    raise unsupported(_RULE, op, _ADVICE)


def _squeezed(tile: TensorType) -> list[tuple[int, int]]:
    return [(place, size) for place, size in enumerate(tile.get_shape()) if size > 1]
