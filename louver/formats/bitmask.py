"""Weights as compressed-tensors stores them: the kept values, a bit for each element, and the shape.

`sparse-24-bitmask` keeps exactly two of each four consecutive elements, `sparse-bitmask` any number. The first element of
a row is the lowest bit of its first byte, and each row starts a byte. The values are in the order of the elements.
Source: https://github.com/vllm-project/compressed-tensors, release 0.14, compressors/sparse_compressors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from louver.formats.check import check
from louver.formats.codes import NIBBLE_CODES, decode
from louver.formats.compress import compress
from louver.formats.container import DTYPES, Entry, type_name
from louver.formats.dtypes import ELEMENT_TYPES, ElementType
from louver.formats.pattern import LIFTED, Pattern
from louver.formats.schema import BITMASK_PARTS, WEIGHT, BitmaskForm, Tensor, stored_names
from louver.formats.tensor import SparseTensor

PATTERN: Final = Pattern(2, 4)
"""The pattern of `sparse-24-bitmask`."""

_SPARSE_DTYPES: Final = {element.numpy for element in ELEMENT_TYPES.values() if element.sparse} & {*DTYPES.values()}

Start = Callable[[Entry], bytes]
"""Reads the first bytes of an array."""


def written_form(name: str, element: ElementType, shape: tuple[int, ...]) -> BitmaskForm:
    """The form of a 2:4 weight that is written. Raises ValueError for one that compressed-tensors could not hold."""
    if not name.endswith(WEIGHT):
        raise ValueError(f"a bitmask holds tensors whose names end in {WEIGHT}, got {name!r}: leave it dense")
    if len(shape) != 2 or shape[1] % PATTERN.m:
        raise ValueError(
            f"a bitmask holds matrices whose rows are multiples of {PATTERN.m} elements, got {list(shape)} of {name!r}: "
            "leave it dense"
        )
    return BitmaskForm(type_name(element.numpy), (shape[0], shape[1]))


def found_forms(entries: Mapping[str, Entry], start: Start) -> dict[str, BitmaskForm]:
    """The weights that the arrays of a file hold in this form, by name. Raises ValueError for a shape that cannot be."""
    found: dict[str, BitmaskForm] = {}
    for bits in entries:
        stem = bits.removesuffix(BITMASK_PARTS.bits)
        values, shape = entries.get(stem + BITMASK_PARTS.values), entries.get(stem + BITMASK_PARTS.shape)
        if stem == bits or values is None or shape is None or values.dtype not in DTYPES:
            continue
        of_groups = len(values.shape) == 2
        kinds = entries[bits].dtype, len(entries[bits].shape), shape.dtype, shape.shape
        if kinds != ("U8", 2, "I64", (2, 1) if of_groups else (2,)):
            continue
        if not of_groups and (len(values.shape) != 1 or stem + BITMASK_PARTS.offsets not in entries):
            continue
        rows, columns = np.frombuffer(start(shape), DTYPES[shape.dtype]).tolist()
        try:
            found[stem + WEIGHT] = BitmaskForm(values.dtype, (rows, columns), None if of_groups else values.shape[0])
        except ValueError as error:
            raise ValueError(f"{stem + BITMASK_PARTS.shape!r} cannot be used: {error}") from error
    return found


def packed(s: SparseTensor) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Values [rows, columns / 2] and bits [rows, bytes] of a 2:4 matrix on the host, sparse along its rows."""
    (mask,) = decode(s.indices, s.windows)
    return s.values, np.packbits(mask.reshape(s.rows, s.size), axis=1, bitorder="little")


def packed_pieces(form: BitmaskForm, pieces: Iterable[SparseTensor]) -> Iterator[tuple[NDArray[Any], ...]]:
    """The stored arrays of consecutive pieces of a weight, as `BitmaskForm.arrays` orders them. A piece is a matrix, whose
    columns are the weight's or a part of one row at a multiple of 8.
    """
    shape = np.array(form.shape, np.int64).reshape(2, 1)
    for piece in pieces:
        yield *packed(piece), shape
        shape = shape[:0]
    yield np.empty(0, DTYPES[form.dtype]), np.empty(0, np.uint8), shape


class Source(Protocol):
    """An array of a file that is read in order. left: elements not read yet."""

    left: int

    def take(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """The next elements."""
        ...

    def finish(self) -> None:
        """Raises ValueError unless the elements read have the stored checksum, if there is one."""
        ...


def dense_pieces(
    form: BitmaskForm, sources: Sequence[Source], shapes: Iterable[tuple[int, ...]]
) -> Iterator[NDArray[Any]]:
    """A weight as consecutive dense pieces, with +0.0 in dropped places.

    sources: of the stored arrays, in the order of `BitmaskForm.arrays`. shapes: of the pieces, which cover the weight; a
    piece has whole rows, or a part of one row at a multiple of 8. Raises ValueError where bits and values do not match.
    """
    values, bits, *_ = sources
    rows, columns = form.shape
    if not columns:
        # There may be any number of rows: nothing has their length.
        yield from (np.empty(shape, DTYPES[form.dtype]) for shape in shapes)
        return
    counts = np.zeros(rows, np.int64)
    done = 0
    for height, width in shapes:
        row = done // columns
        mask = _unpacked(bits.take((height, -(-width // 8))), width, row)
        counts[row : row + height] += np.count_nonzero(mask, axis=1)
        done += mask.size
        count = int(np.count_nonzero(mask))
        if count > values.left:
            raise ValueError(f"the bits up to row {row + height - 1} keep more elements than there are values")
        yield _filled(mask, values.take((count,)))
    if values.left:
        raise ValueError(f"the bits keep {counts.sum()} elements, got {counts.sum() + values.left} values")
    wrong = counts != columns // 2
    if form.kept is None and not columns % PATTERN.m and wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"the bits of row {row} keep {counts[row]} elements, got {columns // 2} values of the row")
    _check_others(sources, counts)


def _check_others(sources: Sequence[Source], counts: NDArray[np.int64]) -> None:
    """Compare the first value of each row, where it is stored, and all checksums. counts: values of each row."""
    _, _, shape, *offsets = sources
    shape.take((shape.left,))
    for source in offsets:
        wanted = np.cumsum(counts) - counts
        wrong = source.take((source.left,)) != wanted
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(f"row {row} begins with value {wanted[row]} by its bits, but row_offsets have another")
    for source in sources:
        source.finish()


def loaded(form: BitmaskForm, dense: NDArray[Any]) -> Tensor:
    """The whole weight as `louver.load` gives it: sparse if the form says 2:4 and the rows hold it, else dense."""
    sparse = form.kept is None and dense.dtype in _SPARSE_DTYPES and check(dense, PATTERN, listed=0).ok
    return compress(dense, PATTERN) if sparse else dense


def _unpacked(bits: NDArray[np.uint8], columns: int, first: int) -> NDArray[np.bool_]:
    """The mask [rows, columns]. first: the number of the first row. Raises ValueError for bits past the end of a row."""
    mask = np.unpackbits(bits, axis=1, bitorder="little").view(np.bool_)
    outside = mask[:, columns:].any(axis=1)
    if outside.any():
        raise ValueError(f"the bits of row {first + int(np.argmax(outside))} go on past its end, column {columns}")
    return mask[:, :columns]


def _filled(mask: NDArray[np.bool_], values: NDArray[Any]) -> NDArray[Any]:
    """The dense array of a mask and its values."""
    bits = np.dtype(f"u{values.dtype.itemsize}")
    dense = np.zeros(mask.shape, bits)
    dense[mask] = values.view(bits)
    return dense.view(values.dtype)


_SPARSE_NAMES: Final = {*map(type_name, _SPARSE_DTYPES)}


def check_undescribed(entries: Mapping[str, Entry], start: Start) -> None:
    """Raises ValueError for arrays that look like a stored sparse tensor, in a file without a schema."""
    for name, values in entries.items():
        stem = name.removesuffix(".values")
        indices = entries.get(stored_names(stem)[1])
        if stem == name or indices is None or values.dtype not in _SPARSE_NAMES or indices.dtype != "U8":
            continue
        if (len(values.shape), len(indices.shape)) == (2, 2) and _are_indices(values.shape, indices, start):
            raise ValueError(
                f"the file has lost the metadata that describe the sparse tensor {stem!r}: use the file as it was saved, "
                f"or rename {name!r} if another program made it"
            )


def _are_indices(values: tuple[int, ...], indices: Entry, start: Start) -> bool:
    """Whether indices [windows, size] can belong to values [rows, kept]. See `louver.formats.codes`."""
    (rows, kept), (windows, size) = values, indices.shape
    if windows == rows:
        # Patterns of elements: a byte for each value, or codes.
        return size == kept or _are_codes(kept, size, start(indices))
    if not 0 < windows < rows:
        return False
    # Patterns of vectors: 1, 2, 4 or 8 bits for each value, or the form of V:N:M.
    if size in {-(-kept * bits // 8) for bits in (1, 2, 4, 8)}:
        return True
    groups = kept // LIFTED[0]
    codes = -(-groups // 2)
    heights = (divmod(size - -(-groups * LIFTED[1] * bits // 8), codes) for bits in (4, 8)) if codes else ()
    return any(not rest and 1 < height <= rows <= height * windows for height, rest in heights)


def _are_codes(kept: int, size: int, start: bytes) -> bool:
    """Whether rows of `size` bytes that begin with `start` can be codes of `kept` values, of 2:4 or 1:2."""
    found = {code for byte in set(start) for code in (byte & 0xF, byte >> 4)}
    return any(size == -(-kept // (2 * pattern.n)) and found <= codes.keys() for pattern, codes in NIBBLE_CODES.items())
