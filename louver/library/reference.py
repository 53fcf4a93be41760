"""The reference path: products with NumPy, for machines without a GPU and for checks in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import element_type
from louver.formats.gated import GATE_ROWS
from louver.frontend.epilogue import ACTIVATIONS, NO_EPILOGUE, Epilogue
from louver.isa.elementwise import ELEMENTWISE_STEPS
from louver.isa.floating import f32_to_odd
from louver.library.numerics import ACCUMULATIONS, ACTIVATION_ERROR, ACTIVATION_SLOPE, LIMITS

Array = NDArray[Any]
Float64 = NDArray[np.float64]

Reads: TypeAlias = Mapping[str, "Array | float"]
"""The operands of an epilogue by option: numbers, one-element arrays, vectors, and `c` as [M, N]."""

SMALLEST_UNIT = 2.0**-21
"""The least factor by which bounds multiply magnitudes (see `numerics.coefficients`): 4 · 2^-23."""


def product(
    a: Array,
    b: Array,
    bias: Array | None,
    out: np.dtype[Any],
    epilogue: Epilogue = NO_EPILOGUE,
    reads: Reads | None = None,
    accumulate: str = "auto",
    stored: NDArray[np.bool_] | None = None,
) -> Array:
    """`a [M, K] @ b [K, N] (+ bias [M] by rows)` and the epilogue, [M, N], rounded once to `out`. The steps are those
    of the kernels.

    a: b's element type or another type of its size, or already the type of `computed_in`.
    accumulate: "f16" rounds the sum to float16 after the columns of K of each instruction: 32 for 16-bit operands, 64
        for 8-bit operands. Such sums overflow like float16. All other modes are computed in float32.
    stored: [M, K], the elements of a sparse `a` that are multiplied. Others matter only where b is infinite or NaN, so
        None, for all of them, does for a finite b.

    Floating-point operands accumulate in float32. Integers, with an integer bias, accumulate exactly and wrap to int32.
    8-bit outputs saturate. A gated product has the shape [M / 2, N].
    """
    wide = computed_in(b.dtype)
    if np.issubdtype(b.dtype, np.integer):
        exact = (a.astype(wide, copy=False) @ b.astype(wide)).astype(np.int64)
        if bias is not None and not epilogue.floating:
            exact += bias.astype(np.int64)[:, None]
        wrapped = exact.astype(np.int32)
        if not epilogue.floating:
            return _rounded(wrapped.astype(np.float64), out)
        y = wrapped.astype(np.float32)
    elif accumulate == "f16":
        y = _summed_in_f16(a, b, stored)
    else:
        y = _sums(a.astype(wide, copy=False), b.astype(wide), stored)
    return _rounded(_finished(y, bias, epilogue, reads or {}).astype(np.float64), out)


def computed_in(operand: np.dtype[Any]) -> type[np.floating[Any]]:
    """The type in which the reference path sums products of such operands.

    float64 holds the sum of fewer than 2^37 products of 8-bit integers exactly.
    """
    return np.float64 if np.issubdtype(operand, np.integer) else np.float32


def _sums(a: Array, b: Array, stored: NDArray[np.bool_] | None) -> Array:
    """a @ b over the stored elements of a, in their type. Sums may overflow, like those on a device."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = a @ b
        if stored is not None:
            columns = np.flatnonzero(~np.isfinite(b).all(axis=0))
            some = b[:, columns]
            for row, kept in enumerate(stored):
                # Unlike a product of BLAS, `einsum` never skips a zero, which makes NaN of an infinity.
                total[row, columns] = np.einsum("k,kn->n", a[row, kept], some[kept])
    return total


def _summed_in_f16(a: Array, b: Array, stored: NDArray[np.bool_] | None) -> Array:
    """The product in float16 arithmetic, as f32 [M, N]: each instruction adds its exact part to the sum, and rounds the
    sum.
    """
    columns = 64 // b.dtype.itemsize
    total = np.zeros((a.shape[0], b.shape[1]), np.float16)
    for k in range(0, a.shape[1], columns):
        step = slice(k, k + columns)
        own = None if stored is None else stored[:, step]
        part = _sums(a[:, step].astype(np.float64), b[step].astype(np.float64), own)
        with np.errstate(over="ignore", invalid="ignore"):
            total = (total.astype(np.float64) + part).astype(np.float16)
    return total.astype(np.float32)


def exact_product(
    a: Array,
    b: Array,
    bias: Array | None = None,
    epilogue: Epilogue = NO_EPILOGUE,
    reads: Reads | None = None,
    accumulate: str = "f32",
) -> tuple[Float64, Float64]:
    """The product in float64, and the magnitude that bounds its rounding errors: both [M, N], or [M / 2, N] if gated.

    The magnitude is Σ|a||b| (+ |bias|). An epilogue scales it and adds to it in the same way as to the sum, and adds
    its own errors. With an epilogue, the magnitude is infinite where partial sums can be infinite.

    accumulate: a key of `ACCUMULATIONS`, which has the greatest finite sum.
    """
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    total, magnitude = wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b)
    given = reads or {}
    if epilogue != NO_EPILOGUE:
        magnitude[magnitude > ACCUMULATIONS[accumulate].largest] = np.inf
    return _finished(total, bias, epilogue, given), _magnitude(total, magnitude, bias, epilogue, given)


def _finished(total: Array, bias: Array | None, epilogue: Epilogue, reads: Reads) -> Array:
    """The epilogue of sums [M, N], in the floating-point type of the sums."""
    with np.errstate(all="ignore"):
        if epilogue.gated:
            gate, up = _affine_parts(total, bias, epilogue, reads)
            y = _activated(gate, epilogue) * up
        else:
            y = _activated(_affine(total, bias, epilogue, reads), epilogue)
        return y if epilogue.out_scale is None else y * _as(y, reads["out_scale"]).reshape(())


def _magnitude(total: Array, magnitude: Array, bias: Array | None, epilogue: Epilogue, reads: Reads) -> Array:
    """The magnitude of the errors of `_finished`, from that of the sums."""
    absolute = {name: np.abs(_as(total, value)) for name, value in reads.items()}
    size = None if bias is None else np.abs(_as(total, bias))
    with np.errstate(all="ignore"):
        if epilogue.gated:
            gate, up = _affine_parts(total, bias, epilogue, reads)
            gates, ups = _affine_parts(magnitude, size, epilogue, absolute)
            gates = _through_activation(gate, gates, epilogue)
            # The product of both errors is small compared with the other terms, except if a factor is near zero.
            result = np.abs(up) * gates + np.abs(_activated(gate, epilogue)) * ups + 2.0**-9 * gates * ups
        else:
            argument = _affine(total, bias, epilogue, reads)
            result = _through_activation(argument, _affine(magnitude, size, epilogue, absolute), epilogue)
        return result if epilogue.out_scale is None else result * absolute["out_scale"].reshape(())


def _through_activation(argument: Array, magnitude: Array, epilogue: Epilogue) -> Array:
    if epilogue.activation is None:
        return magnitude
    return ACTIVATION_SLOPE * magnitude + ACTIVATION_ERROR / SMALLEST_UNIT * np.abs(argument)


def _affine_parts(total: Array, bias: Array | None, epilogue: Epilogue, reads: Reads) -> tuple[Array, Array]:
    """Gate and up of a gated product, after the affine steps. Each has its own rows, and its half of the vectors along
    the rows.
    """
    rows, columns = total.shape
    blocks = total.reshape(-1, 2, GATE_ROWS, columns)
    halves: list[Array] = []
    for index in (0, 1):
        half = slice(index * (rows // 2), (index + 1) * (rows // 2))
        own = dict(reads)
        if epilogue.scale == "row":
            own["scale"] = np.asarray(reads["scale"])[half]
        part = blocks[:, index].reshape(-1, columns)
        halves.append(_affine(part, None if bias is None else bias[half], epilogue, own))
    return halves[0], halves[1]


def _affine(total: Array, bias: Array | None, epilogue: Epilogue, reads: Reads) -> Array:
    """The sums times alpha and the scales, plus the biases and c."""
    y = total
    if epilogue.alpha:
        y = y * _as(y, reads["alpha"])
    if epilogue.scale is not None:
        y = y * _as(y, reads["scale"]).reshape(-1, 1)
    if epilogue.dense_scale is not None:
        y = y * _as(y, reads["dense_scale"]).reshape(1, -1)
    if bias is not None:
        y = y + _as(y, bias)[:, None]
    if epilogue.dense_bias is not None:
        y = y + _as(y, reads["dense_bias"]).reshape(1, -1)
    if epilogue.c is not None:
        y = y + _as(y, reads["c"]) * _as(y, reads["beta"])
    return y


def _activated(y: Array, epilogue: Epilogue) -> Array:
    if epilogue.activation is None:
        return y

    def step(name: str, *operands: Any) -> Array:
        return ELEMENTWISE_STEPS[name].meaning(*(_as(y, x) for x in operands)).astype(y.dtype)

    return ACTIVATIONS[epilogue.activation](step, y)


def _as(like: Array, value: Array | float) -> Array:
    """The value in the type of `like`."""
    return np.asarray(value).astype(like.dtype)


def _rounded(exact: Float64, out: np.dtype[Any]) -> Array:
    """float64 values rounded once to `out`."""
    if out.itemsize == 4:
        return exact.astype(out)
    limits = LIMITS.get(element_type(out).name)
    clipped = exact if limits is None else np.clip(exact, *limits)
    if not element_type(out).floating:
        return np.rint(np.where(np.isnan(clipped), 0.0, clipped)).astype(out)
    with np.errstate(over="ignore"):
        return f32_to_odd(clipped).astype(out)
