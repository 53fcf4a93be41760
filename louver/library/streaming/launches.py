"""Launches of streaming kernels on arrays of a device: checked, and then sent.

Each function checks what it is given, chooses the kernel by types, strides and alignment, and gives a `Launch`. Nothing is read or
written before `send`. Errors are ValueErrors with the rule.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import TYPE_CHECKING, Any, Literal

from louver.formats.codes import index_bytes
from louver.formats.dtypes import SPARSE_TYPES, ElementType, element_type
from louver.formats.pattern import Pattern
from louver.formats.prune import check_method, check_transposable
from louver.formats.rows import normal_axis
from louver.formats.tensor import ROW_ALIGNMENT
from louver.formats.transposable import PATTERN as TRANSPOSABLE
from louver.library.streaming.matrices import Shape, Steps, access, matrices
from louver.library.streaming.record import Layout, Streaming, Tiling
from louver.runtime.arrays import ArrayView, overlaps
from louver.runtime.built import load_built
from louver.runtime.driver import is_capturing
from louver.runtime.module import ArgumentPack, LoadedKernel

if TYPE_CHECKING:
    from louver.ptx.module import Kernel

COUNTER_BYTES = 16
"""Of the counters of all kinds but `check`: two numbers of 64 bits."""

MOST_CTAS = 65_535
"""Of a grid along y."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The place of a sparse tensor's natural arrays on a device, all entries' rows one after the other.

    values: address of [rows, kept]. pitch: bytes from a row to the next. indices: address of [rows, index bytes], without gaps.
    """

    values: int
    pitch: int
    indices: int

    def ranges(self, tiling: Tiling, rows: int, size: int) -> list[tuple[int, int]]:
        """First and last byte, plus one, of both arrays."""
        per_row = index_bytes(tiling.pattern, tiling.pattern.groups(size))
        return [(self.values, self.values + rows * self.pitch), (self.indices, self.indices + rows * per_row)]


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel and its arguments.

    record: None where there is nothing to do. arguments: by parameter. tiles: side by side, and below each other.
    """

    record: Streaming | None
    arguments: dict[str, int] = field(default_factory=dict[str, int])
    tiles: tuple[int, int] = (0, 0)

    def send(self, ordinal: int = 0, stream: int = 0) -> None:
        """Send it to a stream of a device, and return without waiting.

        Raises RuntimeError for a kernel that is not loaded yet while the stream is being captured.
        """
        if self.record is None:
            return
        kernel = _ready().get((ordinal, self.record))
        if kernel is None:
            if is_capturing(stream):
                raise RuntimeError(
                    f"the kernel for {self.record.kind} of these arrays must be loaded before its stream is captured: make the same "
                    "call once before the capture"
                )
            kernel = _loaded(ordinal, self.record)
            _ready()[ordinal, self.record] = kernel
        types = _parameter_types(self.record)
        pack = ArgumentPack([types[name] for name in types])
        pack.bind(*(self.arguments[name] for name in types))
        kernel.launch(self.grid(kernel.device.sm_count), pack, stream)

    def grid(self, sms: int) -> tuple[int, int, int]:
        """CTAs along x, y and z, on a device with so many SMs."""
        assert self.record is not None
        across, below = self.tiles
        return across, min(below, max(1, self.record.ctas_per_sm * sms // across), MOST_CTAS), 1


def build(record: Streaming) -> Kernel:
    """The kernel of a record. It runs on the emulator too."""
    from louver.library.streaming.kernel import build

    return build(record)


def _loaded(ordinal: int, record: Streaming) -> LoadedKernel:
    return load_built(ordinal, "streaming", record, build=lambda: build(record))


@functools.cache
def _ready() -> dict[tuple[int, Streaming], LoadedKernel]:
    return {}


@functools.cache
def _parameter_types(record: Streaming) -> dict[str, Any]:
    from louver.library.streaming.frame import parameters

    return {param.name: param.type for param in parameters(record)}


# --- kinds -------------------------------------------------------------------------------------------------------------
def prune_into(
    source: ArrayView,
    out: ArrayView,
    pattern: str | Pattern,
    *,
    axis: int = -1,
    method: Literal["magnitude"] = "magnitude",
    transposable: bool = False,
) -> Launch:
    """`louver.prune` of a device array into another of the same shape and type; they must not overlap."""
    check_method(method)
    if transposable:
        ndim = len(source.shape)
        check_transposable(Pattern.parse(pattern), ndim, normal_axis(axis, ndim))
        axis = -1
    # Blocks lie in one matrix, rows in any.
    call = _Call.of(pattern, axis, source, out, batch=transposable)
    _check_out(source, out)
    return call.launch("prune", source=source, out=out, method=method, transposable=transposable)


def check_into(
    source: ArrayView,
    pattern: str | Pattern,
    counters: int,
    *,
    axis: int = -1,
    exact: bool = False,
    listed_from: int = 0,
) -> Launch:
    """Count the groups of a device array by their non-zeros, as `louver.check` does.

    counters: address of 3 + M zeros in 64 bits, see `louver.library.streaming.record.COUNTERS`.
    listed_from: the number of the first group that may be listed.
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

    words: layout and address of metadata that is written too; each matrix of the last two axes has its own, and padding.
    counters: address of two zeros in 64 bits, which become other than 0 where groups have more than N non-zeros, and how many
    -0.0 found no slot. An array that is pruned on the way, by a method, needs none.
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


def compress_both_into(source: ArrayView, along: Stored, across: Stored) -> Launch:
    """`louver.compress_both` of a device array [..., M, K] into the arrays of two sparse tensors, in one pass."""
    call = _Call.of(TRANSPOSABLE, -1, source, batch=True)
    check_transposable(TRANSPOSABLE, len(source.shape), call.axis)
    shape = call.shape
    turned = _Call(call.tiling, -1, Shape(shape.entries, shape.size, shape.rows), ())
    arguments = call.stored(along, source)
    others = turned.stored(across, source)
    for name in ("values", "pitch", "indices"):
        arguments[f"turned_{name}"] = others[name]
    return call.launch("compress", arguments, source=source, method="magnitude", transposable=True)


def dense_into(stored: Stored, out: ArrayView, pattern: str | Pattern, counters: int, *, axis: int = -1) -> Launch:
    """The dense array of a sparse tensor, `SparseTensor.dense`, into a device array.

    counters: address of two zeros in 64 bits, of which the first becomes another where indices are illegal.
    """
    call = _Call.of(pattern, axis, out)
    _check_written(out)
    return call.launch("dense", call.stored(stored, out) | {"counters": counters}, out=out)


def prepack_into(
    indices: int, shape: tuple[int, int, int], element: str | ElementType, words: tuple[Layout, int], counters: int
) -> Launch:
    """The metadata of a sparse tensor for products of an element type.

    indices: address of natural indices. shape: matrices, rows of each, dense elements of a row. words, counters: as `compress_into`
    and `dense_into` have them; f32 is read as tf32.
    """
    kind = element_type(element)
    group = 2 if kind.bits == 32 else 4
    tiling = Tiling(kind.name, Pattern(group // 2, group))
    layout, address = words
    call = _Call(tiling, -1, Shape(*shape), ())
    arguments = {"indices": indices, "words": address, "counters": counters}
    return call.launch("prepack", arguments, words=layout)


# --- what they share ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Call:
    """The matrices of a call. steps: of each dense array."""

    tiling: Tiling
    axis: int
    shape: Shape
    steps: Sequence[Steps]

    @property
    def pattern(self) -> Pattern:
        return self.tiling.pattern

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
        shape, steps = matrices(views, number, batch=batch)
        return cls(Tiling(element.name, kept), number, shape, steps)

    def stored(self, to: Stored, dense: ArrayView) -> dict[str, int]:
        """Arguments for the arrays of a sparse tensor, which must not overlap the dense one."""
        needed = self.pattern.groups(self.shape.size) * self.pattern.n * self.tiling.type.bytes
        if to.values % ROW_ALIGNMENT or to.pitch % ROW_ALIGNMENT:
            raise ValueError(
                f"values and their pitch are multiples of {ROW_ALIGNMENT} bytes, got {to.values:#x} and {to.pitch}: use row_pitch()"
            )
        if to.pitch < needed:
            raise ValueError(f"a row of values takes {needed} bytes, got a pitch of {to.pitch}: widen it")
        first, last = dense.byte_range
        for begin, end in to.ranges(self.tiling, self.shape.entries * self.shape.rows, self.shape.size):
            if begin < last and first < end:
                raise ValueError(
                    "the arrays of the sparse tensor and the dense array overlap: give them memory of their own"
                )
        return {"values": to.values, "pitch": to.pitch, "indices": to.indices}

    def launch(
        self,
        kind: Literal["prune", "check", "compress", "dense", "prepack"],
        arguments: dict[str, int] | None = None,
        *,
        source: ArrayView | None = None,
        out: ArrayView | None = None,
        method: Literal["magnitude"] | None = None,
        transposable: bool = False,
        words: Layout | None = None,
        exact: bool = False,
    ) -> Launch:
        """The launch of a kernel of that kind."""
        shape, given = self.shape, dict(arguments or {})
        if shape.empty:
            return Launch(None)
        accesses: dict[str, Any] = {}
        views = {name: view for name, view in (("source", source), ("out", out)) if view is not None}
        for (name, view), steps in zip(views.items(), self.steps, strict=False):
            accesses[name] = access(view, shape, steps, self.pattern, turn=not transposable)
            parts = (
                ("", view.address),
                *zip(("_row", "_column", "_entry"), (s * view.element.bytes for s in steps), strict=True),
            )
            given |= {f"{name}{part}": number for part, number in parts}
        indices = self._index_width(
            [number for name, number in given.items() if name.endswith("indices")], transposable
        )
        record = Streaming(
            self.tiling.element,
            self.pattern,
            kind,
            method,
            transposable,
            **accesses,
            indices=indices,
            words=words,
            exact=exact,
        )
        rows, columns = record.tile
        below = -(-shape.rows // rows)
        given |= {"rows": shape.rows, "size": shape.size, "row_tiles": below, "tiles": below * shape.entries}
        return Launch(record, given, (-(-shape.size // columns), below * shape.entries))

    def _index_width(self, addresses: Sequence[int], transposable: bool) -> int:
        """Bytes of an access of indices: as many as their addresses, a row's and a span's allow."""
        sizes = [self.shape.size, *([self.shape.rows] if transposable else [])]
        rows = [index_bytes(self.pattern, self.pattern.groups(size)) for size in sizes]
        return gcd(self.tiling.index_bytes, *rows, *addresses, 4)


def _check_out(source: ArrayView, out: ArrayView) -> None:
    _check_written(out)
    if overlaps(source, out):
        raise ValueError("source and output overlap: prune into an array of its own")


def _check_written(out: ArrayView) -> None:
    if not out.writable:
        raise ValueError("the output cannot be written: it is read-only, or its elements overlap: give another array")
