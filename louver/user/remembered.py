"""Sparse tensors of arrays that the user promised not to write, for as long as the arrays' memory lives."""

from __future__ import annotations

import importlib
import threading
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from louver.formats.tensor import SparseTensor
from louver.formats.torch_tensors import is_torch_tensor


def key_of(array: Any) -> Hashable:
    """The owner of an array's memory: PyTorch's storage, the NumPy array that others are views of, or the array itself. No
    other living owner has the key. An address would not do, because an allocator gives it to the next array.
    """
    return ("torch", array.untyped_storage()._cdata) if is_torch_tensor(array) else ("object", id(_root(array)))


def dead_of(array: Any) -> Callable[[], bool]:
    """Whether the owner of an array's memory is gone. Holds it weakly; until this function is dropped, PyTorch gives no
    other storage the key of this one.
    """
    if is_torch_tensor(array):
        reductions: Any = importlib.import_module("torch.multiprocessing.reductions")
        return reductions.StorageWeakRef(array.untyped_storage()).expired
    owner = weakref.ref(_root(array))
    return lambda: owner() is None


def _root(array: Any) -> Any:
    owner: Any = array
    while type(owner) is np.ndarray and type(owner.base) is np.ndarray:
        owner = owner.base
    return owner


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """The sparse tensors of one memory by the facts of its views; None for a view that holds no pattern."""

    dead: Callable[[], bool]
    found: dict[Hashable, SparseTensor | None] = field(default_factory=dict[Hashable, "SparseTensor | None"])


class Remembered:
    """Sparse tensors by memory. Threads may share it. The tensors of memory that is gone are dropped when other memory is
    added.
    """

    def __init__(self) -> None:
        self._entries: dict[Hashable, Entry] = {}
        self._lock = threading.RLock()

    def of(self, array: Any, facts: Hashable, make: Callable[[], SparseTensor | None]) -> SparseTensor | None:
        """The sparse tensor of an array, made once for each view. facts: of the view."""
        key = key_of(array)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.dead():
                for other in [other for other, each in self._entries.items() if each.dead()]:
                    del self._entries[other]
                entry = self._entries[key] = Entry(dead_of(array))
            if facts not in entry.found:
                entry.found[facts] = make()
            return entry.found[facts]

    def forget(self, array: Any) -> None:
        """Drop the sparse tensors of all views of an array's memory."""
        with self._lock:
            self._entries.pop(key_of(array), None)
