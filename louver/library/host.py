"""Products without a GPU. The result is the caller's kind of array."""

from __future__ import annotations

import functools
import threading
import warnings
import weakref
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from louver.choose.choose_tiles import broken_rule as lacking
from louver.formats.blocks import SCALED_COLUMNS
from louver.formats.dtypes import element_type, multiplied_as
from louver.formats.gated import interleaved
from louver.formats.pairs import unpack_pairs
from louver.formats.pattern import NoKernelWarning
from louver.formats.tensor import SparseTensor, stored_elements
from louver.frontend.epilogue import Epilogue
from louver.ir.product import unit_of
from louver.isa.narrow import SCALE, scale_values
from louver.isa.product_meaning import f32_to_tf32, read_tf32
from louver.isa.targets import TARGETS
from louver.library import reference
from louver.library.request import Request, broken_rule
from louver.runtime.arrays import ArrayView, empty_like_kind, view
from louver.runtime.callers import callers_level
from louver.runtime.device import Device, NoDevice, current_device, device

KEPT_BYTES: Final = 1 << 30
"""Most bytes of dense weights that are kept for later products, over all tensors."""


def usable_device(s: SparseTensor) -> Device | None:
    """The device for host arrays: that of `s`, else the current one. None, with one warning, if it has no kernel for
    `s`. The warning is a NoKernelWarning if arrays on that GPU would be refused.
    """
    rule = broken_rule(s)
    if rule is not None:
        _say_once(rule, NoKernelWarning)
        return None
    found = current_device() if s.device is None else device(s.device)
    if isinstance(found, NoDevice):
        _say_once(str(found))
    elif found.target not in TARGETS:
        _say_once(f"{found} has no kernel yet")
    elif (rule := lacking(TARGETS[found.target], str(s.pattern), s.dtype.name, s.dtype.name)) is not None:
        _say_once(rule, NoKernelWarning)
    else:
        return found
    return None


@functools.cache
def _say_once(reason: str, category: type[Warning] = UserWarning) -> None:
    warnings.warn(f"louver computes by the reference path on the CPU: {reason}", category, stacklevel=callers_level())


def by_reference(asked: Request, out: Any) -> Any:
    """The product of host arrays by `louver.library.reference`, written to `out` if the caller gave one."""
    fused, linear = asked.fused, asked.kind == "linear"
    x = asked.dense.to_numpy().view(asked.dense.element.numpy)
    if as_tf32(asked.s):
        x = read_tf32(x)
    elif asked.s.dtype.numbers > 1:
        x = unpack_pairs(x, axis=-1 if linear else -2)
    reads: dict[str, NDArray[Any] | float] = {name: array.to_numpy() for name, array in fused.arrays.items()}
    bias = reads.pop("bias", None)
    c = reads.pop("c", None)
    reads |= fused.bind(fused.places).numbers
    m, k = asked.s.shape[-2], asked.s.shape[-1] * asked.s.dtype.numbers
    # With one weight, all tokens are one product. In a batch, each entry is a product.
    leading = asked.weights if linear else asked.shape[:-2]
    batch = prod(leading)
    weights = asked.s.derived.of(DenseWeight).of(asked.s).reshape(-1, m, k)
    epilogue = fused.epilogue.after
    if fused.epilogue.scaled:
        of_rows, of_columns = (np.asarray(reads.pop(name)) for name in ("scale", "dense_scale"))
        if epilogue.gated:
            of_rows = interleaved(*np.split(of_rows, 2))
        weights = weights * _of_blocks(of_rows, k).reshape(-1, m, k)
        tokens = x if linear else x.swapaxes(-1, -2)
        tokens = tokens.astype(np.float32) * _of_blocks(of_columns, k).reshape(tokens.shape)
        x = tokens if linear else tokens.swapaxes(-1, -2)
    # Elements that are not stored are not multiplied, which only infinities and NaN show.
    stored = None if np.isfinite(x).all() else stored_elements(asked.s).reshape(-1, m, k)
    dense = x[None] if x.ndim == 2 else x.reshape((batch, -1, k) if linear else (batch, k, x.shape[-1]))
    added = None if c is None else np.asarray(c).reshape(batch, -1, asked.shape[-1])
    results: list[NDArray[Any]] = []
    for entry in range(batch):
        b = dense[entry % len(dense)].T if linear else dense[entry % len(dense)]
        if added is not None:
            reads["c"] = added[entry].T if linear else added[entry]
        # One column at a time, each sum over K has the same order for any N.
        parts = [slice(n, n + 1) for n in range(b.shape[1])] if asked.batch_invariant else [slice(None)]
        columns = [
            reference.product(
                weights[entry % len(weights)],
                b[:, part],
                None if bias is None else np.asarray(bias),
                asked.element.numpy,
                epilogue,
                _of_columns(reads, epilogue, part),
                asked.accumulate,
                None if stored is None else stored[entry % len(stored)],
            )
            for part in parts
        ]
        y = np.concatenate(columns, axis=1)
        results.append(y.T if linear else y)
    return _deliver(np.stack(results).reshape(asked.shape), asked.dense, out)


def _of_blocks(scales: Any, k: int) -> NDArray[np.float32]:
    """The factors of all columns, [rows, k], from the scales of blocks, bytes [..., blocks]."""
    rows = np.ascontiguousarray(scales).reshape(-1, scales.shape[-1])
    return scale_values(rows, SCALE).astype(np.float32).repeat(SCALED_COLUMNS, axis=1)[:, :k]


def _of_columns(reads: reference.Reads, epilogue: Epilogue, part: slice) -> reference.Reads:
    """The operands of an epilogue for some columns of the dense operand."""
    own = dict(reads)
    vectors = {"dense_bias": epilogue.dense_bias is not None, "dense_scale": epilogue.dense_scale == "column"}
    for name in (each for each, given in vectors.items() if given):
        own[name] = np.asarray(reads[name]).reshape(-1)[part]
    if epilogue.c is not None:
        own["c"] = np.asarray(reads["c"])[:, part]
    return own


def _deliver(y: NDArray[Any], like: ArrayView, out: Any) -> Any:
    made = empty_like_kind(like, y.shape, element_type(y.dtype)) if out is None else out
    host = view(made).host
    if host is None:
        raise ValueError("out must be on the host, as the inputs are")
    host[...] = y
    return made


def as_tf32(s: SparseTensor) -> bool:
    """Whether the kernels of products of `s` read its values and the dense operand as tf32."""
    pattern, dtype = str(s.pattern), s.dtype.name
    return multiplied_as(dtype) == "tf32" and broken_rule(s) is None and unit_of(pattern, dtype) == "wgmma"


class DenseWeight:
    """The dense form of one sparse tensor, `s.derived.of(DenseWeight)`: the values that kernels multiply, in the type in
    which the reference path computes.
    """

    def __init__(self) -> None:
        self.array: NDArray[Any] | None = None

    def of(self, s: SparseTensor) -> NDArray[Any]:
        """The dense form of `s`. It is made again after the values have changed, or after other weights have evicted
        it.
        """
        array = self.array
        if array is None:
            with s.derived.lock:
                array = np.asarray(s) if s.dtype.numbers == 1 else unpack_pairs(np.asarray(s))
                array = array.astype(reference.computed_in(array.dtype), copy=False)
                self.array = array = f32_to_tf32(array) if as_tf32(s) else array
        _dense_weights().used(self)
        return array

    def refresh(self, s: SparseTensor) -> None:
        """Drop the array, because the values have changed."""
        self.array = None


class _DenseWeights:
    """The most recently used dense weights, `KEPT_BYTES` at most in total. Their tensors own them."""

    def __init__(self) -> None:
        self._used: weakref.WeakKeyDictionary[DenseWeight, None] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def used(self, weight: DenseWeight) -> None:
        """Mark a weight as the most recently used, and drop the arrays of the oldest weights beyond `KEPT_BYTES`."""
        with self._lock:
            self._used.pop(weight, None)
            self._used[weight] = None
            room = KEPT_BYTES
            for each in reversed(list(self._used)):
                room -= 0 if each.array is None else each.array.nbytes
                if room < 0:
                    each.array = None
                    del self._used[each]


@functools.cache
def _dense_weights() -> _DenseWeights:
    return _DenseWeights()
