"""One product ready to launch: a kernel on a device, its sparse operand, and the arguments that each call binds."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

from louver.compile.signature import MapParameter, NumberParameter, Parameter, PointerParameter, SizeParameter
from louver.frontend.problem import BLayout
from louver.isa.tensormap import COPY_CHUNK, TensorMap
from louver.library.compiled import LoadedProduct
from louver.library.dense import DenseMatrix, Stored, merged
from louver.library.fused import Bound
from louver.library.operand import DeviceOperand
from louver.runtime.copy2d import copy_is_loaded, copy_matrix
from louver.runtime.driver import is_capturing
from louver.runtime.memory import DeviceBuffer
from louver.runtime.module import ArgumentPack, BoundLaunch, ParamType
from louver.runtime.tensormap import encode

PITCH = 16
"""Bytes of which addresses and row pitches in a tensor map are multiples."""

RECENT_MAPS = 64
"""Encoded tensor maps that a launcher keeps: an address or shape seen lately is not encoded again."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A matrix in device memory as a tensor map has it: rows of `inner` contiguous elements, `pitch` bytes apart.

    batch: matrices of a batch, `batch_pitch` bytes apart, of one that has no entries 1.
    """

    address: int
    inner: int
    rows: int
    pitch: int
    element_bytes: int
    owner: object
    batch: int = 1
    batch_pitch: int = 0

    @property
    def aligned(self) -> bool:
        """Whether a tensor map can describe it: address and pitches are multiples of 16 bytes, rows do not overlap, and entries
        of a batch are not one matrix repeated by a stride of 0.
        """
        whole = self.address % PITCH == 0 and self.pitch % PITCH == 0 and self.batch_pitch % PITCH == 0
        apart = self.batch == 1 or self.batch_pitch > 0
        return whole and apart and self.pitch >= self.inner * self.element_bytes

    @property
    def bulk_writable(self) -> bool:
        """Whether bulk copies may write it: they write whole chunks, so that rows must be made of them."""
        return self.aligned and self.inner * self.element_bytes % COPY_CHUNK == 0

    def moved(self, address: int) -> Rows:
        """The same matrix elsewhere; its owner is the caller's to keep."""
        return replace(self, address=address, owner=None)

    def tensor_map(self, parameter: MapParameter) -> TensorMap:
        """The map that a kernel's parameter asks for."""
        shape, strides = (self.inner, self.rows, self.batch), (self.pitch, self.batch_pitch)
        rank = len(parameter.box)
        return TensorMap(
            address=self.address,
            element_bytes=self.element_bytes,
            shape=shape[:rank],
            strides=strides[: rank - 1],
            box=parameter.box,
            swizzle=parameter.swizzle,
            adds=parameter.adds,
        )


class Launcher:
    """A loaded product with its sparse operand [m, k], or those of a batch. Threads may share it: a bound pack is never changed
    again.
    """

    __slots__ = ("_maps", "_operand", "_shape", "_sm_count", "_types", "_values", "kernel", "signature")

    def __init__(self, product: LoadedProduct, operand: DeviceOperand, shape: tuple[int, ...]) -> None:
        self.kernel = product.kernel
        self.signature = product.signature
        self._operand = operand
        *leading, m, k = shape
        self._shape = m, k
        self._sm_count = product.kernel.device.sm_count
        self._types: list[ParamType] = [parameter_type(parameter) for parameter in product.signature.parameters]
        self._values = Rows(
            operand.values.address,
            operand.kept,
            m,
            operand.pitch,
            operand.element_bytes,
            operand,
            prod(leading),
            m * operand.pitch,
        )
        self._maps: dict[tuple[str | int, ...], bytes] = {}

    def grid(self, n: int, batch: int = 1) -> int:
        """CTAs of a launch for a dense operand [k, n], or `batch` products of such."""
        return self.signature.grid(self._shape[0], n, self._sm_count, batch)

    def arguments(self, n: int, dense: Rows, out: Rows, bound: Bound) -> ArgumentPack:
        """The arguments of a launch. bound: the epilogue's."""
        m, k = self._shape
        maps = {"a": self._values, "b": dense, "d": out}
        pointers = {**bound.pointers, "metadata": self._operand.metadata.address, "d": out.address}
        pitch, batch_pitch = out.pitch // out.element_bytes, out.batch_pitch // out.element_bytes
        sizes = {"M": m, "N": n, "K": k, "pitch": pitch, "batch": out.batch, "batch_pitch": batch_pitch, **bound.sizes}
        values = self.signature.bind(
            lambda parameter: self._encoded(parameter, maps[parameter.operand]), pointers, sizes, bound.numbers
        )
        pack = ArgumentPack(self._types)
        for index, value in enumerate(values.values()):
            pack[index] = value
        return pack

    def bound(self, n: int, dense: Rows, out: Rows, bound: Bound, stream: int) -> BoundLaunch:
        """A launch with these arguments on a stream."""
        return self.kernel.bound(self.grid(n, out.batch), self.arguments(n, dense, out, bound), stream)

    def _encoded(self, parameter: MapParameter, rows: Rows) -> bytes:
        key = (parameter.name, rows.address, rows.inner, rows.rows, rows.pitch, rows.batch, rows.batch_pitch)
        found = self._maps.get(key)
        if found is None:
            found = encode(rows.tensor_map(parameter))
            if len(self._maps) >= RECENT_MAPS:
                self._maps.clear()
            self._maps[key] = found
        return found


def rows_in_place(dense: DenseMatrix, layout: BLayout) -> Rows | None:
    """The dense operand's rows where they are: along K if "k_major", along N if "n_major"; None where a copy is needed."""
    walk = _walk(dense, layout)
    if (walk.inner > 1 and walk.inner_stride != 1) or len(dense.entries) > 1:
        return None
    width = dense.array.element.bytes
    # A single row has no neighbours: any legal pitch will do.
    pitch = _whole(walk.inner * width) if walk.outer == 1 else walk.outer_stride * width
    batch, stride = dense.entries[0] if dense.entries else (1, 0)
    rows = Rows(dense.array.address, walk.inner, walk.outer, pitch, width, dense.array.owner, batch, stride * width)
    return rows if rows.aligned else None


def output_rows(out: Stored) -> Rows:
    """An output's rows."""
    width = out.array.element.bytes
    pitch = _whole(out.columns * width) if out.rows == 1 else out.pitch * width
    address, owner = out.array.address, out.array.owner
    return Rows(address, out.columns, out.rows, pitch, width, owner, out.batch, out.batch_pitch * width)


def copied_rows(dense: DenseMatrix, layout: BLayout, ordinal: int, stream: int) -> Rows:
    """A copy of the dense operand with aligned rows, entries of a batch one after the other, all in the order of `stream`.

    Raises RuntimeError when the kernels that copy would have to be loaded while the stream is being captured.
    """
    walk = _walk(dense, layout)
    width = dense.array.element.bytes
    *others, (entries, entry_stride), (rows, row_stride) = (
        (1, 0),
        (1, 0),
        *merged((*dense.entries, (walk.outer, walk.outer_stride))),
    )
    strides = (row_stride, walk.inner_stride)
    if not copy_is_loaded(ordinal, width, strides) and is_capturing(stream):
        raise RuntimeError(
            "the kernels that copy operands must be loaded before a stream is captured: call louver.prepare before the "
            "capture, or give an operand with rows of unit stride whose address and pitch are multiples of 16 bytes"
        )
    pitch = _whole(walk.inner * width)
    batch = prod(size for size, _ in dense.entries)
    buffer = DeviceBuffer(batch * walk.outer * pitch, ordinal=ordinal, stream=stream)
    # One launch copies rows of entries; further axes, which views seldom have, take one for each of their elements.
    for number, place in enumerate(itertools.product(*(range(size) for size, _ in others))):
        start = sum(index * stride for index, (_, stride) in zip(place, others, strict=True))
        copy_matrix(
            source=dense.array.address + start * width,
            shape=(rows, walk.inner),
            strides=strides,
            element_bytes=width,
            destination=buffer.address + number * entries * rows * pitch,
            pitch=pitch,
            entries=entries,
            entry_stride=entry_stride,
            ordinal=ordinal,
            stream=stream,
        )
    return Rows(buffer.address, walk.inner, walk.outer, pitch, width, buffer, batch, walk.outer * pitch)


class _Walk(NamedTuple):
    inner: int
    outer: int
    inner_stride: int
    outer_stride: int


def _walk(dense: DenseMatrix, layout: BLayout) -> _Walk:
    if layout == "k_major":
        return _Walk(dense.k, dense.n, dense.k_stride, dense.n_stride)
    return _Walk(dense.n, dense.k, dense.n_stride, dense.k_stride)


def _whole(nbytes: int) -> int:
    return -(-nbytes // PITCH) * PITCH


def parameter_type(parameter: Parameter) -> ParamType:
    """How an argument pack holds the parameter."""
    match parameter:
        case MapParameter():
            return "tensormap"
        case PointerParameter():
            return "u64"
        case SizeParameter():
            return "u64" if parameter.width == 64 else "u32"
        case NumberParameter():
            return "f32"
