"""Running a compiled product on the emulator, with its arguments bound as a launch binds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.emulator import Argument, GlobalMemory, Latest, Order, Report, run
from louver.formats.dtypes import element_type, raw_bits
from louver.formats.tensor import SparseTensor, row_pitch
from louver.frontend.epilogue import ROW_VECTORS
from louver.isa.prepack import prepack, split
from louver.kernels.launch import Rows
from louver.kernels.reference import Reads
from louver.passes.layout import metadata_words
from louver.passes.pipeline import CompiledProduct
from louver.passes.signature import MapParameter, NumberParameter, PointerParameter, SizeParameter

Array = NDArray[Any]

C_GAP = 3
"""Elements between the rows of `c`: it needs no alignment."""


def emulate(
    compiled: CompiledProduct,
    s: SparseTensor,
    dense: Array,
    bias: Array | None = None,
    reads: Reads | None = None,
    *,
    sm_count: int = 132,
    order: Order = Latest(),  # noqa: B008 - frozen
) -> tuple[Array, Report]:
    """The product's PTX on the CPU: its output, and what the run did.

    dense: [N, K] or, with an N-major dense operand, [K, N]. bias: [M]. reads: what else the epilogue reads, by its options'
    names, `c` like the output. sm_count: SMs to pretend, which bounds the grid.
    The output is [M, N], or [N, M] where the product stores it transposed ("linear"); with M / 2 for M if it is gated.
    Raises EmulationError for a misuse found, ValueError for operands that are not the product's.
    """
    m, k = s.shape
    k_axis = 1 if compiled.nest.b.k_major else 0
    if dense.shape[k_axis] != k:
        raise ValueError(f"axis {k_axis} of the dense operand must have K = {k} elements, got {list(dense.shape)}")
    n = dense.shape[1 - k_axis]
    store = compiled.nest.store
    rows = m // 2 if compiled.nest.gated else m
    shape = (n, rows) if store.transposed else (rows, n)
    memory = GlobalMemory()
    output = element_type(store.element)
    # Bulk copies need a row pitch of whole chunks; direct stores are given rows without a gap, the harder case.
    pitch = row_pitch(shape[1], output) if compiled.schedule.store == "bulk" else shape[1] * output.bytes
    result = memory.add("d", np.zeros((shape[0], pitch // output.bytes), output.numpy), initialised=False)
    maps = {"a": _rows(memory, "a", s.values), "b": _rows(memory, "b", dense)}
    maps["d"] = Rows(result.address, shape[1], shape[0], pitch, output.bytes, result)
    words = split(prepack(s.indices, s.rows, s.size, s.dtype), metadata_words(compiled.schedule, s.dtype.name))
    pointers = {"metadata": memory.add("metadata", words, writable=False), "d": result}
    given = dict(reads or {}) | ({} if bias is None else {"bias": bias})
    sizes = {"M": m, "N": n, "K": k, "pitch": pitch // output.bytes, "pitch_c": shape[1] + C_GAP}
    arguments: dict[str, Argument] = {}
    for parameter in compiled.signature.parameters:
        match parameter:
            case MapParameter():
                arguments[parameter.name] = maps[parameter.operand].tensor_map(parameter)
            case PointerParameter() if parameter.name in pointers:
                arguments[parameter.name] = pointers[parameter.name]
            case PointerParameter():
                part = _part(parameter.name, given, gated=compiled.nest.gated)
                arguments[parameter.name] = memory.add(parameter.name, part, writable=False)
            case SizeParameter():
                arguments[parameter.name] = sizes[parameter.name]
            case NumberParameter():
                arguments[parameter.name] = float(given[parameter.name])
    report = run(compiled.kernel, compiled.signature.grid(m, n, sm_count), arguments, memory=memory, order=order)
    return result.array[:, : shape[1]], report


def _part(name: str, given: Mapping[str, Array | float], *, gated: bool) -> Array:
    """What a pointer of the epilogue points to: vectors along the rows of a gated product are passed as two halves."""
    whole = np.ascontiguousarray(given[name.removesuffix("_up")])
    if name == "c":
        return np.pad(whole.view(f"u{whole.itemsize}"), ((0, 0), (0, C_GAP))).view(whole.dtype)
    if gated and name.removesuffix("_up") in ROW_VECTORS and whole.size > 1:
        return np.ascontiguousarray(np.split(whole, 2)[name.endswith("_up")])
    return np.atleast_1d(whole)


def _rows(memory: GlobalMemory, name: str, matrix: Array) -> Rows:
    """A matrix in emulated memory with the row pitch that tensor maps need."""
    rows, inner = matrix.shape
    element = element_type(matrix.dtype)
    pitch = row_pitch(inner, element)
    padded = np.zeros((rows, pitch // element.bytes), element.bits_dtype)
    padded[:, :inner] = raw_bits(np.ascontiguousarray(matrix))
    allocation = memory.add(name, padded, writable=False)
    return Rows(allocation.address, inner, rows, pitch, element.bytes, allocation)
