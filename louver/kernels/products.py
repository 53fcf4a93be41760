"""`matmul` and `linear`: 2:4 sparse products, on the GPU or by the reference path."""

from __future__ import annotations

import functools
import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ElementType, element_type
from louver.formats.tensor import SparseTensor
from louver.kernels import reference
from louver.kernels.dense import DenseMatrix, as_tokens, check_output, matrix, rows_of
from louver.kernels.operand import OperandStore
from louver.runtime.arrays import ArrayView, empty_like_kind, view
from louver.runtime.device import NoDevice, current_device

Accumulate = Literal["f32"]


@functools.cache
def operands() -> OperandStore:
    """The process's device operands."""
    return OperandStore()


def matmul(s: SparseTensor, b: Any, out: Any = None, out_dtype: object = None, accumulate: Accumulate = "f32") -> Any:
    """`s [M, K] @ b [K, N]` -> [M, N].

    s: 2:4 sparse along K (its last axis), f16 or bf16. b: the same element type, on a GPU or on the host, any strides;
    rows or columns of unit stride and 16-byte pitch are read in place, anything else is copied first. out: an array to
    write, its rows contiguous, not overlapping b; by default a new array of b's kind. out_dtype: f16, bf16 or f32;
    default `out`'s, else b's. accumulate: "f32".
    On a GPU the work is sent to the caller's current stream and not waited for. Host arrays are copied in and out.
    Without a GPU the reference path computes the same, slowly, and says so once.
    Raises ValueError or TypeError with the rule, before anything is launched or written.
    """
    _check_sparse(s, accumulate)
    dense = view(b)
    _check_dense(s, dense, "b")
    if len(dense.shape) != 2 or dense.shape[0] != s.shape[1]:
        raise ValueError(f"b must be [K, N] with K = {s.shape[1]}, got shape {list(dense.shape)}")
    element = _output_element(out, out_dtype, dense)
    shape = (s.shape[0], dense.shape[1])
    target = None if out is None else check_output(view(out), shape, element, (dense,))
    if _on_gpu(dense):
        made = empty_like_kind(dense, shape, element) if out is None else out
        _run("matmul", s, matrix(dense, k_axis=0), None, view(made) if target is None else target)
        return made
    y = reference.product(s.dense(), dense.to_numpy(), None, element.numpy)
    return _deliver(y, dense, out)


def linear(
    x: Any, s: SparseTensor, bias: Any = None, out: Any = None, out_dtype: object = None, accumulate: Accumulate = "f32"
) -> Any:
    """`x [..., K] @ s [out, K].T (+ bias [out])` -> [..., out], as `torch.nn.functional.linear`.

    bias: the element type of x. Everything else as in `matmul`; leading axes of x and out must flatten to one without a copy.
    """
    _check_sparse(s, accumulate)
    tokens = view(x)
    _check_dense(s, tokens, "x")
    if not tokens.shape or tokens.shape[-1] != s.shape[1]:
        raise ValueError(f"x must be [..., K] with K = {s.shape[1]}, got shape {list(tokens.shape)}")
    vector = None if bias is None else _bias(s, view(bias), tokens)
    element = _output_element(out, out_dtype, tokens)
    shape = (*tokens.shape[:-1], s.shape[0])
    sources = (tokens,) if vector is None else (tokens, vector)
    target = None if out is None else check_output(view(out), shape, element, sources)
    if _on_gpu(tokens):
        made = empty_like_kind(tokens, shape, element) if out is None else out
        result = as_tokens(view(made) if target is None else target, "out")
        _run("linear", s, matrix(as_tokens(tokens, "x"), k_axis=1), vector, result)
        return made
    flat = tokens.to_numpy().reshape(-1, tokens.shape[-1])
    y = reference.product(s.dense(), flat.T, None if vector is None else vector.to_numpy(), element.numpy)
    return _deliver(np.ascontiguousarray(y.T).reshape(shape), tokens, out)


def _check_sparse(s: SparseTensor, accumulate: str) -> None:
    if not isinstance(s, SparseTensor):
        raise TypeError(f"s must be a louver.SparseTensor, got {type(s).__name__}: use louver.compress(w, '2:4')")
    if str(s.pattern) != "2:4":
        raise ValueError(f"products take the pattern 2:4, got {s.pattern}")
    if len(s.shape) != 2 or s.axis != 1:
        raise ValueError(
            f"s must be a matrix that is sparse along its last axis, got shape {list(s.shape)}, axis {s.axis}"
        )
    if 0 in s.shape:
        raise ValueError(f"s must have at least one row and one column, got shape {list(s.shape)}")
    if s.dtype.name not in ("f16", "bf16"):
        raise ValueError(f"products take f16 and bf16, got {s.dtype}")
    if accumulate != "f32":
        raise ValueError(f'accumulate must be "f32", got {accumulate!r}')


def _check_dense(s: SparseTensor, dense: ArrayView, name: str) -> None:
    if dense.element != s.dtype:
        raise ValueError(f"{name} and s must have one element type, got {dense.element} and {s.dtype}: convert one")


def _bias(s: SparseTensor, bias: ArrayView, tokens: ArrayView) -> ArrayView:
    if bias.shape != (s.shape[0],):
        raise ValueError(f"bias must be [out] with out = {s.shape[0]}, got shape {list(bias.shape)}")
    if bias.element != tokens.element:
        raise ValueError(f"bias and x must have one element type, got {bias.element} and {tokens.element}")
    if bias.device != tokens.device:
        raise ValueError(f"bias and x must be on one device, got {_where(bias)} and {_where(tokens)}")
    if bias.device is not None and bias.strides != (1,) and bias.shape != (1,):
        raise ValueError(f"bias must be contiguous, got stride {bias.strides[0]}: copy it")
    return bias


def _output_element(out: Any, out_dtype: object, dense: ArrayView) -> ElementType:
    if out_dtype is None:
        element = dense.element if out is None else view(out).element
    else:
        element = element_type(out_dtype)
    if element.name not in ("f16", "bf16", "f32"):
        raise ValueError(f"out_dtype must be f16, bf16 or f32, got {element}")
    return element


def _where(x: ArrayView) -> str:
    return "the host" if x.device is None else f"cuda:{x.device}"


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
    warnings.warn(f"louver computes by the reference path on the CPU: {reason}", stacklevel=4)


def _deliver(y: NDArray[Any], like: ArrayView, out: Any) -> Any:
    """The reference path's result as the caller's kind of host array, written to `out` if there is one."""
    made = empty_like_kind(like, y.shape, element_type(y.dtype)) if out is None else out
    host = view(made).host
    if host is None:
        raise ValueError("out must be on the host, as the inputs are")
    host[...] = y
    return made


def _run(kind: str, s: SparseTensor, dense: DenseMatrix, bias: ArrayView | None, out: ArrayView) -> None:
    from louver.kernels.launch import run

    run(kind, s, dense, bias, rows_of(out), operands())
