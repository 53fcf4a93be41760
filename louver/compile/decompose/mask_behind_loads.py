"""mask-behind-loads: masks sparse tiles behind their loads where K is loaded from memory.

A launch cannot compare a loaded K with the tensor, so `tl.load(w + …, mask=k < K)` would be read a group at a time. The load takes the
tensor's own columns instead, which are a box, and `tl.where(k < K, tile, 0)` behind it leaves out the others, each by itself: what is
left out adds nothing, even where it is infinite.

The length of a row of memory is that of the tensor, so a loaded K that is greater reads zeros. Input and output are valid tile IR.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.atoms import lanes
from louver.analysis.integers import is_zero
from louver.analysis.masks import read_mask
from louver.analysis.own_numbers import upper_bound
from louver.analysis.passages import roots_of
from louver.compile.canonical.describe_tiles import Describer
from louver.compile.rewrite.insert import insert_before
from louver.compile.rewrite.remove_dead import remove_dead
from louver.compile.rewrite.tile_numbers import TileNumbers
from louver.ir import tile as tt
from louver.ir.comparisons import CmpiOp
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile.types import element_of, tensor_of


def mask_behind_loads(function: tt.FuncOp, sparse: Collection[SSAValue]) -> None:
    """Rewrite the loads of these arguments in place. Loads whose masks a launch can compute do not change."""
    loads = [op for op in function.body.walk() if isinstance(op, tt.LoadOp) and roots_of(op.ptr) & {*sparse}]
    describer = Describer.of(function)
    plans = [plan for op in loads if (plan := _plan(op, describer)) is not None]
    for each in plans:
        each.apply()
    if plans:
        remove_dead(function)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A load, the parts of its mask that stay, those along K that go behind it, and the length of its rows."""

    op: tt.LoadOp
    kept: tuple[SSAValue, ...]
    behind: tuple[SSAValue, ...]
    length: tt.Index

    def apply(self) -> None:
        op, make = self.op, TileNumbers(self.op)
        inside = [_compared_with(each, self.length, op) for each in self.behind]
        mask: SSAValue | None = None
        for each in (*self.kept, *inside):
            mask = make.both(mask, each)
        new = tt.LoadOp(op.ptr, mask, op.other)
        new.properties |= {name: value for name, value in op.properties.items() if name != "operandSegmentSizes"}
        new.result.name_hint = op.result.name_hint
        tile = tensor_of(op.result)
        value, zeros = insert_before(op, new), make.filled(0.0, tile.element_type, tile.get_shape())
        for each in self.behind:
            value = make.choice(each, value, zeros)
        Rewriter.replace_op(op, [], [value])


def _plan(op: tt.LoadOp, describer: Describer) -> _Plan | None:
    """What to do with a load; None if nothing along K is loaded."""
    if op.mask is None or not isinstance(tensor_of(op.result).element_type, AnyFloat):
        return None
    if op.other is not None and not is_zero(op.other):
        return None
    kept, behind = list[SSAValue](), list[SSAValue]()
    try:
        found = describer.access(op, follow=True)
        if len(found.dimensions) != 2 or found.base in describer.across:
            return None
        rows, columns = describer.ordered(op, found)
        for part in _parts(op.mask):
            bounds = [bound.value for bound in read_mask(describer.affine, part, op)]
            along = all(lanes(bound) == {columns.number} for bound in bounds)
            is_loaded = any(_is_loaded(leaf) for bound in bounds for leaf in bound.leaves)
            (behind if along and is_loaded else kept).append(part)
    except UnsupportedKernelError:
        return None
    length = describer.sizes.entry(rows.stride)
    return None if not behind or length is None else _Plan(op, tuple(kept), tuple(behind), length)


def _parts(mask: SSAValue) -> Iterator[SSAValue]:
    """The conditions that a mask joins."""
    if isinstance(mask.owner, arith.AndIOp):
        for each in mask.owner.operands:
            yield from _parts(each)
    else:
        yield mask


def _is_loaded(leaf: object) -> bool:
    return isinstance(leaf, SSAValue) and isinstance(leaf.owner, tt.LoadOp)


def _compared_with(part: SSAValue, length: tt.Index, op: tt.LoadOp) -> SSAValue:
    """The condition that the index of another condition is below a length, computed before a load."""
    owner = part.owner
    if isinstance(owner, tt.BroadcastOp | tt.ExpandDimsOp | tt.TransOp):
        source = owner.operands[0]
        return insert_before(op, owner.clone({source: _compared_with(source, length, op)}))
    found = upper_bound(owner) if isinstance(owner, CmpiOp) else None
    assert found is not None, "it was read as a bound"
    index, make = found[0], TileNumbers(op)
    if isinstance(length, SSAValue) and element_of(index.type) != length.type:
        return make.compared(make.wide(index), "slt", make.wide(length))
    return make.compared(index, "slt", length)
