"""Runs a call on NumPy arrays by the tile IR interpreter: the reference path, one program at a time, without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from louver.runtime.arrays import ArrayView
from louver.user.arguments import Call
from louver.user.source import KernelSource

TARGET = "sm_90a"
"""The target of kernels without a device."""


def interpret(source: KernelSource, call: Call, grid: Sequence[int]) -> None:
    """Run the kernel for each program, storing to the call's arrays. See `louver.ir.interpret.run_kernel`."""
    if 0 in grid:
        return
    from louver.ir.interpret import run_kernel
    from louver.ir.tile import FuncOp

    kind = call.kind
    module = source.tile_ir(dict(kind.signature), dict(kind.constexprs), dict(kind.sparse), TARGET)
    (function,) = (op for op in module.body.ops if isinstance(op, FuncOp) and op.is_public)
    arrays = {name: flat(array) for name, array in call.arrays.items()}
    known: dict[str, Any] = {**call.numbers, **arrays, **call.sparse}
    run_kernel(module, grid, {name: known[name] for name in function.argument_names.values()})


def flat(array: ArrayView) -> NDArray[Any]:
    """A view of all memory from a host array's first to its last element, because pointers may reach the gaps between
    rows. Raises ValueError for negative strides.
    """
    host = array.host
    if host is None:
        raise ValueError("only arrays in host memory can be run without a GPU")
    first, last = array.byte_range
    if first < array.address:
        raise ValueError(
            f"a kernel needs arrays without negative strides, got strides {array.strides}: copy the array first"
        )
    count = (last - first) // array.element.bytes
    # NumPy cannot export some 8-bit floats by name.
    bits = host.view(array.element.bits_dtype)
    whole = as_strided(bits, (count,), (array.element.bytes,), writeable=array.writable)
    return np.asarray(whole).view(host.dtype)
