"""`matmul` and `linear`: 2:4 sparse products, on the GPU or by the reference path."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import element_type
from louver.formats.tensor import SparseTensor
from louver.frontend.problem import Kind
from louver.kernels import reference
from louver.kernels.request import Accumulate, Request, request
from louver.kernels.state import states
from louver.runtime.arrays import ArrayView, empty_like_kind, view
from louver.runtime.device import NoDevice, current_device


def matmul(s: SparseTensor, b: Any, out: Any = None, out_dtype: object = None, accumulate: Accumulate = "auto") -> Any:
    """`s [M, K] @ b [K, N]` -> [M, N].

    s: 2:4 sparse along K (its last axis), f16, bf16, e4m3, e5m2, s8 or u8. b: the same element type (8-bit floats mix, and so
    do 8-bit integers), on a GPU or on the host, any strides; rows or columns of unit stride and 16-byte pitch are read in
    place, of 8-bit types columns only, anything else is copied first. out: an array to write, its rows contiguous, not
    overlapping b; by default a new array of b's kind. out_dtype: f16, bf16, f32, for 8-bit floats also e4m3 (saturating),
    for integers also s32; default `out`'s, else b's for 16-bit types, bf16 for 8-bit floats, s32 for integers.
    accumulate: "auto": "f32", which for 8-bit floats keeps about 14 bits in hardware, or "s32" for integers, which wraps.
    On a GPU the work is sent to the caller's current stream and not waited for. Host arrays are copied in and out. The
    first call of its kind compiles and uploads, which a stream's capture forbids: `louver.prepare` does it ahead.
    Without a GPU the reference path computes the same, slowly, and says so once.
    Raises ValueError or TypeError with the rule, before anything is launched or written.
    """
    return _product("matmul", s, b, None, out, out_dtype, accumulate)


def linear(
    x: Any,
    s: SparseTensor,
    bias: Any = None,
    out: Any = None,
    out_dtype: object = None,
    accumulate: Accumulate = "auto",
) -> Any:
    """`x [..., K] @ s [out, K].T (+ bias [out])` -> [..., out], as `torch.nn.functional.linear`.

    bias: f16, bf16 or f32, or s32 for integers; added before the result is rounded. Everything else as in `matmul`; leading axes of x and out must flatten to one without a copy.
    """
    return _product("linear", s, x, bias, out, out_dtype, accumulate)


def _product(
    kind: Kind, s: SparseTensor, x: Any, bias: Any, out: Any, out_dtype: object, accumulate: Accumulate
) -> Any:
    options = (kind, out_dtype, accumulate)
    state = states().find(s)
    if state is not None:
        y = state.warm.launch(options, x, bias, out)
        if y is not None:
            return y
    asked = request(kind, s, x, bias, out, out_dtype, accumulate)
    if not _on_gpu(asked.dense):
        return _by_reference(asked, out)
    from louver.kernels.execute import run

    state = states().of(s)
    made = empty_like_kind(asked.dense, asked.shape, asked.element) if out is None else out
    result = view(made) if asked.out is None else asked.out
    placed = run(state, asked, result)
    if placed is not None:
        state.warm.keep(options, (x, bias, out), asked, result, placed)
    return made


def _on_gpu(x: ArrayView) -> bool:
    """Whether the kernel runs: for device arrays always, for host arrays if there is a GPU that it is compiled for."""
    found = current_device()
    if x.device is not None:
        return True
    if isinstance(found, NoDevice):
        _say_once(str(found))
        return False
    if found.target != "sm_90a":
        _say_once(f"{found} has no kernel yet")
        return False
    return True


@functools.cache
def _say_once(reason: str) -> None:
    warnings.warn(f"louver computes by the reference path on the CPU: {reason}", stacklevel=5)


def _by_reference(asked: Request, out: Any) -> Any:
    x = asked.dense.to_numpy()
    bias = None if asked.bias is None else asked.bias.to_numpy()
    if asked.kind == "matmul":
        return _deliver(reference.product(asked.s.dense(), x, bias, asked.element.numpy), asked.dense, out)
    y = reference.product(asked.s.dense(), x.reshape(-1, x.shape[-1]).T, bias, asked.element.numpy)
    return _deliver(np.ascontiguousarray(y.T).reshape(asked.shape), asked.dense, out)


def _deliver(y: NDArray[Any], like: ArrayView, out: Any) -> Any:
    """The reference path's result as the caller's kind of host array, written to `out` if there is one."""
    made = empty_like_kind(like, y.shape, element_type(y.dtype)) if out is None else out
    host = view(made).host
    if host is None:
        raise ValueError("out must be on the host, as the inputs are")
    host[...] = y
    return made
