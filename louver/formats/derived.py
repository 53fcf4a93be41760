"""Objects that other rooms derive from a sparse tensor: dropped with it, and refreshed when its values change."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from louver.formats.tensor import SparseTensor


class Derived(Protocol):
    """Something made of a tensor's values."""

    def refresh(self, s: SparseTensor) -> None:
        """Follow the values that `s` has now."""
        ...


T = TypeVar("T", bound=Derived)


class DerivedForms:
    """Objects derived from one tensor: one of each class. A tensor and its transposed views share it.

    views: those tensors, where there is more than one. lock: held while values change.
    """

    __slots__ = ("_followers", "_kept", "lock", "views")

    def __init__(self) -> None:
        self.views: weakref.WeakSet[SparseTensor] = weakref.WeakSet()
        self.lock = threading.RLock()
        self._kept: dict[type, Derived] = {}
        self._followers: weakref.WeakSet[Derived] = weakref.WeakSet()

    def find(self, kind: type[T]) -> T | None:
        """The object of this class, None before the first `of`."""
        return cast("T | None", self._kept.get(kind))

    def of(self, kind: type[T]) -> T:
        """The object of this class, made without arguments the first time. Threads get the same one."""
        return self.find(kind) or cast("T", self._kept.setdefault(kind, kind()))

    def follow(self, follower: Derived) -> None:
        """Refresh `follower` too, as long as someone else keeps it."""
        self._followers.add(follower)

    def refresh(self, s: SparseTensor) -> None:
        """Refresh everything."""
        for each in (*self._kept.values(), *self._followers):
            each.refresh(s)
