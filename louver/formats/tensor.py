"""The sparse tensor: values and indices in natural row-major order, and its dense array. Objects that other rooms derive from
it change and are freed with it.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from louver.formats.codes import decode, decode_block, index_bytes
from louver.formats.dtypes import SPARSE_TYPES, ElementType, check_unused, element_type, raw_bits, shown
from louver.formats.dynamo import opaque
from louver.formats.pattern import Pattern
from louver.formats.rows import Block, Windows, from_rows, sparse_operand
from louver.formats.select import kept_elements
from louver.formats.torch_tensors import Library, library_of, of_host

if TYPE_CHECKING:
    from louver.formats.kinds import Array


class Derived(Protocol):
    """An object that is computed from a tensor's values."""

    def refresh(self, s: SparseTensor) -> None:
        """Recompute the object from the current values of `s`."""
        ...


AnyDerived = TypeVar("AnyDerived", bound=Derived)


class DerivedForms:
    """Objects derived from a tensor, at most one of each class. A tensor and its transposed views share them.

    views: the tensors that share them, empty for a single tensor. lock: held while values change.
    """

    __slots__ = ("_followers", "_kept", "lock", "views")

    def __init__(self) -> None:
        self.views: weakref.WeakSet[SparseTensor] = weakref.WeakSet()
        self.lock = threading.RLock()
        self._kept: dict[type, Derived] = {}
        self._followers: weakref.WeakSet[Derived] = weakref.WeakSet()

    def find(self, kind: type[AnyDerived]) -> AnyDerived | None:
        """The object of this class, or None before the first call of `of`."""
        return cast("AnyDerived | None", self._kept.get(kind))

    def of(self, kind: type[AnyDerived]) -> AnyDerived:
        """The object of this class. The first call makes it without arguments. All threads get the same object."""
        return self.find(kind) or cast("AnyDerived", self._kept.setdefault(kind, kind()))

    def follow(self, follower: Derived) -> None:
        """Refresh `follower` too. Only a weak reference is held."""
        self._followers.add(follower)

    def beside(self, *kinds: type) -> list[Derived]:
        """The objects of other classes than these, and the followers."""
        return [each for each in (*self._kept.values(), *self._followers) if not isinstance(each, kinds)]

    def refresh(self, s: SparseTensor) -> None:
        for each in (*self._kept.values(), *self._followers):
            each.refresh(s)


T = TypeVar("T")

ROW_ALIGNMENT: Final = 16
"""The row pitch of values is a multiple of this many bytes, so that bulk copies can read the rows in place."""


def _fixed(tensor: type[T]) -> type[T]:
    """Clear errors for assignments. Those of a frozen dataclass with slots fail themselves for other names."""

    def refuse(self: object, name: str, *value: object) -> NoReturn:
        raise FrozenInstanceError(
            f"a sparse tensor's attributes are fixed, got an assignment to {name!r}: update_(values) changes the values, "
            "dataclasses.replace(s, …) makes another tensor"
        )

    tensor.__setattr__ = tensor.__delattr__ = refuse
    return tensor


@opaque
@_fixed
@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class SparseTensor:
    """A structured-sparse tensor in its portable form.

    shape: of the dense tensor. axis: the sparse axis, counted from 0. rows: the other axes, flattened in their order.
    values: [rows, kept] of `dtype`; contiguous along a row, row pitch a multiple of 16 bytes.
    indices: contiguous uint8 [rows, index bytes], for N:M@L and V:N:M [windows, …]; see `louver.formats.codes`.
    negative_zeros_dropped: -0.0 of the dense tensor that became +0.0, because their group had no free slot.
    library: of what `dense` makes on the host. By default that of values on a GPU, if it is PyTorch, else NumPy.
    device: the GPU's ordinal; None for NumPy arrays. derived: objects made from the tensor, such as device copies.
    A sparse axis that is not a multiple of M ends in a group that is filled with zeros.

    On the host the tensor owns its arrays, and they are read-only. Arrays that others can write, and arrays of another
    layout, are copied. On a GPU the arrays may be of PyTorch, CuPy or any library with DLPack or
    `__cuda_array_interface__`. They are used in place without synchronization; only another layout is copied, on the
    device. `to` moves a tensor; `update_` sets values. Tensors compare and hash by identity, as PyTorch's modules do;
    `numpy.array_equal` compares elements. `s @ b` and `x @ s.T` are `louver.matmul` and `louver.linear`. NumPy's
    functions see the dense array on the host; `numpy.dot` is the sparse product. A pickled tensor is loaded to the
    host. Transposed views that are pickled or deeply copied together share their values afterwards too.
    Raises TypeError or ValueError for parts that do not match; `validate` also checks the contents.
    """

    pattern: Pattern
    dtype: ElementType
    shape: tuple[int, ...]
    axis: int
    values: Any
    indices: Any
    negative_zeros_dropped: int = 0
    library: Library | None = None
    device: int | None = field(default=None, init=False)
    derived: DerivedForms = field(default_factory=DerivedForms, init=False)

    # NumPy then passes `array @ s` to `__rmatmul__`, and its other operators raise.
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
        if self.library not in (None, "numpy", "torch"):
            raise ValueError(f'library is "numpy", "torch" or None, got {shown(self.library)}')
        if self.negative_zeros_dropped < 0:
            raise ValueError(f"negative_zeros_dropped is a count, got {self.negative_zeros_dropped}")
        on_host = isinstance(self.values, np.ndarray) and isinstance(self.indices, np.ndarray)
        values, indices, device = self._owned_arrays() if on_host else resident().adopted(self)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "indices", indices)
        object.__setattr__(self, "device", device)
        if self.library is None:
            object.__setattr__(self, "library", library_of(values))

    def _owned_arrays(self) -> tuple[NDArray[Any], NDArray[np.uint8], None]:
        values, indices = self.values, self.indices
        check_arrays(self, element_type(values.dtype), values.shape, indices.dtype, indices.shape)
        return _owned_rows(values), _owned(indices), None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements of the dense tensor along the sparse axis."""
        return self.shape[self.axis]

    @property
    def rows(self) -> int:
        """Rows along the sparse axis: the product of the other dimensions."""
        return prod((*self.shape[: self.axis], *self.shape[self.axis + 1 :]))

    @property
    def windows(self) -> Windows:
        """Windows of rows that share indices."""
        return Windows(self.shape, self.axis, self.pattern)

    @property
    def groups(self) -> int:
        """Groups of a row; the last one is filled with zeros."""
        return self.pattern.groups(self.size)

    @property
    def kept(self) -> int:
        """Stored values of a row: N for each group."""
        return self.groups * self.pattern.n

    @property
    def nbytes(self) -> int:
        """Bytes in memory of values with their row pitch, and of indices."""
        values = self.rows * row_pitch(self.kept, self.dtype)
        return values + self.windows.count * index_bytes(self.pattern, self.groups, self.windows.height)

    @property
    def T(self) -> SparseTensor:
        """The transpose of a matrix: [K, M] for [M, K], sparse along the other axis. It shares the values. Raises
        ValueError for a tensor of more than two dimensions.
        """
        if self.ndim > 2:
            raise ValueError(
                f"T is the transpose of a matrix, got shape {list(self.shape)}: mT transposes those of a batch"
            )
        return self.mT if self.ndim == 2 else self

    @property
    def mT(self) -> SparseTensor:
        """The tensor with its last two axes exchanged. It shares values and derived objects. Raises ValueError unless
        there are two axes and the sparse axis is one of the last two.
        """
        if self.axis < self.ndim - 2 or self.ndim < 2:
            raise ValueError(
                f"mT exchanges the last two axes, one of which is the sparse one, got shape {list(self.shape)}, axis "
                f"{self.axis}: compress the transposed dense array"
            )
        *batch, rows, columns = self.shape
        return self._view((*batch, columns, rows), 2 * self.ndim - 3 - self.axis)

    def _view(self, shape: tuple[int, ...], axis: int) -> SparseTensor:
        """The tensor with another order of its axes, and the same values and derived objects."""
        view = replace(self, shape=shape, axis=axis)
        with self.derived.lock:
            object.__setattr__(view, "values", self.values)
            object.__setattr__(view, "derived", self.derived)
            self.derived.views |= {self, view}
        return view

    def _first_view(self) -> SparseTensor:
        """One of the views that share the values, the same for all of them: copies and pickles of the others refer to
        it.
        """
        return min((self, *self.derived.views), key=id)

    def to(self, device: object) -> SparseTensor:
        """The tensor on another device, as a new tensor. The result is the tensor itself if it is already there.

        device: "cpu" or None for NumPy arrays; "cuda" (the current GPU), "cuda:1", an ordinal, or a `torch.device`.
        Arrays on a GPU are PyTorch's if it is imported, else Louver's, and complete at the return. Copies between GPUs
        go through the host. Raises TypeError or ValueError for an invalid device, NoDeviceError without a GPU.
        """
        if self.device is None and isinstance(device, str | None) and device in (None, "cpu"):
            return self
        return resident().moved(self, device)

    def update_(self, values: Any) -> SparseTensor:
        """Change the stored values in place and return the tensor. Pattern, shape and kept elements stay.

        values: [rows, kept] of the tensor's element type, a NumPy array or a PyTorch tensor on any device; for a tensor
            on a GPU also any other array there. They are copied, except for the tensor's own GPU array, which may be
            written first and then given.
        All objects derived from the tensor follow: transposed views, plans, and device copies. Copies keep their
        addresses, so a CUDA graph replays with the new values. The call waits for each device before and after its copy
        changes. Do not call it during a stream capture, or while another thread launches products of the tensor.
        Raises ValueError or TypeError for values of another type or shape; nothing changes then.
        """
        with self.derived.lock:
            if self.device is None:
                self._update_host(values)
            else:
                resident().update(self, values)
            set_fields(self, negative_zeros_dropped=0)
        return self

    def _update_host(self, values: ArrayLike) -> None:
        given, element = sparse_operand(values)
        check_new_type(self, element)
        new = replace(self, values=given, negative_zeros_dropped=0)
        if self.size % self.pattern.m:
            new.validate()
        before = self.values
        try:
            set_fields(self, values=new.values)
            self.derived.refresh(self)
        except BaseException:
            set_fields(self, values=before)
            raise

    def dense(self) -> Any:
        """The dense array with the compressed bits, except for the -0.0 counted: `shape`, `dtype`, C order. A NumPy
        array, or a PyTorch tensor if the tensor was made of one; for a tensor on a GPU an array there, of the values'
        library. Raises ValueError for illegal indices.
        """
        if self.device is not None:
            import louver

            return louver.streamed.dense(self)
        dense = self._host_dense()
        return of_host(dense) if self.library == "torch" else dense

    def _host_dense(self) -> NDArray[Any]:
        out = np.empty((self.rows, self.size), self.dtype.bits_dtype)
        values = self.values
        for block in self.windows.blocks():
            out[block.rows, block.columns] = self._expand(values, block)[:, : block.columns.stop - block.columns.start]
        return from_rows(out, self.shape, self.axis, self.dtype)

    def validate(self) -> None:
        """Raises ValueError unless every code is legal, only +0.0 is stored past the end of the sparse axis, and unused
        bits of values are 0. A tensor on a GPU is copied to the host first.
        """
        host = self.to("cpu")
        check_unused(host.values, self.dtype)
        for block in self.windows.blocks():
            outside = host._expand(host.values, block)[:, block.columns.stop - block.columns.start :].any(axis=1)
            if outside.any():
                raise ValueError(
                    f"only +0.0 may be stored past the end of the sparse axis, got another value in row "
                    f"{block.rows.start + int(np.argmax(outside))}: the values or the indices are corrupt"
                )

    def unpacked_indices(self) -> NDArray[np.int32]:
        """The index of each stored value in its group: int32 [windows, kept], for V:N:M [rows, kept]. Raises ValueError
        for illegal indices. For N:M@L `s.values.T` is NM-SpMM's B' [w, n], and `s.unpacked_indices().T` its D [w, q].
        """
        windows, indices = self.windows, self.to("cpu").indices
        kept = kept_elements(decode(indices, windows), windows.height)
        if len(self.pattern.levels) > 1:
            kept = kept.reshape(len(kept) * windows.height, 1, *kept.shape[2:])[windows.places()]
        return np.nonzero(kept)[-1].astype(np.int32).reshape(len(kept), self.kept)

    def _expand(self, values: NDArray[Any], block: Block) -> NDArray[Any]:
        """Raw bits [rows, groups * M] of a block of the dense rows."""
        count, windows, n = block.rows.stop - block.rows.start, block.inside, self.pattern.n
        columns, first = windows.groups * self.pattern.m, block.groups * n
        kept = kept_elements(decode_block(self.indices, block, self.windows), windows.height)
        full = np.zeros((count, columns), self.dtype.bits_dtype)
        of_rows = np.broadcast_to(kept, (len(kept), windows.height, *kept.shape[2:])).reshape(-1, columns)
        full[of_rows[:count]] = raw_bits(values)[block.rows, first : first + windows.groups * n].ravel()
        return full

    def __matmul__(self, b: Array) -> Array:
        # Imported here, because this room may not import the room of products.
        import louver

        return louver.linear(b, self) if getattr(b, "ndim", 2) == 1 else louver.matmul(self, b)

    def __rmatmul__(self, x: Array) -> Array:
        import louver

        return louver.matmul(x, self)

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        raise ValueError("a sparse tensor has no truth value: use s is None, len(s) or s.dense().any()")

    def __iter__(self) -> Iterator[NoReturn]:
        raise TypeError("a sparse tensor cannot be iterated over: use s.dense()")

    def __getitem__(self, index: object) -> NoReturn:
        raise TypeError(f"a sparse tensor cannot be indexed, got s[{index!r}]: use s.dense()[…]")

    def __array_function__(
        self, function: Any, types: object, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """NumPy's functions of the dense array; `numpy.dot` is the sparse product, as `@` is."""
        if function is np.dot:
            return _dot(*arguments, **options)
        return function(*_densified(arguments), **_densified(options))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("the dense array of a sparse tensor is a new one, got copy=False: leave it out")
        dense = self.to("cpu")._host_dense()
        return dense if dtype is None else dense.astype(dtype, copy=False)

    def __reduce__(self) -> tuple[Any, ...]:
        first = self._first_view()
        if first is not self:
            return _view_of, (first, self.shape, self.axis)
        host = self.to("cpu")
        parts = (self.pattern, self.dtype, self.shape, self.axis, host.values, host.indices)
        return type(self), (*parts, self.negative_zeros_dropped, self.library)

    def __copy__(self) -> SparseTensor:
        """A copy on the same device. `update_` of either, or `louver.sparsify` into it, leaves the other unchanged."""
        if self.device is None:
            return replace(self)
        pitches = row_pitch(self.kept, self.dtype), self.indices.shape[1]
        values, indices = map(resident().copied, (self.values, self.indices), pitches)
        return replace(self, values=values, indices=indices)

    def __deepcopy__(self, memo: dict[int, Any]) -> SparseTensor:
        """As `copy.copy`; transposed views that are copied together share their values again."""
        first = self._first_view()
        return self.__copy__() if first is self else copy.deepcopy(first, memo)._view(self.shape, self.axis)

    def __repr__(self) -> str:
        return f"SparseTensor({self.pattern} {self.dtype} {list(self.shape)}, axis {self.axis}, {memory_text(self)})"


def stored_elements(s: SparseTensor) -> NDArray[np.bool_]:
    """The elements that a tensor stores, the zeros that fill up a group included: bool, of the shape of `s`. Raises
    ValueError for illegal indices.
    """
    host = s.to("cpu")
    ones = replace(host, values=np.ones(host.values.shape, host.values.dtype))
    return raw_bits(np.asarray(ones)) != 0


def _dot(a: Any, b: Any, out: Any = None) -> Any:
    """`numpy.dot` with a sparse operand. Raises ValueError where it differs from `louver.matmul`."""
    import louver

    if isinstance(a, SparseTensor) and np.ndim(b) == 1:
        return louver.linear(b, a, out=out)
    if any(np.ndim(each) != 2 for each in (a, b) if isinstance(each, SparseTensor)) or (
        isinstance(a, SparseTensor) and np.ndim(b) != 2
    ):
        raise ValueError(
            f"numpy.dot with a sparse tensor takes matrices, got shapes {list(np.shape(a))} and {list(np.shape(b))}: use "
            "louver.matmul, whose leading axes are a batch"
        )
    return louver.matmul(a, b, out=out)


def _densified(x: Any) -> Any:
    """Arguments of a function of NumPy with dense arrays for sparse tensors, in lists and tuples too."""
    if isinstance(x, SparseTensor):
        return np.asarray(x)
    if isinstance(x, dict):
        return {name: _densified(each) for name, each in cast("dict[str, Any]", x).items()}
    if type(x) in (list, tuple):
        return type(x)(_densified(each) for each in cast("list[Any]", x))
    return x


def _view_of(s: SparseTensor, shape: tuple[int, ...], axis: int) -> SparseTensor:
    """A pickled view of `s`."""
    return s._view(shape, axis)  # pyright: ignore[reportPrivateUsage]


def set_fields(s: SparseTensor, **fields: Any) -> None:
    """Change fields of a tensor and of its views. Derived objects stay as they are."""
    with s.derived.lock:
        for view in {s, *s.derived.views}:
            for name, value in fields.items():
                object.__setattr__(view, name, value)


def row_pitch(kept: int, element: ElementType) -> int:
    """Bytes from a row of `kept` values to the next."""
    return -(-kept * element.bytes // ROW_ALIGNMENT) * ROW_ALIGNMENT


def empty_rows(rows: int, kept: int, element: ElementType) -> NDArray[Any]:
    """Zeros [rows, kept] with the row pitch of a `SparseTensor`."""
    whole = np.zeros((rows, row_pitch(kept, element) // element.bytes), element.bits_dtype)
    return whole.view(element.numpy)[:, :kept]


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view of an array without other owners. All arrays below the view become read-only too."""
    each: Any = array
    while isinstance(each, np.ndarray):
        each.flags.writeable = False
        each = each.base
    # Only an array that owns its memory could be made writable again.
    return array.view()


def _is_frozen(array: NDArray[Any]) -> bool:
    """Whether neither the array nor the arrays below it can be written."""
    each: Any = array
    while isinstance(each, np.ndarray):
        if each.flags.writeable:
            return False
        each = each.base
    # An owner other than NumPy could write the memory.
    return each is None


def _owned(array: NDArray[Any]) -> NDArray[Any]:
    return array if _is_frozen(array) and array.flags.c_contiguous else frozen(np.array(array, order="C"))


def _owned_rows(values: NDArray[Any]) -> NDArray[Any]:
    """The values [rows, kept] with their row pitch: the array itself if frozen, else a copy."""
    element = element_type(values.dtype)
    rows, kept = values.shape
    strides = (row_pitch(kept, element), element.bytes)
    if _is_frozen(values) and (values.strides == strides or not values.size):
        return values
    copy = empty_rows(rows, kept, element)
    raw_bits(copy)[:] = raw_bits(values)
    return frozen(copy)


def check_arrays(
    s: SparseTensor,
    values: ElementType,
    values_shape: tuple[int, ...],
    indices: DTypeLike,
    indices_shape: tuple[int, ...],
) -> None:
    """Raises ValueError unless arrays of these types and shapes fit `s`."""
    if values.numpy != s.dtype.numpy:
        raise ValueError(f"values of {s.dtype} are {s.dtype.numpy}, got {values.numpy}")
    if values_shape != (s.rows, s.kept):
        raise ValueError(
            f"{s.pattern} of shape {s.shape} along axis {s.axis} keeps values of shape {(s.rows, s.kept)}, got {values_shape}"
        )
    expected = (s.windows.count, index_bytes(s.pattern, s.groups, s.windows.height))
    if indices != np.uint8 or indices_shape != expected:
        raise ValueError(f"indices are uint8 of shape {expected}, got {indices} of shape {indices_shape}")


def check_new_type(s: SparseTensor, values: ElementType) -> None:
    """Raises ValueError unless new values have the element type of `s`."""
    if values != s.dtype and values.numpy != s.dtype.numpy:
        raise ValueError(f"values must be of the tensor's type, {s.dtype}, got {values}: convert them first")


def memory_text(s: SparseTensor) -> str:
    """The bytes of a tensor and its device, as text."""
    return f"{s.nbytes:,} bytes" + ("" if s.device is None else f" on cuda:{s.device}")


def resident() -> Any:
    """The module for arrays on GPUs. Imported through the package, because this room may not import it."""
    import louver

    return louver.resident


def _check_types(s: SparseTensor) -> None:
    """Raises TypeError for fields of a wrong type."""
    dtype, shape = cast("object", s.dtype), cast("object", s.shape)
    if not isinstance(dtype, ElementType):
        raise TypeError(f"dtype is an ElementType, got {dtype!r}: use louver.formats.dtypes.element_type(…)")
    for name, array in (("values", s.values), ("indices", s.indices)):
        if isinstance(array, np.ma.MaskedArray):
            raise TypeError(f"{name} are an array without a mask, got MaskedArray: call filled(…)")
    if not isinstance(shape, tuple):
        raise TypeError(f"shape is a tuple of integers, got {shape!r}")
    for number in (*s.shape, s.axis, s.negative_zeros_dropped):
        if type(number) is not int:
            raise TypeError(f"shape, axis and negative_zeros_dropped are Python integers, got {number!r}")
