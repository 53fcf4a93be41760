"""mask-behind-loads: masks sparse tiles behind their loads where K, or a condition along K, is loaded from memory.

A launch cannot compare a loaded K with the tensor, nor prove its groups whole, so `tl.load(w + …, mask=k < K)` would be read a
group at a time. The load takes the tensor's own columns instead, which are a box, and `tl.where(k < K, tile, 0)` behind it
leaves out the others, each by itself: what is left out adds nothing, even where it is infinite.

The length of a row of memory is that of the tensor, so a loaded K that is greater reads zeros. Conditions on elements, such as
`x[k] != 0`, go behind a load that another mask bounds there. Input and output are valid tile IR.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, i32
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.access import Dimension
from louver.analysis.affine import Elements
from louver.analysis.atoms import Lane, Wrapped, lanes
from louver.analysis.integers import is_zero
from louver.analysis.masks import read_mask
from louver.analysis.passages import roots_of
from louver.compile.canonical.describe_tiles import Describer
from louver.compile.rewrite.insert import insert_before
from louver.compile.rewrite.remove_dead import remove_dead
from louver.compile.rewrite.tile_numbers import TileNumbers
from louver.ir import tile as tt
from louver.ir.comparisons import CmpfOp
from louver.ir.polynomial import Polynomial
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile.types import tensor_of


def mask_behind_loads(function: tt.FuncOp, sparse: Collection[SSAValue]) -> None:
    """Rewrite the loads of these arguments in place. Loads whose masks a launch can compute do not change."""
    loads = [op for op in function.body.walk() if isinstance(op, tt.LoadOp) and roots_of(op.ptr) & {*sparse}]
    describer = Describer.of(function)
    changed = [_without_elements(op, describer) for op in loads]
    plans = [plan for op in changed if (plan := _plan(op, describer)) is not None]
    for each in plans:
        each.apply(describer)
    if plans or changed != loads:
        remove_dead(function)


def _without_elements(op: tt.LoadOp, describer: Describer) -> tt.LoadOp:
    """The load without conditions on elements in its mask, which a choice behind it leaves out; the same load if it has none."""
    if not _leaves_zeros(op) or op.mask is None:
        return op
    parts = list(_parts(op.mask))
    behind = [part for part in parts if isinstance(_source(part).owner, CmpfOp)]
    if not behind or len(behind) == len(parts):
        return op
    make, mask, tile = TileNumbers(op), next(part for part in parts if part not in behind), op.result
    for each in parts:
        mask = mask if each in behind or each is mask else make.both(mask, each)
    new = _masked(op, mask)
    insert_before(op, new)
    if not _bounds_them(new, behind, describer):
        Rewriter.erase_op(new)
        return op
    value, tensor = new.result, tensor_of(tile)
    for each in behind:
        value = make.choice(each, value, make.filled(0.0, tensor.element_type, tensor.get_shape()))
    Rewriter.replace_op(op, [], [value])
    return new


def _bounds_them(op: tt.LoadOp, conditions: Sequence[SSAValue], describer: Describer) -> bool:
    """Whether the mask of a load bounds each dimension along which conditions differ, which is one for each."""
    assert op.mask is not None
    try:
        bounds = read_mask(describer.affine, op.mask, op)
    except UnsupportedKernelError:
        return False
    bounded = {number for bound in bounds if len(lanes(bound.value)) == 1 for number in lanes(bound.value)}
    for each in conditions:
        sizes = tensor_of(each.owner.src).get_shape() if isinstance(each.owner, tt.BroadcastOp) else ()
        along = [number for number, size in enumerate(sizes) if size > 1]
        if len(along) != 1 or along[0] not in bounded:
            return False
    return True


def _masked(op: tt.LoadOp, mask: SSAValue) -> tt.LoadOp:
    new = tt.LoadOp(op.ptr, mask, op.other)
    new.properties |= {name: value for name, value in op.properties.items() if name != "operandSegmentSizes"}
    new.result.name_hint = op.result.name_hint
    return new


def _leaves_zeros(op: tt.LoadOp) -> bool:
    """Whether what the mask of a load excludes is 0.0."""
    return isinstance(tensor_of(op.result).element_type, AnyFloat) and (op.other is None or is_zero(op.other))


def _source(mask: SSAValue) -> SSAValue:
    """A condition without the operations that repeat it."""
    while isinstance(mask.owner, tt.BroadcastOp | tt.ExpandDimsOp | tt.TransOp):
        mask = mask.owner.operands[0]
    return mask


@dataclass(frozen=True, slots=True)
class _Plan:
    """A load, its columns, the length of its rows, the parts of its mask that stay, and those along K that go behind it."""

    op: tt.LoadOp
    columns: Dimension
    length: tt.Index
    kept: tuple[SSAValue, ...]
    behind: tuple[SSAValue, ...]

    def apply(self, describer: Describer) -> None:
        op, make, columns = self.op, TileNumbers(self.op), self.columns
        first, length = describer.descriptors.first(columns.first, op), self.length
        index = make.add(insert_before(op, tt.MakeRangeOp(0, columns.extent)), first)
        index = insert_before(op, tt.ExpandDimsOp(index, 1 - columns.number))
        if isinstance(length, SSAValue) and length.type != i32:
            mask = make.compared(make.wide(index), "slt", length)
        else:
            mask = make.compared(index, "slt", length)
        for each in self.kept:
            mask = make.both(mask, each)
        tile = tensor_of(op.result)
        new = _masked(op, make.whole(mask, tile.get_shape()))
        value, zeros = insert_before(op, new), make.filled(0.0, tile.element_type, tile.get_shape())
        for each in self.behind:
            value = make.choice(each, value, zeros)
        Rewriter.replace_op(op, [], [value])


def _plan(op: tt.LoadOp, describer: Describer) -> _Plan | None:
    """What to do with a load; None if nothing along K is loaded."""
    if op.mask is None or not _leaves_zeros(op):
        return None
    kept, behind = list[SSAValue](), list[SSAValue]()
    try:
        found = describer.access(op, follow=True, sparse=True)
        if len(found.dimensions) != 2 or found.base in describer.across:
            return None
        rows, columns = describer.ordered(op, found)
        index = Polynomial.atom(Lane(columns.number)) + columns.first
        for part in _parts(op.mask):
            bounds = [bound.value for bound in read_mask(describer.affine, part, op)]
            along = all(lanes(bound) == frozenset({columns.number}) for bound in bounds)
            is_loaded = any(_is_loaded(leaf) for bound in bounds for leaf in (index - bound).leaves)
            (behind if along and is_loaded else kept).append(part)
    except UnsupportedKernelError:
        return None
    length = describer.sizes.entry(rows.stride)
    # A move along the row that K contains too is not part of the first column.
    moved = found.entry is not None and found.entry.stride == columns.stride
    pointer = describer.affine.pointer(op.ptr)
    # Columns that wrap are others without the mask.
    turns = isinstance(pointer, Elements) and any(
        isinstance(atom, Wrapped) and columns.number in lanes(Polynomial.atom(atom)) for atom in pointer.offset.atoms
    )
    if not behind or length is None or turns or moved:
        return None
    return _Plan(op, columns, length, tuple(kept), tuple(behind))


def _parts(mask: SSAValue) -> Iterator[SSAValue]:
    """The conditions that a mask joins."""
    if isinstance(mask.owner, arith.AndIOp):
        for each in mask.owner.operands:
            yield from _parts(each)
    else:
        yield mask


def _is_loaded(leaf: object) -> bool:
    """Whether a number is loaded, or is the least of one that is loaded and others."""
    match leaf.owner if isinstance(leaf, SSAValue) else None:
        case tt.LoadOp():
            return True
        case arith.MinSIOp() as least:
            return any(map(_is_loaded, least.operands))
        case _:
            return False
