"""Splits a view of a sparse tensor into views of its values and its metadata: shapes, strides, offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import TensorType, i16
from xdsl.ir import Attribute, Operation, SSAValue

from louver.analysis.affine import launch_size
from louver.analysis.alignment import Needs, multiple_if
from louver.analysis.integers import literal
from louver.analysis.passages import function_of
from louver.compile.canonical.propagate_sparsity import encoding_of
from louver.compile.condition_attributes import require_multiple, require_whole_rows
from louver.compile.rewrite.numbers import Numbers
from louver.ir.refusal import unsupported
from louver.ir.tile import DescriptorType, FuncOp, Index, PointerType, SparseAttr, sparse_encoding
from louver.ir.tile.metadata import (
    METADATA_ROWS,
    QUAD,
    QUAD_ENTRIES,
    WORD_ENTRIES,
    divides,
    least_columns,
    metadata_shape,
    word_columns,
)
from louver.ir.tile.parts import KEPT
from louver.ir.tile.types import FORMATS, AnyTensor, as_tensor


@dataclass(frozen=True, slots=True)
class Axes:
    """The dimensions of a sparse tensor that are rows and columns. Columns are the sparse axis."""

    rows: int
    columns: int

    def __post_init__(self) -> None:
        if self.rows == self.columns or min(self.rows, self.columns) < 0:
            raise ValueError(f"rows and columns are two dimensions, got {self.rows} and {self.columns}")

    @classmethod
    def last(cls, rank: int) -> Axes:
        """The last two dimensions of a tensor of rank `rank`, at least 2."""
        return cls(rank - 2, rank - 1)

    def turned(self, order: Sequence[int]) -> Axes:
        """The axes of the transposed tensor, whose dimension i is dimension order[i] of this one."""
        return Axes(list(order).index(self.rows), list(order).index(self.columns))


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a sparse value. axes: the axes of a tile or of a view of tiles; None for a pointer to elements."""

    values: SSAValue
    metadata: SSAValue
    axes: Axes | None


Entries = list[Index]


def require_lifted(function: FuncOp) -> None:
    """Rejects sparse arguments of patterns that no tensor core multiplies: their values and metadata lie otherwise."""
    for argument in function.body.block.args:
        encoding = encoding_of(argument)
        if encoding is not None and encoding.format not in FORMATS.values():
            raise unsupported(
                f"register tiles take the patterns that the hardware multiplies, not {encoding.format.pattern}",
                function,
                "prune to 2:4, or write a product with a dense operand [K, N]",
            )


def part_types(type_: Attribute, axes: Axes | None, op: Operation) -> tuple[Attribute, Attribute]:
    """The types of values and metadata for a sparse type.

    Rejects `op` for tiles without whole rows and words of metadata.
    """
    match type_:
        case DescriptorType():
            values, metadata = _tile_types(type_.block, axes, op)
            return DescriptorType(values), DescriptorType(metadata)
        case PointerType() if (tile := as_tensor(type_.pointee)) is not None:
            values, metadata = _tile_types(tile, axes, op)
            return PointerType(values), PointerType(metadata)
        case PointerType():
            return PointerType(type_.pointee), PointerType(i16)
        case _:
            tile = as_tensor(type_)
            if tile is None or sparse_encoding(tile) is None:
                raise unsupported("a sparse tensor must be read through block pointers or descriptors", op)
            return _tile_types(tile, axes, op)


def _tile_types(tile: AnyTensor, axes: Axes | None, op: Operation) -> tuple[AnyTensor, AnyTensor]:
    assert axes is not None
    shape, element = list(tile.get_shape()), tile.element_type
    size = shape[axes.rows], shape[axes.columns]
    if not divides(size, element):
        raise unsupported(
            f"a sparse tile needs a multiple of {METADATA_ROWS} rows and of {word_columns(element)} columns (or "
            f"{word_columns(element)} divided by a power of two, {least_columns(element)} at least), not "
            f"{size[0]} x {size[1]}",
            op,
            "choose larger blocks",
        )
    values, metadata = list(shape), list(shape)
    values[axes.columns] //= KEPT
    metadata[axes.rows], metadata[axes.columns] = metadata_shape(*size, element)
    return TensorType(element, values), TensorType(i16, metadata)


def split_shape(
    shape: Sequence[Index], axes: Axes, encoding: SparseAttr, element: Attribute, make: Numbers
) -> tuple[Entries, Entries]:
    """The shapes of values (in whole groups) and of metadata (in whole rows and words) for the shape of a tensor."""
    values, metadata = list(shape), list(shape)
    group = encoding.format.group
    values[axes.columns] = make.times(make.ceil(shape[axes.columns], group), group // KEPT)
    metadata[axes.rows] = make.ceil(shape[axes.rows], METADATA_ROWS)
    metadata[axes.columns] = make.times(make.ceil(shape[axes.columns], word_columns(element)), WORD_ENTRIES)
    return values, metadata


def metadata_counts(strides: Sequence[Index], axes: Axes, element: Attribute, make: Numbers) -> Entries:
    """The shape of metadata for a tensor without gaps, computed from its strides.

    The number of matrices is not included. The sizes in a kernel may be smaller than those of the tensor, so they are
    not used.
    """
    found = list(strides)
    found[axes.columns] = make.times(make.ceil(strides[axes.rows], word_columns(element)), WORD_ENTRIES)
    inner = axes.rows
    for dimension in reversed([each for each in range(len(strides)) if each not in (axes.rows, axes.columns)]):
        count = make.quotient(strides[dimension], strides[inner])
        found[inner] = make.ceil(count, METADATA_ROWS) if inner == axes.rows else count
        inner = dimension
    return found


def split_strides(
    strides: Sequence[Index], axes: Axes, shape: Sequence[Index], make: Numbers
) -> tuple[Entries, Entries]:
    """The strides of values, which are halved, and of metadata, which has no gaps. shape: the shape of metadata.

    Columns are contiguous in both. In metadata, rows come next, then other dimensions from the last to the first.
    """
    values: Entries = []
    for dimension, stride in enumerate(strides):
        number = literal(stride)
        if dimension != axes.columns and number is not None and number % KEPT:
            raise unsupported(
                f"strides of a sparse tensor count dense elements and are multiples of {KEPT}, not {number}", make.op
            )
        values.append(1 if dimension == axes.columns else make.quotient(stride, KEPT))
    metadata: Entries = [1] * len(strides)
    others = [dimension for dimension in reversed(range(len(strides))) if dimension not in (axes.rows, axes.columns)]
    order = (axes.columns, axes.rows, *others)
    for inner, dimension in zip(order, order[1:], strict=False):
        metadata[dimension] = make.times(metadata[inner], make.widened(shape[inner]))
    return values, metadata


def split_offsets(
    offsets: Sequence[Index], axes: Axes, tile: AnyTensor, make: Numbers, *, moves: bool = False
) -> tuple[Entries, Entries]:
    """The offsets of a tile, or advances, for values and metadata.

    Rejects offsets that are not known to begin at a row and a word of metadata. For tiles with fewer columns than a
    word, offsets must be multiples of the tile's columns.
    """
    element = tile.element_type
    columns = min(tile.get_shape()[axes.columns], word_columns(element))
    if moves and columns < word_columns(element):
        raise unsupported(
            f"a block pointer must move by whole words of metadata, {word_columns(element)} columns, not by {columns}",
            make.op,
            "choose larger blocks, or use tl.make_tensor_descriptor",
        )
    for dimension, of, what in ((axes.rows, METADATA_ROWS, "rows"), (axes.columns, columns, "columns")):
        needs = multiple_if(offsets[dimension], of)
        if needs is None:
            raise unsupported(
                f"a sparse tile must begin at a provable multiple of {of} {what}, such as tl.program_id(0) * BLOCK",
                make.op,
                "mask what is beyond the last tile instead of moving tiles back",
            )
        require_multiples(needs, make.op)
    values, metadata = list(offsets), list(offsets)
    values[axes.columns] = make.quotient(offsets[axes.columns], KEPT)
    metadata[axes.rows] = make.quotient(offsets[axes.rows], METADATA_ROWS)
    metadata[axes.columns] = _entry_column(offsets[axes.columns], columns, element, make)
    return values, metadata


def _entry_column(column: Index, columns: int, element: Attribute, make: Numbers) -> Index:
    """The place in a row of metadata of a tile's first entry.

    column, columns: the first column and the number of columns.
    """
    per_word = word_columns(element)
    if columns == per_word:
        return make.times(column, WORD_ENTRIES // per_word)
    rest = make.rest(column, per_word)
    word = make.times(make.minus(column, rest), WORD_ENTRIES // per_word)
    return make.plus(word, make.times(make.quotient(rest, per_word // QUAD), QUAD_ENTRIES))


def require_multiples(needs: Needs, op: Operation) -> None:
    """Make the launch check that numbers of arguments are multiples."""
    function = function_of(op)
    names = function.argument_names
    for size, of in sorted(((launch_size(number, names), of) for number, of in needs), key=str):
        assert size is not None, "numbers of arguments"
        if size.name is not None:
            require_multiple(function, size.name, of)
        else:
            require_whole_rows(function, size, of)


def contiguous_axes(strides: Sequence[Index], op: Operation) -> Axes:
    """The axes of a matrix with these strides. Columns, the sparse axis, are contiguous."""
    found = [dimension for dimension, stride in enumerate(strides) if literal(stride) == 1]
    if len(strides) != 2 or not found:
        raise unsupported("a block pointer to a sparse tensor needs a matrix of which one stride is the constant 1", op)
    return Axes(1 - found[-1], found[-1])
