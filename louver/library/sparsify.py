"""`louver.sparsify`: activations as the sparse operand of a product, compressed on the way.

On a GPU one kernel reads the activations and writes everything that products read: values, indices and metadata. Forms
that only register tiles read follow by kernels of their own, on the same stream.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from louver.formats.compress import compress
from louver.formats.dtypes import ElementType, element_type, raw_bits, shown
from louver.formats.dynamo import opaque
from louver.formats.gated import GatedTensor
from louver.formats.pattern import Pattern
from louver.formats.tensor import SparseTensor, empty_rows, frozen, set_fields
from louver.formats.torch_tensors import data_of
from louver.isa.convert import FP8_MAX, HALF_NAN, Fp8, FromF32, Half, fp8_from_f32
from louver.library.dense import named_view
from louver.library.forms import Metadata, Values, room
from louver.library.fused import NUMBERS, place_name
from louver.library.host import DenseWeight
from louver.library.resident import pitch_of
from louver.library.state import TensorState
from louver.library.streamed import empty_parts
from louver.library.streaming.launches import Stored, sparsify_into
from louver.library.streaming.record import LEAST_SCALE, Activation, Scaling
from louver.runtime.arrays import ArrayView, overlaps, view
from louver.runtime.dlpack import row_major
from louver.runtime.driver import is_capturing

PATTERN = Pattern(2, 4)

ROWS = "rows"
"""A scale for each row, that of its largest activation."""


def sparsified(
    x: NDArray[Any], stored: ElementType, activation: Activation | None, scale: float | str | None
) -> tuple[SparseTensor, NDArray[np.float32] | None]:
    """The sparse tensor of activations [..., K], and the scales of its rows if `scale` is `ROWS`.

    Kept are the two of four elements with the largest activations, which are not rounded yet. Of equals, the lowest
    index comes first. NaN counts as infinity. The activation, times the f32 reciprocal of the scale, is rounded once.
    """
    before = x if activation is None else _positive(x)
    kept = compress(before, PATTERN, method="magnitude")
    if activation is None and stored == kept.dtype:
        return kept, None
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        numbers = _activated(np.asarray(kept.values), activation)
        scales = None
        if scale is not None:
            if scale == ROWS:
                scales = _row_scales(_activated(before.reshape(kept.rows, -1), activation), cast("Fp8", stored.name))
            else:
                scales = np.float32(scale)
            numbers = numbers * (np.float32(1) / scales)
        values = empty_rows(kept.rows, kept.kept, stored)
        raw_bits(values)[...] = _rounded(numbers, stored)
    s = SparseTensor(PATTERN, stored, kept.shape, kept.axis, frozen(values), kept.indices, library=kept.library)
    return s, scales.reshape(-1) if isinstance(scales, np.ndarray) else None


def _activated(before: NDArray[Any], activation: Activation | None) -> NDArray[np.float32]:
    """The activations of elements that are positive already, if the activation makes them so."""
    numbers = before.astype(np.float32)
    return numbers if activation is None else numbers * numbers


def _positive(x: NDArray[Any]) -> NDArray[Any]:
    """max(x, 0); NaN stays NaN."""
    with np.errstate(invalid="ignore"):
        above = x > 0
    found = np.where(above, raw_bits(x), 0).astype(raw_bits(x).dtype)
    return np.where(np.isnan(x.astype(np.float32)), HALF_NAN, found).astype(np.uint16).view(x.dtype)


def _row_scales(numbers: NDArray[np.float32], to: Fp8) -> NDArray[np.float32]:
    """The scales [rows, 1]. NaNs do not count."""
    # `fmax` would keep a signalling NaN.
    sizes = np.where(np.isnan(numbers), np.float32(0), np.abs(numbers))
    largest = sizes.max(axis=1, keepdims=True, initial=np.float32(0))
    return np.maximum(largest / np.float32(FP8_MAX[to]), np.float32(LEAST_SCALE))


def _rounded(numbers: NDArray[np.float32], stored: ElementType) -> NDArray[Any]:
    """Raw bits of numbers, to nearest even; 8-bit types saturate."""
    if stored.bits == 8:
        return fp8_from_f32(cast("Fp8", stored.name), numbers)
    return FromF32(cast("Half", stored.name)).compute(np.ascontiguousarray(numbers).view(np.uint32))[0]


ELEMENTS = ("f16", "bf16")
"""Types of activations."""

NARROW = "e4m3"
"""The type of values that have a scale."""


class _Scale(NamedTuple):
    """Where a scale is. array: of one f32, or of one for each row."""

    kind: Scaling
    number: float = 0.0
    array: ArrayView | None = None

    @property
    def for_kernel(self) -> tuple[Scaling, int]:
        """The argument of `sparsify_into`."""
        if self.array is not None:
            return self.kind, self.array.address
        return self.kind, int(np.float32(self.number).view(np.uint32))

    @property
    def for_host(self) -> float | str:
        """The argument of `sparsified`."""
        if self.kind == "rows":
            return ROWS
        return self.number if self.array is None else float(self.array.to_numpy().reshape(-1)[0])


@opaque
def sparsify(
    x: Any,
    out: SparseTensor | None = None,
    *,
    activation: Activation | None = None,
    dtype: object = None,
    scale: Any = None,
    row_scales: Any = None,
) -> SparseTensor:
    """Activations [..., K] as a sparse tensor that keeps 2:4 along K: `louver.matmul(louver.sparsify(h), w.T)`.

    Of each four elements, the two with the largest |activation(x)| are kept, before rounding; of equals, the lowest
    index. The others become 0: this changes the product unless they were 0.

    x: f16 or bf16, at least two axes, on a GPU or on the host. The results are the same bits.
    out: the tensor to write: 2:4 along its last axis, of x's shape, on x's device. By default a new one.
    activation: "relu2", max(x, 0)², or None. In f32, rounded once.
    dtype: of the stored values: x's, or e4m3. By default that of `out`, else x's. For e4m3 one of:
        scale: a positive number, or an array of one f32. Stored is activation(x) / scale, saturated at ±448. The product
            takes the same `scale`.
        row_scales: f32 array of x.shape[:-1], which is written: max |activation| of the row / 448, at least 2^-126. The
            product takes it as `scale`.

    NaN counts as infinity in the choice, and stays NaN. Infinity as e4m3 is ±448, but NaN with row_scales, whose scale
    is then infinite. -0.0 counts as 0.

    On a GPU the call sends one kernel to x's current stream. It waits for nothing, and with `out` it allocates nothing
    after its first call, so it may be captured into a graph. Everything that was made of `out` follows: its transposed
    views, its plans, and graphs that captured them. Products on another stream must be ordered after it. A captured call
    seals the tensor: its plans must be made before the capture. Keep x, `out` and the scales as long as the graph.

    Raises ValueError, TypeError, or RuntimeError during a capture, with the rule, before anything is written.
    """
    source = named_view("x", data_of(x), ELEMENTS)
    if source.element.name not in ELEMENTS:
        raise ValueError(f"x must be of {' or '.join(ELEMENTS)}, got {source.element}: convert it first")
    if len(source.shape) < 2:
        raise ValueError(f"x is [..., K] with at least two axes, got shape {list(source.shape)}: give x[None]")
    if activation not in (None, "relu2"):
        raise ValueError(f'activation is "relu2" or None, got {shown(activation)}: apply another one before')
    if out is not None:
        _check_out(out, source)
    stored = _stored(dtype, out, source.element)
    scaling = _scaling(source, stored, scale, row_scales)
    if scaling is not None and scaling.kind == "rows":
        _check_apart(cast("ArrayView", scaling.array), source, out)
    if source.device is None:
        return _on_host(source, out, stored, activation, scaling)
    return _on_device(source, out, stored, activation, scaling)


def _check_out(out: object, source: ArrayView) -> None:
    if not isinstance(out, SparseTensor) or isinstance(out, GatedTensor):
        raise TypeError(f"out is a louver.SparseTensor, got {type(out).__name__}: leave it out to make one")
    if (out.pattern, out.axis, out.shape) != (PATTERN, out.ndim - 1, source.shape):
        raise ValueError(
            f"out keeps {PATTERN} along its last axis and has x's shape {list(source.shape)}, got {out!r}: leave it out to make one"
        )
    if out.device != source.device:
        raise ValueError(f"x and out must be in one place, got x on {place_name(source.device)} and {out!r}: move one")
    # The dense form of a tensor on the host is made anew; a captured pass on a GPU could not do that.
    others = out.derived.beside(TensorState, *([DenseWeight] if out.device is None else []))
    if others:
        raise ValueError(
            f"louver.sparsify writes what products of one tensor read, got one of which a {type(others[0]).__name__.lower()} was made: "
            "give another tensor"
        )


def _stored(dtype: object, out: SparseTensor | None, element: ElementType) -> ElementType:
    wanted = element_type(cast("Any", dtype)) if dtype is not None else None
    stored = out.dtype if out is not None else wanted or element
    if wanted is not None and wanted != stored:
        raise ValueError(f"dtype is that of out, {stored}, got {wanted}: leave one out")
    if stored.name not in (element.name, NARROW):
        raise ValueError(f"values are of x's type, {element}, or {NARROW}, got {stored}: convert x, or give dtype")
    return stored


def _scaling(source: ArrayView, stored: ElementType, scale: Any, row_scales: Any) -> _Scale | None:
    if stored.name != NARROW:
        if scale is not None or row_scales is not None:
            raise ValueError(f'values of {stored} have no scale, got one: give dtype="{NARROW}", or leave it out')
        return None
    if (scale is None) == (row_scales is None):
        raise ValueError(
            f"values of {NARROW} have either a scale or row_scales, got {'neither' if scale is None else 'both'}: give one"
        )
    if row_scales is not None:
        return _Scale("rows", array=_of_rows(row_scales, source))
    if isinstance(scale, NUMBERS) and not isinstance(scale, bool):
        with np.errstate(over="ignore"):
            number = float(np.float32(cast("float", scale)))
        if not 0 < number < np.inf:
            raise ValueError(f"scale is a positive number of f32, got {scale}")
        return _Scale("number", number)
    array = named_view("scale", scale, ("f32",))
    if array.element.name != "f32" or array.size != 1 or array.device != source.device:
        raise ValueError(
            f"scale is a number, or an array of one f32 on {place_name(source.device)}, got {array.element} {list(array.shape)} on "
            f"{place_name(array.device)}"
        )
    return _Scale("array", array=array)


def _of_rows(row_scales: Any, source: ArrayView) -> ArrayView:
    array = named_view("row_scales", row_scales, ("f32",))
    shape = source.shape[:-1]
    fits = array.shape in (shape, (prod(shape),)) and array.strides == row_major(array.shape)
    if array.element.name != "f32" or not fits or array.device != source.device or not array.writable:
        raise ValueError(
            f"row_scales is a contiguous array of f32 {list(shape)} on {place_name(source.device)}, to be written, got {array.element} "
            f"{list(array.shape)} on {place_name(array.device)}"
        )
    return array


def _check_apart(scales: ArrayView, source: ArrayView, out: SparseTensor | None) -> None:
    held = [] if out is None else [view(out.values), view(out.indices)]
    if any(overlaps(scales, each) for each in (source, *held)):
        raise ValueError("row_scales overlaps x or out: give an array of its own")


def _on_host(
    source: ArrayView,
    out: SparseTensor | None,
    stored: ElementType,
    activation: Activation | None,
    scaling: _Scale | None,
) -> SparseTensor:
    s, scales = sparsified(source.to_numpy(), stored, activation, scaling and scaling.for_host)
    if scales is not None and scaling is not None and scaling.array is not None:
        written = scaling.array.to_numpy()
        written[...] = scales.reshape(written.shape)
    if out is None:
        set_fields(s, library="torch" if source.kind == "torch" else "numpy")
        return s
    with out.derived.lock:
        set_fields(out, values=s.values, indices=s.indices, negative_zeros_dropped=s.negative_zeros_dropped)
        for kind in (TensorState, DenseWeight):
            made = out.derived.find(kind)
            if isinstance(made, TensorState):
                made.rewrite(out)
            elif made is not None:
                made.refresh(out)
    return out


def _on_device(
    source: ArrayView,
    out: SparseTensor | None,
    stored: ElementType,
    activation: Activation | None,
    scaling: _Scale | None,
) -> SparseTensor:
    ordinal, stream = source.device or 0, source.stream or 0
    captured = is_capturing(stream)
    if out is None:
        if captured:
            raise RuntimeError(
                "a sparse tensor is not made while a stream is captured: make it by louver.sparsify(x) before the capture, and "
                "give it as out"
            )
        axis = len(source.shape) - 1
        values, indices, _ = empty_parts(source, PATTERN, axis, stored)
        out = SparseTensor(PATTERN, stored, source.shape, axis, values, indices)
    state = out.derived.of(TensorState)
    with out.derived.lock:
        state.check_rewritable()
        if not source.size:
            return out
        metadata, held = None, state.find(Metadata(), ordinal)
        if held is None:
            if captured:
                raise RuntimeError(
                    "a tensor gets memory for its metadata at the first call, which is not captured: make the same call once before "
                    "the capture"
                )
            metadata = held = room(Metadata(), out, ordinal)
        values = view(out.values)
        launch = sparsify_into(
            source,
            Stored(values.address, pitch_of(values), view(out.indices).address),
            stored,
            activation=activation,
            scale=scaling and scaling.for_kernel,
            words=held.address,
        )
        launch.ready(ordinal, stream)
        others = [each for each in state.forms() if each.form not in (Metadata(), Values())]
        after = [each.form.follow(out, each.address, stream) for each in others]
        state.written(metadata, captured=captured)
        launch.send(ordinal, stream)
        for write in after:
            write()
        set_fields(out, negative_zeros_dropped=0)
    return out
