"""Running a product on a device: buffers brought into the layout that the kernel reads, arguments bound, one launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from louver.formats.tensor import SparseTensor
from louver.frontend.problem import Problem
from louver.isa.targets import target
from louver.isa.tensormap import TensorMap
from louver.kernels.compiled import LoadedProduct, loaded
from louver.kernels.configure import choose
from louver.kernels.dense import DenseMatrix
from louver.kernels.operand import DeviceOperand, OperandStore
from louver.passes.signature import MapParameter, PointerParameter, SizeParameter
from louver.runtime.arrays import ArrayView, view
from louver.runtime.copy2d import copy_matrix
from louver.runtime.device import Device, device, require_device
from louver.runtime.memory import DeviceArray, DeviceBuffer
from louver.runtime.module import ArgumentPack
from louver.runtime.tensormap import encode

PITCH = 16
"""Bytes of which addresses and row pitches in a tensor map are multiples."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A matrix in device memory as a tensor map has it: rows of `inner` contiguous elements, `pitch` bytes apart."""

    address: int
    inner: int
    rows: int
    pitch: int
    element_bytes: int
    owner: object

    def tensor_map(self, parameter: MapParameter) -> TensorMap:
        """The map that a kernel's parameter asks for."""
        return TensorMap(
            address=self.address,
            element_bytes=self.element_bytes,
            shape=(self.inner, self.rows),
            strides=(self.pitch,),
            box=parameter.box,
            swizzle=parameter.swizzle,
        )


def run(
    kind: str, s: SparseTensor, dense: DenseMatrix, bias: ArrayView | None, out: ArrayView, operands: OperandStore
) -> None:
    """Compute into `out`: [M, N] for "matmul", [N, M] for "linear". Host arrays go through device memory and are waited for."""
    if out.device is None:
        _run_host(kind, s, dense, bias, out, operands)
        return
    place = device(out.device)
    stream = out.stream or 0
    layout: Literal["k_major", "n_major"] = "k_major" if kind == "linear" or dense.layout != "n_major" else "n_major"
    rows = _dense_rows(dense, layout, place, stream)
    problem = Problem(
        kind=cast(Literal["matmul", "linear"], kind),
        a=s.dtype.name,
        b=dense.array.element.name,
        out=out.element.name,
        b_layout=layout,
        bias=None if bias is None else "row",
    )
    product = loaded(problem, choose(problem, s.shape[0], dense.n, target(place.target), place.sm_count), place.ordinal)
    _launch(product, s, dense, rows, bias, out, operands.get(s, place.ordinal), place, stream)


def _run_host(
    kind: str, s: SparseTensor, dense: DenseMatrix, bias: ArrayView | None, out: ArrayView, operands: OperandStore
) -> None:
    place = require_device()
    source = dense.array.to_numpy()
    k_axis = 1 if kind == "linear" else 0
    uploaded = view(DeviceArray.of(source, ordinal=place.ordinal))
    strides = uploaded.strides
    on_device = DenseMatrix(uploaded, dense.k, dense.n, strides[k_axis], strides[1 - k_axis])
    vector = None if bias is None else view(DeviceArray.of(bias.to_numpy(), ordinal=place.ordinal))
    result = DeviceArray.empty(out.shape, out.element, ordinal=place.ordinal)
    run(kind, s, on_device, vector, view(result), operands)
    if out.host is None:
        raise ValueError("a host output has a NumPy view")
    np.copyto(out.host, result.numpy())


def _dense_rows(dense: DenseMatrix, layout: Literal["k_major", "n_major"], place: Device, stream: int) -> Rows:
    """The dense operand as a tensor map can read it: in place where its alignment allows, else a copy."""
    element_bytes = dense.array.element.bytes
    inner, outer = (dense.k, dense.n) if layout == "k_major" else (dense.n, dense.k)
    inner_stride, outer_stride = (
        (dense.k_stride, dense.n_stride) if layout == "k_major" else (dense.n_stride, dense.k_stride)
    )
    pitch = outer_stride * element_bytes
    if outer == 1:
        # A single row has no neighbours: any legal pitch will do.
        pitch = -(-inner * element_bytes // PITCH) * PITCH
    in_place = (inner_stride == 1 or inner == 1) and dense.array.address % PITCH == 0
    if in_place and pitch % PITCH == 0 and pitch >= inner * element_bytes:
        return Rows(dense.array.address, inner, outer, pitch, element_bytes, dense.array.owner)
    pitch = -(-inner * element_bytes // PITCH) * PITCH
    buffer = DeviceBuffer(outer * pitch, ordinal=place.ordinal, stream=stream)
    copy_matrix(
        source=dense.array.address,
        shape=(outer, inner),
        strides=(outer_stride, inner_stride),
        element_bytes=element_bytes,
        destination=buffer.address,
        pitch=pitch,
        ordinal=place.ordinal,
        stream=stream,
    )
    return Rows(buffer.address, inner, outer, pitch, element_bytes, buffer)


def _launch(
    product: LoadedProduct,
    s: SparseTensor,
    dense: DenseMatrix,
    rows: Rows,
    bias: ArrayView | None,
    out: ArrayView,
    operand: DeviceOperand,
    place: Device,
    stream: int,
) -> None:
    m, k = s.shape
    signature = product.signature
    values = Rows(operand.values.address, s.kept, m, operand.pitch, s.dtype.bytes, operand)
    maps = {"a": values, "b": rows}
    pointers = {"metadata": operand.metadata.address, "d": out.address, "bias": 0 if bias is None else bias.address}
    sizes = {"M": m, "N": dense.n, "K": k, "pitch": out.strides[0] if out.shape[0] > 1 else out.shape[1]}
    pack = ArgumentPack([_type(parameter) for parameter in signature.parameters])
    for index, parameter in enumerate(signature.parameters):
        match parameter:
            case MapParameter():
                pack[index] = encode(maps[parameter.operand].tensor_map(parameter))
            case PointerParameter():
                pack[index] = pointers[parameter.name]
            case SizeParameter():
                pack[index] = sizes[parameter.name]
    product.kernel.launch(signature.grid(m, dense.n, place.sm_count), pack, stream)


def _type(parameter: MapParameter | PointerParameter | SizeParameter) -> Literal["u32", "u64", "tensormap"]:
    match parameter:
        case MapParameter():
            return "tensormap"
        case PointerParameter():
            return "u64"
        case SizeParameter():
            return "u64" if parameter.width == 64 else "u32"
