"""Runs a compiled product on the emulator. Arguments are bound by the same code as for a launch."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.choose.demand import Demand
from louver.choose.ranges import Cutting, Ranges
from louver.compile.compiled import CompiledProduct
from louver.compile.problem_tiles import ProblemTiles
from louver.compile.signature import ArgumentParameter, parameter_name
from louver.emulator import EmulationError, GlobalMemory, Latest, Order, Report, run
from louver.formats.dtypes import element_type, raw_bits
from louver.formats.lists import GatheredRows
from louver.formats.tensor import SparseTensor, row_pitch
from louver.frontend.epilogue import ROW_VECTORS
from louver.ir.product import LoadMatrix, LoadScalar, LoadVector, Number, walk
from louver.library.forms import Form, Operand, ProductForms, forms_of, operand_of
from louver.library.fused import Bound, pitches
from louver.library.launch import Sized, bind_product
from louver.library.reference import Reads
from louver.library.rows import Rows, tensor_map

Array = NDArray[Any]

GAP = 3
"""Gap between the rows of arrays that the epilogue reads, in elements. These arrays need no alignment."""


def emulate(
    compiled: CompiledProduct | ProblemTiles,
    s: SparseTensor | Array | GatheredRows,
    dense: Array,
    bias: Array | None = None,
    reads: Reads | None = None,
    *,
    gap: int = GAP,
    sm_count: int = 132,
    order: Order = Latest(),  # noqa: B008 - frozen
    ranges: Ranges | None = None,
) -> tuple[Array, Report]:
    """Run the product's PTX on the CPU. Returns the output and the report of the run.

    s: [M, K]; an array if the left operand of the product is dense.
    dense: [N, K], or [K, N] if the dense operand is N-major.
    bias: [M].
    reads: other operands of the epilogue, by option. `c` has the shape of the output.
    gap: elements between the rows of `c`.
    sm_count: the assumed number of SMs, which bounds the grid.
    ranges: the cut of K, for a schedule that cuts K; by default the cut of a launch.

    The output is [M, N], or [N, M] if the product stores it transposed ("linear"). A gated product has M / 2 for M. In
    a batch, the output, `c` and the operands with entries have the batch as a first axis. A store that adds, adds to
    zeros.

    Raises EmulationError if the kernel misuses the hardware, ValueError for operands that do not fit the product.
    """
    nest, store = compiled.nest, compiled.nest.store
    m, k = (s.values.shape[-2], s.k) if isinstance(s, GatheredRows) else s.shape[-2:]
    entries = _entries(compiled, s, dense)
    k_axis = (1 if nest.b.k_major else 0) + dense.ndim - 2
    if dense.shape[k_axis] != k:
        raise ValueError(f"axis {k_axis} of the dense operand must have K = {k} elements, got {list(dense.shape)}")
    n = dense.shape[-1] * dense.shape[-2] // k
    rows = m // 2 if nest.gated else m
    shape = (n, rows) if store.transposed else (rows, n)
    memory = GlobalMemory()
    output = element_type(store.element)
    if isinstance(compiled, ProblemTiles):
        compiled.schedule.check(k, shape[1] * output.bytes)
    # Bulk copies need a row pitch of whole chunks. Direct stores get rows without gaps, the harder case.
    pitch = row_pitch(shape[1], output) if compiled.aligned_output else shape[1] * output.bytes
    whole = np.zeros((entries, shape[0], pitch // output.bytes), output.numpy)
    result = memory.add("d", whole, initialised=store.add)
    if isinstance(s, SparseTensor):
        operand = sparse_operand(memory, s, forms_of(compiled.schedule, s), prod(s.shape[:-2]))
    elif isinstance(s, GatheredRows):
        lists = memory.add("lists", s.lists, writable=False, settled=True).address
        operand = Operand(_rows(memory, "a", s.values, settled=True), s.kept, lists, lists)
    else:
        operand = Operand(_rows(memory, "a", s), k)
    maps = {"a": operand.values, "b": _rows(memory, "b", dense)}
    maps["d"] = Rows(result.address, shape[1], shape[0], pitch, output.bytes, result, entries, shape[0] * pitch)
    given = dict(reads or {}) | ({} if bias is None else {"bias": bias})
    sizes, pointers, numbers = dict[str, int](), dict[str, int](), dict[str, float]()
    for node in dict.fromkeys(walk(nest.epilogue)):
        match node:
            case LoadMatrix(argument):
                wide = shape[1] + gap
                sizes |= pitches(argument, wide, shape[0] * wide)
                part = _with_gaps(np.ascontiguousarray(given[argument]), gap)
            case LoadVector(argument) | LoadScalar(argument):
                part = _vector(argument, given, gated=nest.gated)
            case Number(argument):
                numbers[parameter_name(argument)] = float(given[argument])
                continue
            case _:
                continue
        pointers[parameter_name(argument)] = memory.add(argument, part, writable=False).address
    for name in ("scale", "dense_scale"):
        if name in given and any(
            isinstance(each, ArgumentParameter) and each.argument == name for each in compiled.signature.parameters
        ):
            pointers.setdefault(name, memory.add(name, np.ascontiguousarray(given[name]), writable=False).address)
    bound = Bound(pointers, numbers, sizes)
    cut, counters = None, None
    if not isinstance(compiled, ProblemTiles) and compiled.schedule.cuts:
        cutting = Cutting.of(Demand.of_nest(nest), compiled.schedule)
        cut = ranges or cutting.best(m, n, operand.depth, entries, sm_count)
        nbytes, count = cutting.workspace(cut)
        workspace = memory.add("workspace", np.zeros(max(nbytes, 1), np.uint8), initialised=False, scratch=True)
        counters = memory.add("counters", np.zeros(max(count, 1), np.uint32))
        bound = bound.with_workspace(workspace.address, counters.address)
    sized = Sized.of(compiled.signature, (m, n, k), operand.depth, maps, sm_count, cut)
    places = {name: rows.held for name, rows in maps.items()}
    arguments = bind_product(compiled.signature, sized, places, operand, bound, tensor_map)
    report = run(
        compiled.kernel, sized.ctas, arguments, memory=memory, order=order, dependent=compiled.signature.dependent
    )
    if counters is not None and counters.array.any():
        raise EmulationError(f"a launch leaves its counters at 0 for the next one, got {counters.array.tolist()}")
    y = result.array[:, :, : shape[1]]
    return y if store.batch is not None else y[0], report


def sparse_operand(memory: GlobalMemory, s: SparseTensor, forms: ProductForms, entries: int) -> Operand:
    """The sparse operand of a product that reads these forms, in emulated memory. entries: the number of matrices."""
    held = [memory.add(type(form).__name__, form.host(s), writable=False, settled=True) for form in forms.made]
    places: dict[Form | None, int] = {form: each.address for form, each in zip(forms.made, held, strict=True)}
    return operand_of(s, forms, places, entries, held)


def _entries(compiled: CompiledProduct | ProblemTiles, s: SparseTensor | Array | GatheredRows, dense: Array) -> int:
    """The size of the batch; 1 without a batch."""
    found: set[int] = set()
    left = s.values.shape if isinstance(s, GatheredRows) else s.shape
    for name, shape, batch in (("s", left, compiled.nest.a.batch), ("dense", dense.shape, compiled.nest.b.batch)):
        if len(shape) != (2 if batch is None else 3):
            axes = "two axes" if batch is None else "three axes, the first one with the batch's entries"
            raise ValueError(f"{name} must have {axes} for this product, got shape {list(shape)}")
        found |= set() if batch is None else {shape[0]}
    if len(found) > 1:
        raise ValueError(f"a batch has one size, got {sorted(found)}")
    return found.pop() if found else 1


def _with_gaps(matrix: Array, gap: int) -> Array:
    gaps = [(0, 0)] * (matrix.ndim - 1) + [(0, gap)]
    return np.pad(matrix.view(f"u{matrix.itemsize}"), gaps).view(matrix.dtype)


def _vector(name: str, given: Mapping[str, Array | float], *, gated: bool) -> Array:
    """A vector or scalar of the epilogue. A vector along the rows of a gated product is passed as two halves."""
    whole = np.ascontiguousarray(given[name.removesuffix("_up")])
    if gated and name.removesuffix("_up") in ROW_VECTORS and whole.size > 1:
        return np.ascontiguousarray(np.split(whole, 2)[name.endswith("_up")])
    return np.atleast_1d(whole)


def _rows(memory: GlobalMemory, name: str, matrix: Array, *, settled: bool = False) -> Rows:
    """A matrix or a batch of matrices in emulated memory, with the row pitch that tensor maps need."""
    rows, inner = matrix.shape[-2:]
    entries = matrix.shape[0] if matrix.ndim == 3 else 1
    element = element_type(matrix.dtype)
    pitch = row_pitch(inner, element)
    padded = np.zeros((*matrix.shape[:-1], pitch // element.bytes), element.bits_dtype)
    padded[..., :inner] = raw_bits(np.ascontiguousarray(matrix))
    allocation = memory.add(name, padded, writable=False, settled=settled)
    return Rows(allocation.address, inner, rows, pitch, element.bytes, allocation, entries, rows * pitch)
