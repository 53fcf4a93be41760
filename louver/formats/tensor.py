"""The sparse tensor: stored values and indices in natural row-major order, and the way back to dense."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from louver.formats.codes import decode, index_bytes
from louver.formats.derived import DerivedForms
from louver.formats.dtypes import SPARSE_TYPES, ElementType, element_type, raw_bits
from louver.formats.pattern import Pattern
from louver.formats.rows import Windows, from_rows, row_count, sparse_operand

ROW_ALIGNMENT: Final = 16
"""Bytes of which a row pitch of values is a multiple, so that bulk copies read the rows in place."""


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class SparseTensor:
    """A structured-sparse tensor in its portable form.

    shape: of the dense tensor. axis: the sparse axis, counted from 0. rows: the other axes, in their order, flattened.
    values: element type `dtype`, [rows, kept]; contiguous along a row, row pitch rounded up to 16 bytes.
    indices: uint8 [rows, index bytes], contiguous, of N:M@L [windows, index bytes] for L rows each; see `louver.formats.codes`.
    negative_zeros_dropped: how many -0.0 of the dense tensor became +0.0 because their group had no free slot.
    derived: what was made of it, such as its copies on devices.
    A sparse axis that is not a multiple of M ends in a group that is filled up with zeros.

    The tensor owns its arrays, which are read-only: arrays that someone can still write, and those of another layout, are
    copied. `update_` is the way to change values. Tensors are compared and hashed by identity, as PyTorch's modules are;
    `numpy.array_equal` compares elements. `s @ b` and `x @ s.T` are `louver.matmul` and `louver.linear`; NumPy's functions see
    the dense array.
    Raises TypeError or ValueError for parts that do not fit together; `validate` looks at the contents as well.
    """

    pattern: Pattern
    dtype: ElementType
    shape: tuple[int, ...]
    axis: int
    values: NDArray[Any]
    indices: NDArray[np.uint8]
    negative_zeros_dropped: int = 0
    derived: DerivedForms = field(default_factory=DerivedForms, init=False)

    # `array @ s` then comes to `__rmatmul__`; NumPy's other operators refuse.
    __array_ufunc__ = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", Pattern.parse(self.pattern))
        _check_types(self)
        element_type(self.dtype, SPARSE_TYPES)
        if not 0 <= self.axis < len(self.shape):
            raise ValueError(
                f"the sparse axis of shape {self.shape} is from 0 to {len(self.shape) - 1}, got {self.axis}"
            )
        if any(size < 0 for size in self.shape):
            raise ValueError(f"dimensions are 0 or more, got shape {self.shape}")
        if self.negative_zeros_dropped < 0:
            raise ValueError(f"negative_zeros_dropped is a count, got {self.negative_zeros_dropped}")
        self._check_arrays()
        object.__setattr__(self, "values", _owned_rows(self.values))
        object.__setattr__(self, "indices", _owned(self.indices))

    def _check_arrays(self) -> None:
        if element_type(self.values.dtype).numpy != self.dtype.numpy:
            raise ValueError(f"values of {self.dtype} are {self.dtype.numpy}, got {self.values.dtype}")
        if self.values.shape != (self.rows, self.kept):
            raise ValueError(
                f"{self.pattern} of shape {self.shape} along axis {self.axis} keeps values of shape "
                f"{(self.rows, self.kept)}, got {self.values.shape}"
            )
        expected = (self.windows.count, index_bytes(self.pattern, self.groups))
        if self.indices.dtype != np.uint8 or self.indices.shape != expected:
            raise ValueError(
                f"indices are uint8 of shape {expected}, got {self.indices.dtype} of shape {self.indices.shape}"
            )

    @property
    def ndim(self) -> int:
        """Dimensions of the dense tensor."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements along the sparse axis of the dense tensor."""
        return self.shape[self.axis]

    @property
    def rows(self) -> int:
        """Rows along the sparse axis: the product of the other dimensions."""
        return row_count(self.shape, self.axis)

    @property
    def windows(self) -> Windows:
        """Which rows have the same indices."""
        return Windows(self.shape, self.axis, self.pattern)

    @property
    def groups(self) -> int:
        """Groups of a row, the last one filled up."""
        return self.pattern.groups(self.size)

    @property
    def kept(self) -> int:
        """Stored values of a row: N for each group."""
        return self.groups * self.pattern.n

    @property
    def nbytes(self) -> int:
        """Bytes in memory: values with their row pitch, and indices."""
        return self.rows * row_pitch(self.kept, self.dtype) + self.indices.nbytes

    @property
    def T(self) -> SparseTensor:
        """The transpose of a matrix, which shares its values: [K, M] for [M, K], sparse along the other axis.

        Raises ValueError for a tensor of more than two dimensions.
        """
        if self.ndim > 2:
            raise ValueError(
                f"T is the transpose of a matrix, got shape {list(self.shape)}: mT transposes those of a batch"
            )
        return self.mT if self.ndim == 2 else self

    @property
    def mT(self) -> SparseTensor:
        """The tensor with its last two axes exchanged, one of which is the sparse one. It shares values, and what was made of them.

        Raises ValueError for a tensor of one dimension, and for one that is sparse along another axis.
        """
        if self.axis < self.ndim - 2 or self.ndim < 2:
            raise ValueError(
                f"mT exchanges the last two axes, one of which is the sparse one, got shape {list(self.shape)}, axis "
                f"{self.axis}: compress the transposed dense array"
            )
        *batch, rows, columns = self.shape
        view = replace(self, shape=(*batch, columns, rows), axis=2 * self.ndim - 3 - self.axis)
        with self.derived.lock:
            object.__setattr__(view, "values", self.values)
            object.__setattr__(view, "derived", self.derived)
            self.derived.views |= {self, view}
        return view

    def update_(self, values: ArrayLike) -> SparseTensor:
        """Change the stored values in place and return the tensor: the same pattern, shape and kept elements.

        values: [rows, kept] of the tensor's element type, a NumPy array or a PyTorch tensor on any device; copied.
        Everything made of the tensor follows: transposed views, plans, and copies on devices, which stay at their addresses, so
        that a CUDA graph replays with the new values. Each device is waited for, before its copy changes and after.
        Not to be called while a stream is being captured, nor while another thread launches products of the tensor. Raises
        ValueError or TypeError, and changes nothing, for values of another type or shape.
        """
        given, element = sparse_operand(values)
        if element != self.dtype and element.numpy != self.dtype.numpy:
            raise ValueError(f"values must be of the tensor's type, {self.dtype}, got {element}: convert them first")
        new = replace(self, values=given, negative_zeros_dropped=0)
        if self.size % self.pattern.m:
            new.validate()
        with self.derived.lock:
            before = self.values
            try:
                self._set_values(new.values)
                self.derived.refresh(self)
            except BaseException:
                self._set_values(before)
                raise
            for view in {self, *self.derived.views}:
                object.__setattr__(view, "negative_zeros_dropped", 0)
        return self

    def _set_values(self, values: NDArray[Any]) -> None:
        for view in {self, *self.derived.views}:
            object.__setattr__(view, "values", values)

    def dense(self) -> NDArray[Any]:
        """The dense array, bit for bit what was compressed (but for the -0.0 counted): `shape`, `dtype`, C order.

        Raises ValueError when the indices are not legal.
        """
        out = np.empty((self.rows, self.size), self.dtype.bits_dtype)
        values = self.values
        for block, lists in self.windows.blocks():
            out[block] = self._expand(values, block, lists)[:, : self.size]
        return from_rows(out, self.shape, self.axis, self.dtype)

    def validate(self) -> None:
        """Raises ValueError unless every code is legal and only +0.0 is stored past the end of the sparse axis."""
        for block, lists in self.windows.blocks():
            outside = self._expand(self.values, block, lists)[:, self.size :].any(axis=1)
            if outside.any():
                raise ValueError(
                    f"only +0.0 may be stored past the end of the sparse axis, got another value in row "
                    f"{block.start + int(np.argmax(outside))}: the values or the indices are corrupt"
                )

    def unpacked_indices(self) -> NDArray[np.int32]:
        """The index of each stored value in its group, int32 [windows, kept]: what `indices` say.

        Of a matrix `s.values.T` is NM-SpMM's B' [w, n], and `s.unpacked_indices().T` its D [w, q]. Raises ValueError when the indices are
        not legal.
        """
        mask = decode(self.indices, self.groups, self.pattern)
        return np.nonzero(mask)[1].astype(np.int32).reshape(len(self.indices), self.kept)

    def _expand(self, values: NDArray[Any], block: slice, lists: slice) -> NDArray[Any]:
        """Raw bits of some dense rows, those of a slice of windows, the last group filled up: [rows of the block, groups * M]."""
        count, columns = block.stop - block.start, self.groups * self.pattern.m
        mask = decode(self.indices[lists], self.groups, self.pattern, lists.start).reshape(-1, 1, columns)
        full = np.zeros((count, columns), self.dtype.bits_dtype)
        of_rows = np.broadcast_to(mask, (len(mask), self.windows.height, columns)).reshape(-1, columns)
        full[of_rows[:count]] = raw_bits(values)[block].ravel()
        return full

    def __matmul__(self, b: Any) -> Any:
        # The package's own names: this room may not import the one that has products.
        import louver

        return louver.linear(b, self) if getattr(b, "ndim", 2) == 1 else louver.matmul(self, b)

    def __rmatmul__(self, x: Any) -> Any:
        import louver

        if self.axis != self.ndim - 2:
            raise ValueError(
                "x @ s sums along the last axis but one of s, so s must be sparse along it, got shape "
                f"{list(self.shape)}, axis {self.axis}: write x @ s.T for a weight [out, K], or x @ s.dense()"
            )
        return louver.linear(x, self.mT)

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        raise ValueError("a sparse tensor has no truth value: use s is None, len(s) or s.dense().any()")

    def __iter__(self) -> Iterator[NoReturn]:
        raise TypeError("a sparse tensor cannot be iterated over: use s.dense()")

    def __getitem__(self, index: object) -> NoReturn:
        raise TypeError(f"a sparse tensor cannot be indexed, got s[{index!r}]: use s.dense()[…]")

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("the dense array of a sparse tensor is a new one, got copy=False: leave it out")
        dense = self.dense()
        return dense if dtype is None else dense.astype(dtype, copy=False)

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.pattern, self.dtype, self.shape, self.axis, self.values, self.indices)
        return type(self), (*parts, self.negative_zeros_dropped)

    def __repr__(self) -> str:
        return f"SparseTensor({self.pattern} {self.dtype} {list(self.shape)}, axis {self.axis}, {self.nbytes:,} bytes)"


def row_pitch(kept: int, element: ElementType) -> int:
    """Bytes from one row of `kept` values to the next."""
    return -(-kept * element.bytes // ROW_ALIGNMENT) * ROW_ALIGNMENT


def empty_rows(rows: int, kept: int, element: ElementType) -> NDArray[Any]:
    """Zeros [rows, kept] of an element type, with the row pitch that a `SparseTensor` asks for."""
    whole = np.zeros((rows, row_pitch(kept, element) // element.bytes), element.bits_dtype)
    return whole.view(element.numpy)[:, :kept]


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view of an array that nobody else has; all memory that it is a view of is made read-only too."""
    each: Any = array
    while isinstance(each, np.ndarray):
        each.flags.writeable = False
        each = each.base
    # Only what owns its memory could be made writable again.
    return array.view()


def _is_frozen(array: NDArray[Any]) -> bool:
    """Whether nobody can write the array or the memory that it is a view of."""
    each: Any = array
    while isinstance(each, np.ndarray):
        if each.flags.writeable:
            return False
        each = each.base
    # Whoever else has the memory may write it.
    return each is None


def _owned(array: NDArray[Any]) -> NDArray[Any]:
    return array if _is_frozen(array) and array.flags.c_contiguous else frozen(np.array(array, order="C"))


def _owned_rows(values: NDArray[Any]) -> NDArray[Any]:
    """The values [rows, kept] with their row pitch, owned: the array itself, or a copy."""
    element = element_type(values.dtype)
    rows, kept = values.shape
    strides = (row_pitch(kept, element), element.bytes)
    if _is_frozen(values) and (values.strides == strides or not values.size):
        return values
    copy = empty_rows(rows, kept, element)
    raw_bits(copy)[:] = raw_bits(values)
    return frozen(copy)


def _check_types(s: SparseTensor) -> None:
    """Raises TypeError for parts that are of another type altogether."""
    dtype, shape = cast("object", s.dtype), cast("object", s.shape)
    if not isinstance(dtype, ElementType):
        raise TypeError(f"dtype is an ElementType, got {dtype!r}: use louver.formats.dtypes.element_type(…)")
    arrays: dict[str, object] = {"values": s.values, "indices": s.indices}
    for name, array in arrays.items():
        kind = type(array)
        if not issubclass(kind, np.ndarray) or issubclass(kind, np.ma.MaskedArray):
            raise TypeError(f"{name} are a NumPy array, not a masked one, got {kind.__name__}: convert them")
    if not isinstance(shape, tuple):
        raise TypeError(f"shape is a tuple of integers, got {shape!r}")
    for number in (*s.shape, s.axis, s.negative_zeros_dropped):
        if type(number) is not int:
            raise TypeError(f"shape, axis and negative_zeros_dropped are Python integers, got {number!r}")
