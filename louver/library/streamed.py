"""`louver.prune`, `check`, `compress` and `dense` for arrays on a GPU. `louver.formats` reaches this module through the
package name.

Kernels run on the current stream of the array's library. Results belong to that library, and are on the same device. A
function waits for the device only if it needs a count, to return it or to raise an error.
"""

from __future__ import annotations

from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import louver
from louver.formats.check import CheckReport, Group, too_many
from louver.formats.codes import index_bytes
from louver.formats.dtypes import SPARSE_TYPES, ElementType, element_type
from louver.formats.pattern import Pattern, has_kernels
from louver.formats.prune import check_method
from louver.formats.rows import Windows, normal_axis
from louver.formats.select import PATTERN as TRANSPOSABLE
from louver.formats.select import Norm
from louver.formats.tensor import SparseTensor, row_pitch
from louver.formats.torch_tensors import data_of
from louver.isa.metadata import prepacked_shape
from louver.library.forms import Metadata
from louver.library.resident import pitch_of
from louver.library.state import TensorState
from louver.library.streaming.launch import Launch
from louver.library.streaming.launches import (
    COUNTER_BYTES,
    Stored,
    check_into,
    compress_both_into,
    compress_into,
    dense_into,
    prune_into,
)
from louver.library.streaming.record import COUNTERS, KEY_BITS, NO_GROUP
from louver.runtime.adapters import empty_rows
from louver.runtime.arrays import ArrayView, empty_like_kind, view
from louver.runtime.driver import is_capturing
from louver.runtime.memory import DeviceBuffer, write_bytes


def prune(
    w: Any, pattern: str | Pattern, *, axis: int, method: Literal["magnitude"], norm: Norm, transposable: bool
) -> Any:
    """See `louver.prune`."""
    source = _seen(w)
    check_method(method, norm)
    if _by_host(source, Pattern.parse(pattern)):
        host = louver.prune(source.to_numpy(), pattern, axis=axis, method=method, norm=norm, transposable=transposable)
        return _moved(host, source)
    out = empty_like_kind(source, source.shape, source.element)
    launch = prune_into(source, view(out), pattern, axis=axis, method=method, norm=norm, transposable=transposable)
    _send(launch, source)
    return out


def check(w: Any, pattern: str | Pattern, *, axis: int, exact: bool, listed: int) -> CheckReport:
    """See `louver.check`."""
    source, pattern = _seen(w), Pattern.parse(pattern)
    if _by_host(source, pattern):
        return louver.check(source.to_numpy(), pattern, axis=axis, exact=exact, listed=listed)
    found = _check(source, pattern, axis, exact=exact)
    axis = normal_axis(axis, len(source.shape))
    windows = Windows(source.shape, axis, pattern)
    groups = windows.count * windows.groups
    counts = [int(count) for count in found[len(COUNTERS) :]]
    histogram = (groups - sum(counts), *counts)
    allowed = range(pattern.n if exact else 0, pattern.n + 1)
    offending = sum(count for nonzeros, count in enumerate(histogram) if nonzeros not in allowed)
    first: list[Group] = []
    start = found
    # Each pass over the array finds one group that breaks the rule.
    while len(first) < min(listed, offending):
        number, nonzeros = _listed(start)
        first.append(Group(windows.start(number), nonzeros))
        if len(first) < min(listed, offending):
            start = _check(source, pattern, axis, exact=exact, listed_from=number + 1)
    lost = int(found[COUNTERS.index("lost")])
    return CheckReport(pattern, exact, groups, offending, tuple(first), histogram, lost)


def compress(w: Any, pattern: str | Pattern, *, axis: int, method: Literal["magnitude"] | None) -> SparseTensor:
    """See `louver.compress`."""
    source, pattern = _seen(w), Pattern.parse(pattern)
    if _by_host(source, pattern):
        return louver.compress(source.to_numpy(), pattern, axis=axis, method=method).to(source.device)
    axis = normal_axis(axis, len(source.shape))
    values, indices, to = empty_parts(source, pattern, axis)
    counters = _Counters(source) if method is None else None
    metadata = _room_for_metadata(source, pattern, axis)
    launch = compress_into(
        source,
        to,
        pattern,
        axis=axis,
        method=method,
        words=("words", metadata.address) if metadata else None,
        counters=counters.buffer.address if counters else 0,
    )
    _send(launch, source)
    broken, lost = counters.read() if counters else (0, 0)
    if broken:
        number, nonzeros = _listed(_check(source, pattern, axis))
        raise too_many(Windows(source.shape, axis, pattern), number, nonzeros)
    s = SparseTensor(pattern, source.element, source.shape, axis, values, indices, int(lost))
    # During a capture the kernel has not run, so the metadata is not written yet.
    if metadata and not is_capturing(source.stream or 0):
        s.derived.of(TensorState).offer(Metadata(), metadata)
    return s


def compress_both(w: Any) -> tuple[SparseTensor, SparseTensor]:
    """See `louver.compress_both`."""
    source = _seen(w)
    ndim = len(source.shape)
    made = [(axis, *empty_parts(source, TRANSPOSABLE, axis)) for axis in (ndim - 1, ndim - 2)] if ndim > 1 else []
    along, across = [to for *_, to in made] or [Stored(0, 0, 0)] * 2
    _send(compress_both_into(source, along, across), source)
    first, second = (
        SparseTensor(TRANSPOSABLE, source.element, source.shape, axis, values, indices)
        for axis, values, indices, _ in made
    )
    return first, second


def dense(s: SparseTensor) -> Any:
    """See `SparseTensor.dense`."""
    values, indices = view(s.values), view(s.indices)
    if _by_host(values, s.pattern):
        return _moved(np.asarray(s), values)
    out = empty_like_kind(values, s.shape, s.dtype)
    counters = _Counters(values)
    stored = Stored(values.address, pitch_of(values), indices.address)
    _send(dense_into(stored, view(out), s.pattern, counters.buffer.address, axis=s.axis), values)
    # If an index is illegal, the host raises an error that names the index.
    return _moved(np.asarray(s), values) if counters.read()[0] else out


class _Counters:
    """Counters on a device, set to 0 in the order of an array's stream. A kernel adds to them."""

    def __init__(self, like: ArrayView, nbytes: int = COUNTER_BYTES) -> None:
        _check_waits(like)
        self.buffer = DeviceBuffer(nbytes, ordinal=like.device or 0, stream=like.stream or 0)
        self.buffer.fill(0)

    def read(self) -> NDArray[np.uint64]:
        """The counts. Waits for the kernel."""
        return self.buffer.read().view(np.uint64)


def _seen(w: Any) -> ArrayView:
    found = view(data_of(w))
    if not found.shape:
        raise ValueError("a sparse tensor has at least one dimension, got a scalar: give an array")
    element_type(found.element, SPARSE_TYPES)
    return found


def _by_host(like: ArrayView, pattern: Pattern) -> bool:
    """Whether the host does the work, as it does for V:N:M, pairs and narrow floats. Raises as `_check_waits`."""
    by_host = len(pattern.levels) > 1 or not has_kernels("prune and compress", str(pattern), like.element.name)
    if by_host:
        _check_waits(like)
    return by_host


def _check_waits(like: ArrayView) -> None:
    """Raises RuntimeError if the stream of an array is being captured, so that a call cannot wait for it."""
    if is_capturing(like.stream or 0):
        raise RuntimeError(
            'this call waits for its result, and its stream is being captured: make it before the capture; compress with method="magnitude" '
            "does not wait"
        )


def _room_for_metadata(source: ArrayView, pattern: Pattern, axis: int) -> ArrayView | None:
    """An array for the metadata that most schedules read; the compressing kernel writes it. None if no product takes
    such a tensor.
    """
    shape, others = source.shape, [size for i, size in enumerate(source.shape) if i != axis]
    # More dimensions can need more strides than the kernel has parameters for.
    matrices = len(shape) in (2, 3) and axis >= len(shape) - 2 and 0 not in shape
    if str(pattern) != "2:4" or source.element.bits > 16 or not matrices:
        return None
    nbytes = 4 * prod(others[:-1]) * prod(prepacked_shape(others[-1], shape[axis], source.element))
    return view(empty_like_kind(source, (nbytes,), _BYTE))


def _moved(array: NDArray[Any], like: ArrayView) -> Any:
    """A copy of a host array, on the device and of the library of the array `like`."""
    made = empty_like_kind(like, array.shape, element_type(array.dtype))
    write_bytes(view(made).address, array, ordinal=like.device or 0, stream=like.stream or 0)
    return made


def _send(launch: Launch, like: ArrayView) -> None:
    launch.send(like.device or 0, like.stream or 0)


def _check(
    source: ArrayView, pattern: Pattern, axis: int, *, exact: bool = False, listed_from: int = 0
) -> NDArray[np.uint64]:
    counters = _Counters(source, 8 * (len(COUNTERS) + pattern.m))
    to = counters.buffer.address
    _send(check_into(source, pattern, to, axis=axis, exact=exact, listed_from=listed_from), source)
    return counters.read()


def _listed(counters: NDArray[np.uint64]) -> tuple[int, int]:
    """The number of the listed group, and the number of its non-zeros."""
    key = NO_GROUP - int(counters[COUNTERS.index("listed")])
    return key >> KEY_BITS, key & (1 << KEY_BITS) - 1


def empty_parts(
    source: ArrayView, pattern: Pattern, axis: int, stored: ElementType | None = None
) -> tuple[Any, Any, Stored]:
    """New values and indices for a sparse tensor, with undefined contents, and their places in memory.

    stored: the element type of the values, by default that of `source`.
    """
    element = stored or source.element
    windows = Windows(source.shape, axis, pattern)
    groups, rows = windows.groups, windows.rows
    pitch = row_pitch(groups * pattern.n, element)
    place = source.device or 0, source.stream or 0
    values = empty_rows(source.kind, (rows, groups * pattern.n), element, pitch, *place)
    indices = empty_like_kind(source, (windows.count, index_bytes(pattern, groups)), _BYTE)
    return values, indices, Stored(view(values).address, pitch, view(indices).address)


def empty_sparse(source: ArrayView, pattern: Pattern, axis: int) -> tuple[SparseTensor, Stored]:
    """A sparse tensor for a device array's shape and element type, with undefined contents, and its places in memory.
    axis: not negative.
    """
    values, indices, to = empty_parts(source, pattern, axis)
    return SparseTensor(pattern, source.element, source.shape, axis, values, indices), to


_BYTE: ElementType = element_type("u8")
