"""From the plain tensors `values` and `indices` to Louver's tensor, with the device forms that its products read.

Tensors are kept by the addresses of both arrays. A kept tensor owns none of their memory: it ends when PyTorch frees
the storage of either, because a freed address is used again. Each look-up checks the storage, the address and the
version of the indices.

Kernels read most values in place, so a product sees every write to them. Where a product needs a copy of the values
(another order, another rounding, padded rows, a NumPy array), the copy is kept only for values that do not require
grad and whose version says that nothing was written. PyTorch does not count writes by fused optimizers.
"""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import functools
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, cast

import numpy as np
import torch
from torch import Tensor

import louver
from louver.formats.dtypes import element_type
from louver.formats.gated import GatedTensor
from louver.formats.pattern import Pattern
from louver.formats.tensor import SparseTensor
from louver.library.forms import DeviceForm, Metadata
from louver.library.state import TensorState
from louver.runtime.arrays import view
from louver.torch.columns import RebuiltIndices, check_arrays, is_packed, natural

DEVICES: Final = ("cpu", "cuda")
"""The types of devices that hold sparse weights."""


class _Place:
    """Storage of a tensor, and how often it was written. `version` is None for tensors whose writes are not counted."""

    __slots__ = ("storage", "version")

    def __init__(self, x: Tensor, ended: Callable[[object], None]) -> None:
        self.storage = weakref.ref(x.untyped_storage(), ended)
        self.version = _version(x)

    def holds(self, x: Tensor) -> bool:
        """Whether `x` is in this storage, and has had no counted write since."""
        return _version(x) == self.version and x.untyped_storage() is self.storage()


def _version(x: Tensor) -> int | None:
    try:
        return x._version
    except RuntimeError:
        # A tensor that was made in inference mode.
        return None


class Turned:
    """What the mask of a tensor says of its transpose, see `louver.torch.turned`.

    dense: whether products with the transpose are dense: it keeps no pattern, or its kernels copy values. None: unknown.
    indices: of the transpose, along the rows of the weight; None if its mask keeps no pattern there.
    forms: those of these indices. Each transposed tensor reads them, and leaves those that it made.
    last: the last transposed tensor, with the address and the type of its values.
    captured: whether a CUDA graph reads the indices.
    """

    __slots__ = ("captured", "dense", "forms", "indices", "last")

    def __init__(self) -> None:
        self.dense: bool | None = None
        self.indices: Tensor | None = None
        self.forms = TensorState()
        self.last: tuple[SparseTensor, int, torch.dtype] | None = None
        self.captured = False


class Core:
    """A kept tensor. trainable: whether its values required grad when it was made. copied: whether its values are a
    copy. turned: of its indices.
    """

    __slots__ = ("__weakref__", "copied", "indices", "state", "tensor", "trainable", "turned", "values")

    def __init__(
        self,
        tensor: SparseTensor,
        values: Tensor,
        indices: Tensor,
        copied: bool,
        ended: Callable[[weakref.ref[Core]], None],
    ) -> None:
        self.tensor = tensor
        # The references are part of the core, so a core that was replaced drops nothing.
        mine = cast("weakref.ref[Core]", weakref.ref(self))
        self.values, self.indices = (_Place(x, lambda _: ended(mine)) for x in (values, indices))
        self.trainable = values.requires_grad
        self.copied = copied
        self.turned = Turned()
        self.state = tensor.derived.of(TensorState)

    def fits(self, values: Tensor, indices: Tensor) -> bool:
        """Whether products of the tensor are those of these arrays now. The arrays are at the addresses of its key."""
        if not self.indices.holds(indices):
            return False
        if not (self.copied or self.state.copies_values):
            return True
        return self.has_these_values(values)

    def has_these_values(self, values: Tensor) -> bool:
        """Whether a copy of the values is that of these, as far as PyTorch counts."""
        counted = not (self.trainable or values.requires_grad or self.values.version is None)
        return counted and self.values.holds(values)


class Cores:
    """The tensors of all weights, by the addresses of their arrays."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], Core] = {}
        # Keys by the address of the indices: a model with many experts has thousands of tensors.
        self._at: defaultdict[int, set[tuple[Any, ...]]] = defaultdict(set)
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._kept)

    def of(
        self, values: Tensor, indices: Tensor, pattern: str, size: int, *, gated: bool = False, entries: int = 0
    ) -> SparseTensor:
        """The tensor of these arrays. See `core_of`."""
        return self.core(values, indices, pattern, size, gated=gated, entries=entries).tensor

    def core(
        self, values: Tensor, indices: Tensor, pattern: str, size: int, *, gated: bool = False, entries: int = 0
    ) -> Core:
        """The kept tensor of these arrays."""
        key = (
            indices.data_ptr(),
            values.data_ptr(),
            values.shape,
            values.stride(),
            values.dtype,
            pattern,
            size,
            gated,
            entries,
        )
        core = self._kept.get(key)
        if core is not None and core.fits(values, indices):
            return core
        with self._lock:
            core = self._kept.get(key)
            if core is None or not core.fits(values, indices):
                core = self._kept[key] = self._made(key, values, indices)
                self._at[key[0]].add(key)
        return core

    def forget(self, *arrays: Tensor) -> None:
        """Drop the tensors that lie at the address of any of these arrays."""
        places = {x.data_ptr() for x in arrays}
        with self._lock:
            for key in [key for key in list(self._kept) if places & {key[0], key[1]}]:
                self._drop(key)

    def rewrite(self, values: Tensor, indices: Tensor) -> None:
        """Make the forms on a GPU anew in their memory, after both arrays were written in a way that PyTorch does not count.
        Captured graphs then read the new weight. On a CPU the next product makes them anew. Call `check_rewrite` before the
        arrays are written.
        """
        if not values.is_cuda:
            self.forget(values, indices)
        for core in self._cores(values, indices):
            core.turned = Turned()
            core.state.rewrite(core.tensor)

    def check_rewrite(self, values: Tensor, indices: Tensor) -> None:
        """Raises RuntimeError if a captured graph has a product with the transpose, whose indices would be the old ones."""
        if any(core.turned.captured for core in self._cores(values, indices)):
            raise RuntimeError(
                "a weight whose gradients a CUDA graph captured keeps its mask, got a write to it: take copy_, and capture again"
            )

    def move(self, values: Tensor, before: Tensor, after: Tensor) -> None:
        """Go on with the forms of a weight whose indices were packed and are natural codes in new memory now. Captured
        graphs read these forms, so the words stay alive.
        """
        for key, core in self._beside(before.data_ptr()):
            if key[1] == values.data_ptr():
                forms = [
                    replace(form, memory=before.detach()) if form.address == before.data_ptr() else form
                    for form in core.state.forms()
                ]
                pattern, size, gated, entries = key[5:]
                made = self.core(values, after, pattern, size, gated=gated, entries=entries)
                made.state.take(forms)
                made.turned = core.turned

    def find(self, values: Tensor, indices: Tensor) -> list[SparseTensor]:
        """The kept tensors that lie at the addresses of these arrays."""
        return [core.tensor for core in self._cores(values, indices)]

    def _cores(self, values: Tensor, indices: Tensor) -> list[Core]:
        places = (indices.data_ptr(), values.data_ptr())
        return [core for key, core in self._beside(places[0]) if key[:2] == places]

    def _made(self, key: tuple[Any, ...], values: Tensor, indices: Tensor) -> Core:
        *_, pattern, size, gated, entries = key
        tensor, copied = _tensor(values, indices, Pattern.parse(pattern), size, gated=gated, entries=entries)
        core = Core(tensor, values, indices, copied, functools.partial(self._end, key))
        related = self._related(key, indices)
        if related is not None:
            related.derived.of(TensorState).lend(tensor.derived.of(TensorState))
        return core

    def _end(self, key: tuple[Any, ...], core: weakref.ref[Core]) -> None:
        """Drop a kept tensor whose memory PyTorch frees, unless another one has its key."""
        ended = core()
        if ended is not None and self._kept.get(key) is ended:
            self._drop(key)

    def _drop(self, key: tuple[Any, ...]) -> None:
        self._kept.pop(key, None)
        keys = self._at.get(key[0])
        if keys is not None:
            keys.discard(key)
            if not keys:
                self._at.pop(key[0], None)

    def _beside(self, address: int) -> list[tuple[tuple[Any, ...], Core]]:
        """The kept tensors whose indices are at an address."""
        keys = list(self._at.get(address, ()))
        return [(key, core) for key in keys if (core := self._kept.get(key)) is not None]

    def _related(self, key: tuple[Any, ...], indices: Tensor) -> SparseTensor | None:
        """A kept tensor of the same indices and element type, whose forms of the indices another one can read."""
        for other, core in self._beside(key[0]):
            same = other[2] == key[2] and other[4:] == key[4:]
            if same and core.indices.holds(indices):
                return core.tensor
        return None


@functools.cache
def cores() -> Cores:
    """The tensors of this process."""
    return Cores()


def core_of(
    values: Tensor, indices: Tensor, pattern: str, size: int, *, gated: bool = False, entries: int = 0
) -> SparseTensor:
    """Louver's tensor [rows, size] of plain tensors, for products at once: it does not keep their memory alive.

    values: [rows, kept] of a sparse element type. indices: uint8, as in Louver's files, or packed (`louver.torch.columns`).
    gated: whether the rows are a pair of `louver.gated`, by turns.
    entries: if it is not 0, the rows are a batch of so many weights, and the tensor is [entries, rows / entries, size].

    The tensor is the one of an earlier call if that call's device forms still hold. Raises ValueError for arrays that
    do not fit, or that are in two places.
    """
    return cores().of(values, indices, pattern, size, gated=gated, entries=entries)


def borrowed(values: Tensor, indices: Tensor, pattern: str, size: int) -> SparseTensor:
    """The same for a tensor that ends with its values: nothing is kept, and its end does not wait for a GPU."""
    return _tensor(values, indices, Pattern.parse(pattern), size, gated=False, entries=0)[0]


def fresh(values: Tensor, indices: Tensor, pattern: str, size: int, entries: int = 0) -> SparseTensor:
    """Louver's tensor of plain tensors, with forms of its own. It keeps the memory of arrays on a GPU alive."""
    indices = natural(indices, values.shape[0], size)
    host = values.device.type == "cpu"
    parts: list[Any] = [view(x.detach().clone()).to_numpy() if host else x.detach() for x in (values, indices)]
    shape = _shape(values.shape[0], size, entries)
    return SparseTensor(Pattern.parse(pattern), element_type(values.dtype), shape, len(shape) - 1, *parts)


def _shape(rows: int, size: int, entries: int) -> tuple[int, ...]:
    return (entries, rows // entries, size) if entries else (rows, size)


def _tensor(
    values: Tensor, indices: Tensor, pattern: Pattern, size: int, *, gated: bool, entries: int
) -> tuple[SparseTensor, bool]:
    """The tensor of these arrays, without their owners, and whether it has a copy of the values."""
    check_arrays(values, indices, pattern, size)
    if values.device != indices.device:
        raise ValueError(
            f"values and indices are in one place, got values on {values.device} and indices on {indices.device}: move one"
        )
    if values.device.type not in DEVICES:
        raise ValueError(
            f"products with sparse weights run on the CPU and on GPUs of NVIDIA, got a weight on {values.device}: move it, or "
            "load it if it has no data"
        )
    kind = GatedTensor if gated else SparseTensor
    rows = values.shape[0]
    if values.device.type == "cpu":
        # Not views: a storage that NumPy sees can no longer be freed by `resize_`, as FSDP does.
        codes = natural(indices, rows, size)
        arrays: list[Any] = [view(x.detach().clone()).to_numpy() for x in (values, codes)]
    else:
        # Bytes: packed indices have no element type of Louver's.
        arrays = [replace(view(x.detach()), owner=None) for x in (values, indices.view(torch.uint8))]
    words = arrays[1] if is_packed(indices) and values.is_cuda else None
    if words is not None:
        arrays[1] = RebuiltIndices(indices, rows, size)
    shape = _shape(rows, size, entries)
    made = kind(pattern, element_type(values.dtype), shape, len(shape) - 1, *arrays)
    if words is not None:
        # Packed indices are what products read.
        form = DeviceForm(Metadata(), words.address, indices.nbytes, values.get_device(), words)
        made.derived.of(TensorState).take([form])
    return made, made.values is not arrays[0]


def compressed(w: Tensor, pattern: str, *, prune: bool = False) -> tuple[Tensor, Tensor, int]:
    """The plain tensors of a dense matrix [rows, size] that keeps a pattern along its last axis: values, indices, and
    the number of -0.0 that became +0.0. On the device of `w`; rows have no gaps.

    prune: prune the matrix first, by magnitude.

    Raises ValueError for a group of too many non-zeros.
    """
    s = louver.compress(w.detach(), pattern, method="magnitude" if prune else None)
    return torch_rows(s.values, w.dtype), torch_rows(s.indices, torch.uint8), s.negative_zeros_dropped


def torch_rows(rows: Any, dtype: torch.dtype) -> Tensor:
    """Rows without gaps as a tensor: a copy of a NumPy array, whose bits are those of `dtype`, or a tensor itself."""
    if isinstance(rows, Tensor):
        return rows.contiguous()
    whole = np.array(rows, order="C")
    return torch.from_numpy(whole.view(np.uint8)).view(dtype).reshape(whole.shape)
