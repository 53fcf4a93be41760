"""Products without a GPU, with the result as the caller's kind of array."""

from __future__ import annotations

import functools
import threading
import warnings
import weakref
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import element_type
from louver.formats.tensor import SparseTensor
from louver.library import reference
from louver.library.request import Request, has_kernel
from louver.runtime.arrays import ArrayView, empty_like_kind, view
from louver.runtime.callers import callers_level
from louver.runtime.device import Device, NoDevice, current_device, device

KEPT_BYTES: Final = 1 << 30
"""Bytes of dense weights that are kept for further products, of all tensors together."""


def usable_device(s: SparseTensor) -> Device | None:
    """The device that host arrays are sent to, where `s` is or the current one, if it has kernels for `s`. Else None, and a notice, once."""
    found = current_device() if s.device is None else device(s.device)
    if isinstance(found, NoDevice):
        _say_once(str(found))
    elif found.target != "sm_90a":
        _say_once(f"{found} has no kernel yet")
    elif not has_kernel(s):
        _say_once(f"products of {s.pattern} and {s.dtype} have no kernel")
    else:
        return found
    return None


@functools.cache
def _say_once(reason: str) -> None:
    warnings.warn(f"louver computes by the reference path on the CPU: {reason}", stacklevel=callers_level())


def by_reference(asked: Request, out: Any) -> Any:
    """The product of host arrays by `louver.library.reference`, written to `out` if there is one."""
    fused, linear = asked.fused, asked.kind == "linear"
    x = asked.dense.to_numpy()
    reads: dict[str, NDArray[Any] | float] = {name: array.to_numpy() for name, array in fused.arrays.items()}
    bias = reads.pop("bias", None)
    c = reads.pop("c", None)
    reads |= fused.bind(fused.places).numbers
    m, k = asked.s.shape[-2:]
    # Tokens of one weight are one product; of a batch, each entry is.
    leading = asked.weights if linear else asked.shape[:-2]
    batch = prod(leading)
    weights = asked.s.derived.of(DenseWeight).of(asked.s).reshape(-1, m, k)
    dense = x[None] if x.ndim == 2 else x.reshape((batch, -1, k) if linear else (batch, k, x.shape[-1]))
    added = None if c is None else np.asarray(c).reshape(batch, -1, asked.shape[-1])
    results: list[NDArray[Any]] = []
    for entry in range(batch):
        b = dense[entry % len(dense)]
        if added is not None:
            reads["c"] = added[entry].T if linear else added[entry]
        y = reference.product(
            weights[entry % len(weights)],
            b.T if linear else b,
            None if bias is None else np.asarray(bias),
            asked.element.numpy,
            fused.epilogue,
            reads,
            asked.accumulate,
        )
        results.append(y.T if linear else y)
    return _deliver(np.stack(results).reshape(asked.shape), asked.dense, out)


def _deliver(y: NDArray[Any], like: ArrayView, out: Any) -> Any:
    made = empty_like_kind(like, y.shape, element_type(y.dtype)) if out is None else out
    host = view(made).host
    if host is None:
        raise ValueError("out must be on the host, as the inputs are")
    host[...] = y
    return made


class DenseWeight:
    """The dense form of one sparse tensor, `s.derived.of(DenseWeight)`, in the type that the reference path computes in."""

    def __init__(self) -> None:
        self.array: NDArray[Any] | None = None

    def of(self, s: SparseTensor) -> NDArray[Any]:
        """The dense form of `s`; made again when its values have changed, or when others have taken its place."""
        array = self.array
        if array is None:
            with s.derived.lock:
                array = self.array = s.to("cpu").dense().astype(reference.computed_in(s.dtype.numpy), copy=False)
        _dense_weights().used(self)
        return array

    def refresh(self, s: SparseTensor) -> None:
        """Forget it."""
        self.array = None


class _DenseWeights:
    """Those that were used last, up to `KEPT_BYTES` together; they are kept by their tensors."""

    def __init__(self) -> None:
        self._used: weakref.WeakKeyDictionary[DenseWeight, None] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def used(self, weight: DenseWeight) -> None:
        """Make it the last one used, and forget those that are too many."""
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
