"""Launches of streaming kernels on arrays of a device.

Each function checks its arguments, chooses the kernel by types, strides and alignment, and returns a `Launch`. Nothing
is read or written before `send`. Errors are ValueErrors that name the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING, Any, Literal

from louver.formats.codes import index_bytes
from louver.formats.dtypes import SPARSE_TYPES, ElementType, element_type
from louver.formats.pattern import Pattern
from louver.formats.prune import check_method, check_transposable
from louver.formats.rows import normal_axis
from louver.formats.select import PATTERN as TRANSPOSABLE
from louver.formats.select import Norm
from louver.formats.tensor import ROW_ALIGNMENT
from louver.isa.fragments import ROWS
from louver.library.streaming.launch import Launch
from louver.library.streaming.matrices import Shape, Steps, access, matrices
from louver.library.streaming.record import (
    VECTOR_BYTES,
    WHOLE_INDICES,
    Access,
    Activation,
    Kind,
    Layout,
    ScaledRows,
    Scaling,
    Streaming,
    Tiling,
    fits_thread,
)
from louver.library.streaming.squares.record import Squared
from louver.library.streaming.windows.record import WORD_BYTES, Windowed
from louver.runtime.arrays import ArrayView, overlaps

if TYPE_CHECKING:
    from louver.library.streaming.place import Record

COUNTER_BYTES = 16
"""Bytes of the counters of all kinds except `check`: two numbers of 64 bits."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The places of a sparse tensor's values and indices on a device. The rows of all entries follow each other.

    values: address of the values [rows, kept].
    pitch: bytes from one row of values to the next.
    indices: address of the indices [windows, index bytes], without gaps.
    """

    values: int
    pitch: int
    indices: int


# --- kinds -------------------------------------------------------------------------------------------------------------
def prune_into(
    source: ArrayView,
    out: ArrayView,
    pattern: str | Pattern,
    *,
    axis: int = -1,
    method: Literal["magnitude"] = "magnitude",
    norm: Norm = "l2",
    transposable: bool = False,
) -> Launch:
    """`louver.prune` of a device array into another array of the same shape and type. The arrays must not overlap."""
    check_method(method, norm)
    if transposable:
        ndim = len(source.shape)
        check_transposable(Pattern.parse(pattern), ndim, normal_axis(axis, ndim))
        axis = -1
    # A block of a transposable mask must not cross a matrix. Rows may be divided in any way.
    call = _Call.of(pattern, axis, source, out, batch=transposable)
    _check_out(source, out)
    if transposable:
        return call.squared("prune", {}, {"source": source, "out": out})
    return call.launch("prune", source=source, out=out, method=method, norm=norm)


def check_into(
    source: ArrayView,
    pattern: str | Pattern,
    counters: int,
    *,
    axis: int = -1,
    exact: bool = False,
    listed_from: int = 0,
) -> Launch:
    """Count the groups of a device array by their non-zeros, for `louver.check`.

    counters: address of 3 + M numbers of 64 bits, set to 0; see `louver.library.streaming.record.COUNTERS`.
    listed_from: number of the first group that may be listed.
    """
    call = _Call.of(pattern, axis, source)
    return call.launch("check", {"counters": counters, "listed_from": listed_from}, source=source, exact=exact)


def compress_into(
    source: ArrayView,
    to: Stored,
    pattern: str | Pattern,
    *,
    axis: int = -1,
    method: Literal["magnitude"] | None = None,
    words: tuple[Layout, int] | None = None,
    counters: int = 0,
) -> Launch:
    """`louver.compress` of a device array into the arrays of a sparse tensor, in one pass.

    words: layout and address of metadata that the kernel also writes. Each matrix of the last two axes has separate,
        padded metadata.
    counters: address of two numbers of 64 bits, set to 0. The first becomes non-zero if a group has more than N
        non-zeros. The second becomes the number of -0.0 without a slot. Not needed with a method, which prunes in the
        same pass.
    """
    call = _Call.of(pattern, axis, source, batch=words is not None)
    if method is not None:
        check_method(method)
    elif not counters:
        raise ValueError(
            "compressing without a method needs counters, since the array may not keep the pattern, got none"
        )
    arguments = call.stored(to, source) | ({"counters": counters} if method is None else {})
    layout = None
    if words is not None:
        layout, arguments["words"] = words
    return call.launch("compress", arguments, source=source, method=method, words=layout)


def sparsify_into(
    source: ArrayView,
    to: Stored,
    stored: ElementType,
    *,
    activation: Activation | None = None,
    scale: tuple[Scaling, int] | None = None,
    words: int = 0,
) -> Launch:
    """`louver.sparsify` of a device array [..., K] into the arrays of a 2:4 tensor, in one pass.

    stored: the type of the values.
    scale: of values that are narrower than the elements: "number" and its bits as f32, "array" and the address of an
        f32, or "rows" and the address of one f32 for each row, which the kernel writes.
    words: address of the metadata that the kernel also writes, see `compress_into`; 0 for none.
    """
    call = replace(_Call.of("2:4", -1, source, batch=True), values=stored)
    arguments = call.stored(to, source) | ({"words": words} if words else {})
    if scale is not None:
        arguments["scale"] = scale[1]
    return call.sparsify(source, arguments, activation, scale and scale[0])


def compress_both_into(source: ArrayView, along: Stored, across: Stored) -> Launch:
    """`louver.compress_both` of a device array [..., M, K] into the arrays of two sparse tensors, in one pass."""
    call = _Call.of(TRANSPOSABLE, -1, source, batch=True)
    check_transposable(TRANSPOSABLE, len(source.shape), call.axis)
    shape = call.shape
    turned = _Call(call.element, TRANSPOSABLE, -1, Shape(shape.entries, shape.size, shape.rows), ())
    arguments, others = call.stored(along, source), turned.stored(across, source)
    arguments |= {f"turned_{name}": address for name, address in others.items()}
    indices = gcd(index_bytes(TRANSPOSABLE, TRANSPOSABLE.groups(shape.rows)), across.indices, 4)
    return call.squared("compress", arguments, {"source": source}, indices)


def dense_into(stored: Stored, out: ArrayView, pattern: str | Pattern, counters: int, *, axis: int = -1) -> Launch:
    """`SparseTensor.dense` into a device array.

    counters: address of two numbers of 64 bits, set to 0. The first becomes non-zero if an index is illegal.
    """
    call = _Call.of(pattern, axis, out)
    _check_written(out)
    return call.launch("dense", call.stored(stored, out) | {"counters": counters}, out=out)


def take_into(source: ArrayView, to: Stored, pattern: str | Pattern, *, axis: int = -1) -> Launch:
    """The elements of a device array at the places of given indices, as values. Only the values of `to` are written."""
    call = _Call.of(pattern, axis, source)
    return call.launch("take", call.stored(to, source), source=source)


def turn_into(stored: Stored, shape: tuple[int, int], element: str | ElementType, turned: Stored) -> Launch:
    """The values of the transpose of a sparse matrix [rows, size] whose mask is transposable.

    turned: the transpose, of which only values are written. Its indices are those of the transposed mask; where that
    leaves slots free, of the lowest places.
    """
    call = _Call(element_type(element), TRANSPOSABLE, -1, Shape(1, *shape), ())
    arguments = {"values": stored.values, "pitch": stored.pitch, "indices": stored.indices}
    arguments |= {"turned_values": turned.values, "turned_pitch": turned.pitch}
    return call.squared("turn", arguments, {})


def prepack_into(
    indices: int, shape: tuple[int, int, int], element: str | ElementType, words: tuple[Layout, int], counters: int = 0
) -> Launch:
    """Make the metadata of a sparse tensor for products of an element type. f32 stands for tf32.

    indices: address of the tensor's indices.
    shape: number of matrices, rows of each, dense elements of a row.
    words: layout and address of the metadata.
    counters: see `dense_into`; 0 if all indices are legal.
    """
    kind = element_type(element)
    group = 2 if kind.bits == 32 else 4
    element_type(kind.name, SPARSE_TYPES)
    layout, address = words
    call = _Call(kind, Pattern(group // 2, group), -1, Shape(*shape), ())
    arguments = {"indices": indices, "words": address} | ({"counters": counters} if counters else {})
    return call.launch("prepack", arguments, words=layout, trusted=not counters)


# --- common parts ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Call:
    """The matrices of a call. steps: the steps of each dense array. values: the type of stored values, by default that
    of the dense arrays.
    """

    element: ElementType
    pattern: Pattern
    axis: int
    shape: Shape
    steps: Sequence[Steps]
    values: ElementType | None = None

    @classmethod
    def of(cls, pattern: str | Pattern, axis: int, *views: ArrayView, batch: bool = False) -> _Call:
        kept, view = Pattern.parse(pattern), views[0]
        element = element_type(view.element, SPARSE_TYPES)
        for each in views:
            if each.device is None:
                raise ValueError(
                    "streaming kernels take arrays of a device, got one in host memory: use louver's functions"
                )
            if (each.shape, each.element.numpy, each.device) != (view.shape, element.numpy, view.device):
                raise ValueError(
                    f"both arrays are of one shape, type and device, got {element} {list(view.shape)} on cuda:{view.device} and "
                    f"{each.element} {list(each.shape)} on cuda:{each.device}"
                )
        if not view.shape:
            raise ValueError("a sparse tensor has at least one dimension, got a scalar: give an array")
        number = normal_axis(axis, len(view.shape))
        # A window must not cross a matrix either.
        shape, steps = matrices(views, number, batch=batch or kept.length > 1)
        return cls(element, kept, number, shape, steps)

    def stored(self, to: Stored, dense: ArrayView) -> dict[str, int]:
        """Arguments for the arrays of a sparse tensor. Raises ValueError if they overlap the dense array."""
        needed = self.pattern.groups(self.shape.size) * self.pattern.n * (self.values or self.element).bytes
        if to.values % ROW_ALIGNMENT or to.pitch % ROW_ALIGNMENT:
            raise ValueError(
                f"values and their pitch are multiples of {ROW_ALIGNMENT} bytes, got {to.values:#x} and {to.pitch}: use row_pitch()"
            )
        if to.pitch < needed:
            raise ValueError(f"a row of values takes {needed} bytes, got a pitch of {to.pitch}: widen it")
        first, last = dense.byte_range
        rows, lists = self.shape.entries * self.shape.rows, self.shape.entries * self._windows
        per_list = index_bytes(self.pattern, self.pattern.groups(self.shape.size))
        for begin, nbytes in ((to.values, rows * to.pitch), (to.indices, lists * per_list)):
            if begin < last and first < begin + nbytes:
                raise ValueError(
                    "the arrays of the sparse tensor and the dense array overlap: give them memory of their own"
                )
        return {"values": to.values, "pitch": to.pitch, "indices": to.indices}

    @property
    def _windows(self) -> int:
        """The number of lists of indices of an entry."""
        return -(-self.shape.rows // self.pattern.length)

    def launch(
        self,
        kind: Kind,
        arguments: dict[str, int] | None = None,
        *,
        source: ArrayView | None = None,
        out: ArrayView | None = None,
        method: Literal["magnitude"] | None = None,
        norm: Norm = "l2",
        words: Layout | None = None,
        exact: bool = False,
        trusted: bool = False,
    ) -> Launch:
        """The launch of a kernel of this kind."""
        given = dict(arguments or {})
        if self.shape.empty:
            return Launch(None)
        views = {name: view for name, view in (("source", source), ("out", out)) if view is not None}
        if fits_thread(self.pattern):
            tiling = Tiling(self.element.name, self.pattern)
            accesses = self._accesses(views, along=4 * tiling.span_words, down=tiling.turned_bytes)
            together = kind == "compress" and words is not None
            indices = self._index_width(tiling, given.get("indices", 0), together=together)
            record = Streaming(
                tiling.element,
                tiling.pattern,
                kind,
                method,
                source=accesses.get("source"),
                out=accesses.get("out"),
                indices=indices,
                words=words,
                exact=exact,
                trusted=trusted,
            )
        else:
            record = self._windowed(kind, views, None if method is None else norm, words, exact)
        return self.tiled(record, given | self.places(views))

    def sparsify(
        self, source: ArrayView, arguments: dict[str, int], activation: Activation | None, scaling: Scaling | None
    ) -> Launch:
        """The launch of a kernel that compresses and converts."""
        assert self.values is not None
        if self.shape.empty:
            return Launch(None)
        tiling = Tiling(self.element.name, self.pattern, stored=self.values.name)
        made: Callable[..., Streaming] = Streaming
        own: dict[str, Any] = {}
        rows, down = self.shape.rows, tiling.turned_bytes
        if scaling == "rows":
            made, down = ScaledRows, 0
            own["row_threads"] = ScaledRows.threads_for(-(-self.shape.size // tiling.span))
            # Metadata has whole blocks of rows.
            rows = -(-rows // ROWS) * ROWS if "words" in arguments else rows
        views = {"source": source}
        record = made(
            tiling.element,
            tiling.pattern,
            "compress",
            "magnitude",
            source=self._accesses(views, along=4 * tiling.span_words, down=down)["source"],
            indices=self._index_width(
                tiling, arguments["indices"], together="words" in arguments and scaling != "rows"
            ),
            words="words" if "words" in arguments else None,
            activation=activation,
            scaling=scaling,
            stored=tiling.stored,
            **own,
        )
        return self.tiled(record, arguments | self.places(views), rows)

    def squared(
        self,
        kind: Literal["prune", "compress", "turn"],
        arguments: dict[str, int],
        views: dict[str, ArrayView],
        indices: int = 1,
    ) -> Launch:
        """The launch of a kernel of transposable masks."""
        if self.shape.empty:
            return Launch(None)
        accesses = self._accesses(views, along=min(VECTOR_BYTES, 8 * self.element.bytes), down=0)
        record = Squared(self.element.name, kind, **accesses, indices=indices)
        return self.tiled(record, arguments | self.places(views))

    def places(self, views: dict[str, ArrayView]) -> dict[str, int]:
        """Arguments for dense arrays."""
        found: dict[str, int] = {}
        for (name, view), steps in zip(views.items(), self.steps, strict=False):
            row, column, entry = (step * view.element.bytes for step in steps)
            found |= {name: view.address, f"{name}_row": row, f"{name}_column": column, f"{name}_entry": entry}
        return found

    def tiled(self, record: Record, arguments: dict[str, int], padded: int = 0) -> Launch:
        """The launch of a kernel on all tiles. padded: rows of an entry for which the kernel writes something; 0 for the
        rows of the shape.
        """
        shape, (rows, columns) = self.shape, record.tile
        below = -(-(padded or shape.rows) // rows)
        across = 1 if isinstance(record, ScaledRows) else -(-shape.size // columns)
        sizes = {"rows": shape.rows, "size": shape.size, "row_tiles": below, "tiles": below * shape.entries}
        return Launch(record, arguments | sizes, (across, below * shape.entries))

    def _accesses(self, views: dict[str, ArrayView], *, along: int, down: int) -> dict[str, Access]:
        return {
            name: access(view, self.shape, steps, along=along, down=down)
            for (name, view), steps in zip(views.items(), self.steps, strict=False)
        }

    def _windowed(
        self, kind: Kind, views: dict[str, ArrayView], norm: Norm | None, words: Layout | None, exact: bool
    ) -> Windowed:
        if kind == "prepack" or words is not None:
            raise ValueError(f"products of {self.element} take no {self.pattern}, so it has no metadata")
        length, size = self.pattern.length, self.element.bytes
        accesses = self._accesses(views, along=WORD_BYTES, down=length * size)
        if any(each.columns for each in accesses.values()):
            accesses = {name: each if each.columns else Access(size) for name, each in accesses.items()}
        else:
            accesses = dict.fromkeys(accesses, min(accesses.values(), key=lambda each: each.width))
        # Single elements are compared by magnitude, because a square can overflow or underflow.
        return Windowed(
            self.element.name, self.pattern, kind, "l1" if norm and length == 1 else norm, **accesses, exact=exact
        )

    def _index_width(self, tiling: Tiling, address: int, *, together: bool = False) -> int:
        """Bytes of an access of indices: the most that their address, a row and a span allow.

        together: whether the threads of a row may write their indices together.
        """
        aligned = gcd(index_bytes(self.pattern, self.pattern.groups(self.shape.size)), address)
        if together and aligned % (WHOLE_INDICES // tiling.spans) == 0:
            return WHOLE_INDICES
        return gcd(tiling.index_bytes, aligned, 4)


def _check_out(source: ArrayView, out: ArrayView) -> None:
    _check_written(out)
    if overlaps(source, out):
        raise ValueError("source and output overlap: prune into an array of its own")


def _check_written(out: ArrayView) -> None:
    if not out.writable:
        raise ValueError("the output cannot be written: it is read-only, or its elements overlap: give another array")
