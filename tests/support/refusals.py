"""Calls of products that must be refused, the same for every array library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

import louver
from louver.formats.dtypes import element_type
from louver.formats.tensor import SparseTensor

M, N, K = 70, 24, 40


class Arrays(Protocol):
    """An array library: where it differs from the others."""

    def full(self, shape: tuple[int, ...], dtype: str, value: float = 1.0) -> Any:
        """An array with one value in every element."""
        ...

    def repeated(self, x: Any, shape: tuple[int, ...]) -> Any:
        """A view that repeats `x` by strides of 0."""
        ...

    def strided(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        """A view from the first element of `x` on, by strides in elements."""
        ...

    def bytes(self, x: Any) -> bytes:
        """The elements' raw bytes in row-major order."""
        ...


@dataclass(frozen=True)
class Refusal:
    """call: given a library and an output to leave alone, [M, N] for matmul and [N, M] for linear. match: of the message.
    device_only: the reference path takes it.
    """

    name: str
    kind: str
    call: Callable[[Arrays, Any], Any]
    match: str
    error: type[Exception] = ValueError
    device_only: bool = False


def sparse(dtype: str = "f16", pattern: str = "2:4", axis: int = -1, shape: tuple[int, ...] = (M, K)) -> SparseTensor:
    """Random weights."""
    w = np.random.default_rng(7).integers(1, 5, shape).astype(element_type(dtype).numpy)
    return louver.compress(louver.prune(w, pattern, axis=axis), pattern, axis=axis)


def _b(xp: Arrays) -> Any:
    return xp.full((K, N), "f16")


def _x(xp: Arrays) -> Any:
    return xp.full((N, K), "f16")


def _overlapping_matmul(xp: Arrays) -> Any:
    whole = xp.full((M + K, N), "f16")
    return louver.matmul(sparse(), whole[:K], out=whole[K - 1 : K - 1 + M])


def _overlapping_bias(xp: Arrays) -> Any:
    whole = xp.full((N, M), "f16")
    return louver.linear(_x(xp), sparse(), whole[0], out=whole)


REFUSALS = (
    Refusal("K of b", "matmul", lambda xp, out: louver.matmul(sparse(), xp.full((K + 1, N), "f16"), out=out), r"K = 40, got shape \[41, 24\]"),
    Refusal("transposed b", "matmul", lambda xp, out: louver.matmul(sparse(), xp.full((N, K), "f16"), out=out), r"got shape \[24, 40\]"),
    Refusal("b of one axis", "matmul", lambda xp, out: louver.matmul(sparse(), xp.full((K,), "f16"), out=out), "b must be"),
    Refusal("out without b's batch", "matmul", lambda xp, out: louver.matmul(sparse(), xp.full((2, K, N), "f16"), out=out), r"shape \[2, 70, 24\], got \[70, 24\]"),
    Refusal("out over a batch", "matmul", lambda xp, out: louver.matmul(sparse(), xp.full((2, K, N), "f16"), out=xp.repeated(out[None], (2, M, N))), "writable"),
    Refusal("K of a batch", "matmul", lambda xp, out: louver.matmul(sparse(), xp.full((2, K + 1, N), "f16"), out=out), r"b must be \[..., K, N\] with K = 40, got shape \[2, 41, 24\]"),
    Refusal("batches of two sizes", "matmul", lambda xp, out: louver.matmul(sparse(shape=(2, M, K)), xp.full((3, K, N), "f16"), out=out), r"b must be \[K, N\] or \[2, K, N\] with K = 40, got shape \[3, 40, 24\]"),
    Refusal("tokens of a batch of weights", "linear", lambda xp, out: louver.linear(xp.full((3, N, K), "f16"), sparse(shape=(2, M, K)), out=out), r"x must be \[N, K\] or \[2, N, K\] with K = 40, got shape \[3, 24, 40\]"),
    Refusal("s of one axis", "matmul", lambda xp, out: louver.matmul(sparse(shape=(K,)), _b(xp), out=out), r"s must be \[..., M, K\]"),
    Refusal("c of another batch", "matmul", lambda xp, out: louver.matmul(sparse(), xp.full((2, K, N), "f16"), c=xp.full((3, M, N), "f16")), r"output's shape \[2, 70, 24\], got \[3, 70, 24\]"),
    Refusal("bias of a batch", "matmul", lambda xp, out: louver.matmul(sparse(shape=(2, M, K)), _b(xp), bias=xp.full((2, M), "f16")), r"bias must be \[M\] with M = 70, got shape \[2, 70\]"),
    Refusal("type of b", "matmul", lambda xp, out: louver.matmul(sparse(), xp.full((K, N), "bf16"), out=out), "one element type, got bf16 and f16"),
    Refusal("f32 b", "matmul", lambda xp, out: louver.matmul(sparse(), xp.full((K, N), "f32"), out=out), "one element type"),

    Refusal("dense s", "matmul", lambda xp, out: louver.matmul(_b(xp), _b(xp), out=out), "louver.compress", TypeError),
    Refusal("a list", "matmul", lambda xp, out: louver.matmul(sparse(), [[1.0]], out=out), "expected an array", TypeError),
    Refusal("axis", "matmul", lambda xp, out: louver.matmul(sparse(axis=0), _b(xp), out=out), "along K, its last axis"),
    Refusal("out without s's batch", "matmul", lambda xp, out: louver.matmul(sparse(shape=(2, M, K)), _b(xp), out=out), r"shape \[2, 70, 24\], got \[70, 24\]"),
    Refusal("s without rows", "matmul", lambda xp, out: louver.matmul(sparse(shape=(0, K)), _b(xp), out=out), "at least one row"),
    Refusal("type of s", "matmul", lambda xp, out: louver.matmul(sparse("f32"), xp.full((K, N), "f32"), out=out), r"GPUs have products of 2:4 for f16, .*; and of f32 for 1:2, N:M, N:M@L, got 2:4 f32: convert the weight before compress, as w\.astype\(np\.float16\)", device_only=True),
    Refusal("accumulate", "matmul", lambda xp, out: louver.matmul(sparse(), _b(xp), out=out, accumulate="promoted"), "accumulate"),
    Refusal("out_dtype", "matmul", lambda xp, out: louver.matmul(sparse(), _b(xp), out=out, out_dtype="s32"), "out_dtype must be"),
    Refusal("out and out_dtype", "matmul", lambda xp, out: louver.matmul(sparse(), _b(xp), out=out, out_dtype="f32"), "out must have element type f32, got f16"),
    Refusal("shape of out", "matmul", lambda xp, out: louver.matmul(sparse(), _b(xp), out=out[:-1]), r"shape \[70, 24\], got \[69, 24\]"),
    Refusal("transposed out", "matmul", lambda xp, out: louver.matmul(sparse(), _b(xp), out=xp.full((N, M), "f16").T), "rows must be contiguous", device_only=True),
    Refusal("every other column of out", "matmul", lambda xp, out: louver.matmul(sparse(), _b(xp), out=xp.full((M, 2 * N), "f16")[:, ::2]), "rows must be contiguous", device_only=True),
    Refusal("broadcast out", "matmul", lambda xp, out: louver.matmul(sparse(), _b(xp), out=xp.repeated(out[:1], (M, N))), "writable"),
    Refusal("out over itself", "matmul", lambda xp, out: louver.matmul(sparse(), _b(xp), out=xp.strided(out, (M, N), (N - 1, 1))), "elements must not overlap each other"),
    Refusal("columns of out over each other", "linear", lambda xp, out: louver.linear(_x(xp), sparse(), out=xp.strided(out, (N, M), (8, 1))), "elements must not overlap each other"),
    Refusal("out over b", "matmul", lambda xp, out: _overlapping_matmul(xp), "overlap"),
    Refusal("K of x", "linear", lambda xp, out: louver.linear(xp.full((N, K - 1), "f16"), sparse(), out=out), r"K = 40, got shape \[24, 39\]"),
    Refusal("x without axes", "linear", lambda xp, out: louver.linear(xp.full((), "f16"), sparse(), out=out), "x must be"),
    Refusal("type of x", "linear", lambda xp, out: louver.linear(xp.full((N, K), "bf16"), sparse(), out=out), "one element type"),
    Refusal("shape of bias", "linear", lambda xp, out: louver.linear(_x(xp), sparse(), xp.full((M + 1,), "f16"), out=out), r"out = 70, got shape \[71\]"),
    Refusal("bias of two axes", "linear", lambda xp, out: louver.linear(_x(xp), sparse(), xp.full((1, M), "f16"), out=out), "bias must be"),
    Refusal("type of bias", "linear", lambda xp, out: louver.linear(_x(xp), sparse(), xp.full((M,), "s32"), out=out), "bias must be of f16 or bf16 or f32 for operands of f16, got s32"),
    Refusal("shape of linear's out", "linear", lambda xp, out: louver.linear(_x(xp), sparse(), out=out.T), r"shape \[24, 70\], got \[70, 24\]"),
    Refusal("out over bias", "linear", lambda xp, out: _overlapping_bias(xp), "overlap"),
)  # fmt: skip
