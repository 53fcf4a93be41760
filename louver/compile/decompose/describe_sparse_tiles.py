"""describe-sparse-tiles: changes loads of sparse tensors through pointers to loads through descriptors, for register
tiles.

All other accesses do not change. An access without a mask must be inside of its tensor. Rows have no gaps, so their
length is their pitch, and the launch checks how far programs and loops read.

A move by an index times a stride goes to a matrix of a batch, or, for `parted` kernels, to a part of one matrix: parts lie
below each other, beside each other, or both. Of a tensor that is sparse along its last axis but one, a kernel may read a batch
as one matrix: `parted` kernels read it as the batch (`stacked_matrices.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Literal, cast

from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from louver.analysis.access import EVERY, Access, Dimension
from louver.analysis.affine import BlockPointer, launch_size
from louver.analysis.batch import Entry
from louver.analysis.ends import Ends
from louver.analysis.reach import Reached, reach
from louver.compile.canonical.describe_batches import describe_moved
from louver.compile.canonical.describe_tiles import Describer
from louver.compile.condition_attributes import require_equal, require_reach, require_whole_rows
from louver.compile.decompose.memory import require_multiples
from louver.compile.decompose.plain_rows import read_plain_rows
from louver.compile.decompose.rejected import naming_arguments
from louver.compile.decompose.reported import flag_of, report
from louver.compile.decompose.stacked_matrices import stack_descriptors, stacked
from louver.compile.rewrite.remove_dead import remove_dead
from louver.compile.rewrite.tile_numbers import TileNumbers
from louver.ir.conditions import Reach
from louver.ir.polynomial import Monomial, Polynomial, Size
from louver.ir.refusal import UnsupportedKernelError, for_each, unsupported
from louver.ir.tile import FuncOp, LoadOp, sparse_encoding
from louver.ir.tile.metadata import word_columns
from louver.ir.tile.syntax import Index
from louver.ir.tile.types import as_tensor, tensor_of
from louver.isa.metadata import WARP_ROWS


def describe_sparse_tiles(module: ModuleOp, *, parted: bool = False) -> None:
    """Rewrite in place. parted: whether matrices are parts of one matrix, not of a batch, or the other way round.

    Rejects, with operation and source line, accesses that are not a tile of a matrix or of a matrix in a batch. Rejects
    wrapped rows that could affect a result, unless the launch can check that they are whole tiles.
    """
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        loads = [op for op in function.body.walk() if isinstance(op, LoadOp) and sparse_encoding(op.result.type)]
        read_plain_rows(function, [op.ptr for op in loads])
        describer = Describer.of(function)
        moved = describe_moved(describer, sparse=True)
        moved |= parted and stack_descriptors(describer)

        def read(op: LoadOp, describer: Describer = describer) -> tuple[LoadOp, Access] | None:
            with naming_arguments(describer.function, op.ptr):
                if _is_block(describer, op):
                    _check_block(describer, op)
                    return None
                wrapped = describer.described(op)
                found = _with_rows_in_turn(describer, op, wrapped)
                matrix = stacked(describer, op, found) if parted else None
                if matrix is not None:
                    _check_block(describer, op, but=matrix[1].number)
                    return op, matrix[0]
                _check_block(describer, op)
                return op, _of_parts(describer, op, wrapped, found) if parted else found

        def describe(found: tuple[LoadOp, Access], describer: Describer = describer) -> None:
            with naming_arguments(describer.function, found[0].ptr):
                _describe(describer, *found)

        found = [each for each in for_each(loads, read) if each is not None]
        for_each(found, describe)
        if found or moved:
            remove_dead(function)


def _with_rows_in_turn(describer: Describer, op: LoadOp, found: Access) -> Access:
    """The access, where rows that wrap are dropped by each store, or wrap by whole tiles, which the launch checks."""

    def made(each: Dimension) -> Dimension:
        each = _to_known_size(describer, op, found, each)
        try:
            describer.check_rows(op, replace(found, dimensions=(each,)))
        except UnsupportedKernelError:
            size = launch_size(each.size or 0, describer.function.argument_names)
            if each.size is None or size is None or (first := _in_turn(each, each.size)) is None:
                raise
            require_whole_rows(describer.function, size, each.extent)
            describer.descriptors.compute(first, op)
            return replace(each, first=first, wrapped=False)
        return each

    return replace(found, dimensions=tuple(map(made, found.dimensions)))


def _to_known_size(describer: Describer, op: LoadOp, found: Access, each: Dimension) -> Dimension:
    """The rows of a matrix of a batch, to the size that the launch knows where a mask has the least of several, and no store has
    more rows. The launch checks that the matrix has them.
    """
    names, size = describer.function.argument_names, each.size
    if size is None or each.wrapped or launch_size(size, names) is not None or each.stride.constant == 1:
        return each
    held = None if found.entry is None else launch_size(found.entry.stride // each.stride, names)
    known = [(one, rows) for one in describer.affine.least(size) if (rows := launch_size(one, names)) is not None]
    with suppress(UnsupportedKernelError):
        if known and held is not None:
            describer.check_beyond(op, each.number, each.first - size)
            require_whole_rows(describer.function, held - known[0][1], 1)
            return replace(each, size=known[0][0])
    return each


def _in_turn(each: Dimension, size: Polynomial) -> Polynomial | None:
    """The first row of a tile whose rows begin again at 0 from a size on, which is whole tiles; None for other rows."""
    tile, extent = each.first.quotient(Polynomial.number(each.extent)), each.extent
    if not each.again or tile is None:
        return None
    tiles = size // extent
    return (tile - tile // tiles * tiles) * extent


def _of_parts(describer: Describer, op: LoadOp, wrapped: Access, found: Access) -> Access:
    """The access as a tile of one matrix: an index times a stride moves whole rows of it, and elements in a row.

    wrapped: the access before rows and elements that begin again were counted in turn. Parts move them from there on.

    The launch checks that parts begin with whole tiles of metadata. Where parts follow one another along a dimension, a
    mask ends with a part, so it must end with the last tile, and exclude nothing.
    """
    names, one = describer.function.argument_names, Polynomial.number(1)
    if len(found.dimensions) != 2 or sum(each.stride == one for each in found.dimensions) != 1:
        raise unsupported("a part of a sparse tensor is read by tiles of rows and columns, one of them contiguous", op)
    pairs = [*zip(wrapped.dimensions, found.dimensions, strict=True)]
    turned = {each.number: each.first - before.first for before, each in pairs if before.wrapped and not each.wrapped}
    found = replace(found, dimensions=tuple(replace(each, first=before.first) for before, each in pairs))
    rows, elements = given = sorted(found.dimensions, key=lambda each: each.stride == one)
    rows, elements = _moved_by_arguments(describer, op, found.base, rows, elements)
    along = Polynomial(frozenset(term for term in elements.first if _is_index_times_stride(term[0], names)))
    made = {rows: rows, elements: replace(elements, first=elements.first - along)}
    ends = {each: _end(describer, own) for each, own in made.items()}
    moves = () if found.entry is None else found.entry.moves
    moved = sum((index * stride for index, stride in moves), along)
    for monomial, factor in describer.descriptors.terms(moved, op):
        known = frozenset(each for each in monomial if launch_size(Polynomial.atom(each[0]), names) is not None)
        times = factor if known else 1
        index, stride = Polynomial.of({monomial - known: times}), Polynomial.of({known: factor // times})
        whole = stride // rows.stride
        for each, by in ((rows, whole), (elements, stride - whole * rows.stride)):
            columns = (each is rows) is (found.base in describer.across)
            of = word_columns(tensor_of(op.result).element_type) if columns else WARP_ROWS
            apart, own = launch_size(by, names), made[each]
            if apart is None:
                raise unsupported("the stride of parts must be an argument, a number, or a product of these", op)
            if not by:
                continue
            require_whole_rows(describer.function, apart, of)
            size = None if each.number in turned else own.size
            if size is not None:
                last, masked, end = (
                    describer.descriptors.last(index, op),
                    launch_size(each.size or 0, names),
                    ends[each],
                )
                row = Polynomial.atom(describer.across[found.base]) if found.base in describer.across else rows.stride
                length, most = launch_size(row, names), Ends(describer.affine, names).of(index, "greatest")
                if end is None or last is None or masked is None or length is None or most is None:
                    raise unsupported("a mask of a part of a matrix must end with the last tile of a loop or grid", op)
                require_equal(describer.function, apart * (end - masked), Polynomial.number(0))
                if columns:
                    # Along K, a mask that excludes more ends with the row, and no part ends behind it.
                    require_equal(describer.function, (end - masked) * (masked - length), Polynomial.number(0))
                    require_whole_rows(describer.function, length - masked - most * apart, 1)
                size = row if columns else size + last * by
            made[each] = replace(own, first=own.first + index * (by // of) * of, size=size)
    for each, own in made.items():
        made[each] = own = replace(own, first=own.first + turned.get(own.number, 0))
        describer.descriptors.compute(own.first, op)
    own = dict(zip(given, (made[rows], made[elements]), strict=True))
    return replace(found, dimensions=tuple(own[each] for each in found.dimensions), entry=None)


def _moved_by_arguments(
    describer: Describer, op: LoadOp, base: SSAValue, rows: Dimension, elements: Dimension
) -> tuple[Dimension, Dimension]:
    """Rows and elements, where arguments that a mask does not know move elements: by whole rows, which the launch checks."""
    names, size = describer.function.argument_names, elements.size
    if size is None:
        return rows, elements
    shared = [term for term in elements.first if term in size.terms]
    moved = Polynomial(
        frozenset(term for term in shared if launch_size(Polynomial(frozenset([term])), names) is not None)
    )
    if not moved:
        return rows, elements
    whole = moved // rows.stride
    apart, beyond = launch_size(whole, names), launch_size(moved - whole * rows.stride, names)
    if apart is None or beyond is None:
        raise unsupported("the stride of parts must be an argument, a number, or a product of these", op)
    require_equal(describer.function, beyond, Polynomial.number(0))
    of = word_columns(tensor_of(op.result).element_type) if base in describer.across else WARP_ROWS
    require_whole_rows(describer.function, apart, of)
    end = None if rows.size is None else rows.size + whole
    rows = replace(rows, first=rows.first + (whole // of) * of, size=end)
    return rows, replace(elements, first=elements.first - moved, size=size - moved)


def _end(describer: Describer, each: Dimension) -> Size | None:
    """The end of a dimension's last tile; None if a launch cannot compute it."""
    ends = Ends(describer.affine, describer.function.argument_names)
    found = ends.of(each.first, "greatest")
    return None if found is None or ends.needs else found + each.extent


def _is_index_times_stride(monomial: Monomial, names: Mapping[SSAValue, str]) -> bool:
    return len({launch_size(Polynomial.atom(atom), names) is None for atom, _ in monomial}) == 2


def _block(describer: Describer, op: LoadOp) -> BlockPointer | None:
    """The block pointer of a load; None for pointers to elements."""
    pointer = None if as_tensor(op.ptr.type) is not None else describer.affine.pointer(op.ptr)
    return pointer if isinstance(pointer, BlockPointer) else None


def _is_block(describer: Describer, op: LoadOp) -> bool:
    """Whether a load may keep its block pointer.

    The tensor must begin at its argument and be sparse along its contiguous axis, and a tile must have the columns of at
    least one metadata word.
    """
    block, tile = _block(describer, op), tensor_of(op.result)
    if block is None or block.offset or block.base in describer.across:
        return False
    return any(
        stride.constant == 1 and tile.get_shape()[each] >= word_columns(tile.element_type)
        for each, stride in enumerate(block.strides)
    )


def _check_block(describer: Describer, op: LoadOp, but: int | None = None) -> None:
    """Make the launch check that a block ends inside of the tensor in the dimensions without boundaryCheck. but: a dimension
    that is checked.
    """
    block = _block(describer, op)
    contiguous = (
        None if block is None else next((each for each, by in enumerate(block.strides) if by.constant == 1), None)
    )
    if block is None or contiguous is None:
        return
    across = block.base in describer.across
    checked = () if op.boundary_check is None else op.boundary_check.get_values()
    for each, extent in enumerate(tensor_of(op.result).get_shape()):
        if each not in (*checked, but):
            reached = Dimension(each, extent, block.strides[each], block.first[each], None)
            of = "columns" if (each == contiguous) is not across else "rows"
            _require_reach(describer, block.base, reached, of, op, within_row=across)


_RULE = (
    "a sparse tile must be masked along K (columns < K), or begin at a multiple of a constant for each "
    "program, or for each iteration of a loop that ends at an argument or a constant"
)


def _require_reach(
    describer: Describer,
    base: SSAValue,
    dimension: Dimension,
    of: Literal["columns", "rows"],
    op: LoadOp,
    *,
    within_row: bool = False,
) -> None:
    """Make the launch check how far a dimension is read.

    within_row: whether rows too have neighbours within a row of the dense tensor's memory.
    """
    names = describer.function.argument_names
    found = reach(dimension, describer.affine, names, op)
    if found is not None:
        _state_reach(
            describer, found, op, Reach(names[base], of, found.end, found.counts, found.loose or _in_branch(op))
        )
    elif of == "columns" or within_row:
        # The next row follows in memory, so rows that end too early would not be noticed.
        raise unsupported(_RULE, op)


def _report_beyond(
    describer: Describer,
    base: SSAValue,
    dimension: Dimension,
    of: Literal["columns", "rows"],
    length: Index | None,
    op: LoadOp,
) -> bool:
    """Make the kernel report a tile outside of its row, where numbers that no launch knows move it along the row by whole tiles:
    a loaded block, or a tile or share of K that a program computes. Returns whether such numbers do. It reads zeros there.

    length: of the row. It holds two of these blocks, or else the number may move whole rows.
    """
    names, first = describer.function.argument_names, dimension.first

    def reached(first: Polynomial) -> Reached | None:
        return reach(replace(dimension, first=first), describer.affine, names, op)

    if length is None or reached(first) is not None:
        return False
    moved = [(one, by) for one, by in first if reached(Polynomial.of({one: by})) is None]
    block = max((by for _, by in moved), default=0)
    found = reached(first - Polynomial(frozenset(moved))) if block > 0 else None
    if found is None or any(by % dimension.extent and not _is_loaded(one) for one, by in moved):
        return False
    _state_reach(describer, found, op, Reach(names[base], of, found.end + block, found.counts, True))
    begins, make = describer.descriptors.first(first, op), TileNumbers(op)
    assert isinstance(begins, SSAValue)
    begins = cast(SSAValue, make.wide(begins))
    last = length - dimension.extent if isinstance(length, int) else make.minus(make.wide(length), dimension.extent)
    report(
        flag_of(describer.function),
        make.either(make.compared(begins, "slt", 0), make.compared(begins, "sgt", last)),
        make,
    )
    return True


def _is_loaded(monomial: Monomial) -> bool:
    return all(isinstance(atom, SSAValue) and isinstance(atom.owner, LoadOp) for atom, _ in monomial)


def _state_reach(describer: Describer, found: Reached, op: Operation, stated: Reach) -> None:
    require_reach(describer.function, stated)
    require_multiples(found.whole, op)
    for size in found.needs:
        require_whole_rows(describer.function, size, 1)


def _in_branch(op: Operation) -> bool:
    """Whether a branch decides in which programs, or in which iterations of a loop, an operation runs."""
    return (parent := op.parent_op()) is not None and (isinstance(parent, scf.IfOp) or _in_branch(parent))


def _describe(describer: Describer, op: LoadOp, found: Access) -> None:
    ordered = describer.ordered(op, found)
    columns, rows = ordered[-1], ordered[-2] if len(ordered) > 1 else None
    if any(each.begins_before and not each.floored for each in ordered):
        raise unsupported(
            "a sparse tile that begins before its row, or before its matrix, must be masked there (offsets >= 0)",
            op,
            "add (offsets >= 0) to the mask",
        )
    base, across = found.base, describer.across.get(found.base)
    if columns.size is None:
        length = None if rows is None else describer.sizes.entry(rows.stride) if across is None else across
        if not _report_beyond(describer, base, columns, "columns", length, op):
            _require_reach(describer, base, columns, "columns", op)
    if rows is not None and rows.size is None and found.entry is None:
        apart = next(each.stride for each in found.dimensions if each.number == columns.number)
        length = None if across is None else describer.sizes.entry(apart)
        if _report_beyond(describer, base, rows, "rows", length, op):
            ordered[-2] = rows = replace(rows, size=apart)
        else:
            _require_reach(describer, base, rows, "rows", op, within_row=across is not None)
    if rows is not None and rows.size is None and found.entry is not None:
        _require_rows_of_matrix(describer, found.base, rows, found.entry, op)
    describer.load(op, found, ordered, [_size(describer, op, each, found, rows, columns) for each in ordered])


def _require_rows_of_matrix(describer: Describer, base: SSAValue, rows: Dimension, entry: Entry, op: LoadOp) -> None:
    """Make the launch check that rows without a mask end in their matrix, where it can compute how far they are read."""
    names = describer.function.argument_names
    found, held = reach(rows, describer.affine, names, op), launch_size(entry.stride // rows.stride, names)
    if found is not None and held is not None and found.end != held:
        _state_reach(describer, found, op, Reach(names[base], "rows", found.end, found.counts, held=held))


def _size(
    describer: Describer, op: LoadOp, each: Dimension, found: Access, rows: Dimension | None, columns: Dimension
) -> Polynomial:
    """The size of a dimension of a sparse tensor."""
    if each.size is not None:
        return each.size
    if rows is not None and each is columns:
        return rows.stride
    if rows is not None and found.entry is not None:
        # The rows of a matrix in a batch are the stride of matrices divided by the pitch of rows.
        return describer.descriptors.ratio(found.entry.stride, rows.stride, op)
    return Polynomial.number(EVERY)
