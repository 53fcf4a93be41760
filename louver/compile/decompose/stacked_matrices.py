"""Tiles of a batch [E, K, N], sparse along K, that a kernel reads as one matrix [E * K, N]: row e * K + k is row k of matrix e.

In the stored form [E, N, K] the rows of one matrix are not followed by those of the next one. A tile is therefore read of the
batch. It begins and ends in one matrix: the launch checks that K is whole tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.access import Access, Dimension
from louver.analysis.affine import launch_size
from louver.analysis.batch import Entry
from louver.analysis.reach import Reached, reach
from louver.compile.canonical.describe_batches import load_of_batch
from louver.compile.canonical.describe_tiles import Describer
from louver.compile.condition_attributes import require_equal, require_whole_rows
from louver.compile.decompose.memory import require_multiples
from louver.ir import tile as tt
from louver.ir.polynomial import Polynomial


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of all matrices: a row of one matrix. length: the rows of a matrix."""

    matrix: Polynomial
    row: Polynomial
    length: Polynomial


def stack_descriptors(describer: Describer) -> bool:
    """Change descriptors [N, E * K] of the stored form to those of the batch [E, N, K], in place. Returns whether there are any."""
    found = False
    for op in list(describer.function.body.walk()):
        if isinstance(op, tt.MakeTensorDescriptorOp) and op.base in describer.across and len(op.sizes) == 2:
            found |= _stack(describer, op)
    return found


def stacked(describer: Describer, op: tt.LoadOp, found: Access) -> tuple[Access, Dimension] | None:
    """A tile of a matrix of the batch, and the dimension of the access that is along K; None for other accesses."""
    if found.base not in describer.across or found.entry is not None or len(found.dimensions) != 2:
        return None
    along = next((each for each in found.dimensions if each.stride != Polynomial.number(1)), None)
    split = None if along is None or along.wrapped else _split(describer, op, along.first, along.extent)
    if along is None or split is None:
        return None
    size = None if along.size is None else _matrices(describer, along.size, split)
    if along.size is not None and size is None:
        return None
    _require(describer, op, found.base, along.extent, split)
    one = replace(along, first=split.row, size=split.length)
    describer.descriptors.compute(one.first, op)
    dimensions = tuple(one if each is along else each for each in found.dimensions)
    entry = Entry(split.matrix, split.length * along.stride, size)
    return replace(found, dimensions=dimensions, entry=entry), along


def _stack(describer: Describer, op: tt.MakeTensorDescriptorOp) -> bool:
    loads = [use.operation for use in op.result.uses]
    extent = op.block.get_shape()[-1]
    splits = [
        _split(describer, load, describer.affine.index(load.offsets[-1]), extent)
        for load in loads
        if isinstance(load, tt.DescriptorLoadOp)
    ]
    split = splits[0] if splits else None
    whole = describer.affine.index(op.sizes[-1])
    size = None if split is None else _matrices(describer, whole, split)
    if split is None or size is None or len(splits) < len(loads):
        return False
    if any(each is None or each.length != split.length for each in splits):
        return False
    columns = describer.across[op.base]
    one = tt.MakeTensorDescriptorOp(op.base, [op.sizes[0], columns], op.steps, op.block.get_shape())
    one.properties |= {name: op.properties[name] for name in ("padding",) if name in op.properties}
    one.result.name_hint = op.result.name_hint
    entry = Entry(split.matrix, describer.affine.index(op.sizes[0]) * describer.affine.index(op.steps[0]), size)
    batch = describer.descriptors.of_batch(op, one, op.base, entry)
    for load, each in zip(loads, splits, strict=True):
        assert isinstance(load, tt.DescriptorLoadOp) and each is not None
        _require(describer, load, op.base, extent, each)
        offsets = [load.offsets[0], describer.descriptors.first(each.row, load)]
        load_of_batch(describer, load, batch, each.matrix, offsets)
    Rewriter.erase_op(op)
    return True


def _split(describer: Describer, op: Operation, first: Polynomial, extent: int) -> _Row | None:
    """A row as that of a matrix, which begins at the longest stride by which an index moves; None if there is none, or its
    tile may end in the next matrix.
    """
    names = describer.function.argument_names
    strides: list[Polynomial] = []
    for monomial, factor in describer.descriptors.terms(first, op):
        known = frozenset(each for each in monomial if launch_size(Polynomial.atom(each[0]), names) is not None)
        if monomial - known:
            strides.append(Polynomial.of({known: factor}))
    by_arguments = [each for each in strides if each.constant is None]
    numbers = [each for each in strides if each.constant is not None]
    length = next(iter(by_arguments), None) or max(numbers, key=lambda each: each.constant or 0, default=None)
    if length is None:
        return None
    moved = (Polynomial(frozenset([term])).quotient(length) for term in first)
    matrix = sum((each for each in moved if each is not None), Polynomial.number(0))
    split = _Row(matrix, first - matrix * length, length)
    found = _reached(describer, op, split, extent)
    return None if found is None or ((found.end - length).constant or 0) > 0 else split


def _reached(describer: Describer, op: Operation, split: _Row, extent: int) -> Reached | None:
    """How far the tiles of an operation reach in their matrix."""
    along = Dimension(0, extent, Polynomial.number(1), split.row, None)
    return reach(along, describer.affine, describer.function.argument_names, op)


def _matrices(describer: Describer, rows: Polynomial, split: _Row) -> Polynomial | None:
    """The number of matrices whose rows are below each other; None if a launch cannot compute it. It checks that they are whole."""
    names, matrices = describer.function.argument_names, rows // split.length
    known, whole = launch_size(rows, names), launch_size(matrices * split.length, names)
    if known is None or whole is None or ((known - whole).constant or 0) != 0:
        return None
    if known != whole:
        require_equal(describer.function, known, whole)
    return matrices


def _require(describer: Describer, op: Operation, base: SSAValue, extent: int, split: _Row) -> None:
    """Make the launch check that a matrix has these rows, and that tiles end in it."""
    function, names = describer.function, describer.function.argument_names
    length, own = (launch_size(each, names) for each in (split.length, Polynomial.atom(describer.across[base])))
    found = _reached(describer, op, split, extent)
    assert found is not None and length is not None and own is not None, "a row was split"
    require_equal(function, length, own)
    require_multiples(found.whole, op)
    for each in (*found.needs, length - found.end):
        if each.constant is None:
            require_whole_rows(function, each, 1)
