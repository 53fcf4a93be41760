"""A call of a compiled product on the emulator, with its arguments bound as a launch binds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.emulator import Allocation, Argument, GlobalMemory, Latest, Order, Report, run
from louver.formats.dtypes import raw_bits
from louver.formats.tensor import SparseTensor, row_pitch
from louver.kernels.launch import Rows
from louver.kernels.operand import prepacked
from louver.passes.layout import metadata_words
from louver.passes.pipeline import CompiledProduct
from louver.passes.signature import MapParameter, NumberParameter, PointerParameter, SizeParameter
from louver.user.arguments import Call
from louver.user.bind_product import ProductCall, bind_product, check_alignment, check_direct
from louver.user.compiled import Variant
from louver.user.facts import ProductFacts
from louver.user.interpreted import flat

SM_COUNT = 132
"""SMs to pretend, which bounds the grid."""


def emulate_product(
    name: str,
    compiled: Callable[[Variant], CompiledProduct],
    call: Call,
    grid: Sequence[int],
    *,
    sm_count: int = SM_COUNT,
    order: Order = Latest(),  # noqa: B008 - frozen
) -> Report:
    """Run a product on the call's NumPy arrays, in place. compiled: gives the kernel for an output that is aligned, or not.

    Raises ValueError where the call's sizes, arrays and grid do not fit together, and EmulationError for a misuse found.
    """
    product = compiled("bulk")
    bound = bind_product(name, ProductFacts.of(product.nest), call, grid)
    memory = GlobalMemory()
    arrays = {name: _add(memory, name, call) for name in call.arrays}
    dense, out = (
        matrix.at(arrays[matrix.argument].address, call.arrays[matrix.argument].element.bytes)
        for matrix in (bound.dense, bound.out)
    )
    check_alignment(name, bound, dense)
    if product.schedule.store == "bulk" and not out.bulk_writable:
        product = compiled("direct")
        check_direct(name, bound, out, product.schedule.store)
    arguments = _arguments(product, bound, call, memory, arrays, dense, out)
    ctas = product.signature.grid(bound.m, bound.n, sm_count, bound.batch)
    return run(product.kernel, ctas, arguments, memory=memory, order=order)


def _arguments(
    compiled: CompiledProduct,
    bound: ProductCall,
    call: Call,
    memory: GlobalMemory,
    arrays: dict[str, Allocation],
    dense: Rows,
    out: Rows,
) -> dict[str, Argument]:
    s = call.sparse[bound.s]
    words = prepacked(s, metadata_words(compiled.schedule, s.dtype.name))
    maps = {"a": _values(memory, s), "b": dense, "d": out}
    pointers = {**arrays, "metadata": memory.add("metadata", words, writable=False), "d": arrays[bound.out.argument]}
    arguments: dict[str, Argument] = {}
    for parameter in compiled.signature.parameters:
        match parameter:
            case MapParameter():
                arguments[parameter.name] = maps[parameter.operand].tensor_map(parameter)
            case PointerParameter():
                arguments[parameter.name] = pointers[parameter.name]
            case SizeParameter():
                arguments[parameter.name] = bound.sizes[parameter.name]
            case NumberParameter():
                arguments[parameter.name] = bound.numbers[parameter.name]
    return arguments


def _add(memory: GlobalMemory, name: str, call: Call) -> Allocation:
    """An array's memory, as far off a multiple of 16 bytes as it is."""
    array = call.arrays[name]
    whole: NDArray[Any] = flat(array)
    return memory.add(name, whole, offset=array.address % 16, writable=array.writable)


def _values(memory: GlobalMemory, s: SparseTensor) -> Rows:
    pitch = row_pitch(s.kept, s.dtype)
    whole = np.zeros((s.rows, pitch // s.dtype.bytes), s.dtype.bits_dtype)
    whole[:, : s.kept] = raw_bits(s.values)
    allocation = memory.add("values", whole, writable=False)
    m = s.shape[-2]
    return Rows(allocation.address, s.kept, m, pitch, s.dtype.bytes, allocation, prod(s.shape[:-2]), m * pitch)
