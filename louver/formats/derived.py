"""Objects that other rooms derive from a sparse tensor. They change and are freed with the tensor."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from louver.formats.tensor import SparseTensor


class Derived(Protocol):
    """An object that is computed from a tensor's values."""

    def refresh(self, s: SparseTensor) -> None:
        """Recompute the object from the current values of `s`."""
        ...


T = TypeVar("T", bound=Derived)


class DerivedForms:
    """Objects derived from a tensor, at most one of each class. A tensor and its transposed views share them.

    views: the tensors that share them, empty for a single tensor. lock: held while values change.
    """

    __slots__ = ("_followers", "_kept", "lock", "views")

    def __init__(self) -> None:
        self.views: weakref.WeakSet[SparseTensor] = weakref.WeakSet()
        self.lock = threading.RLock()
        self._kept: dict[type, Derived] = {}
        self._followers: weakref.WeakSet[Derived] = weakref.WeakSet()

    def find(self, kind: type[T]) -> T | None:
        """The object of this class, or None before the first call of `of`."""
        return cast("T | None", self._kept.get(kind))

    def of(self, kind: type[T]) -> T:
        """The object of this class. The first call makes it without arguments. All threads get the same object."""
        return self.find(kind) or cast("T", self._kept.setdefault(kind, kind()))

    def follow(self, follower: Derived) -> None:
        """Refresh `follower` too. Only a weak reference is held."""
        self._followers.add(follower)

    def beside(self, *kinds: type) -> list[Derived]:
        """The objects of other classes than these, and the followers."""
        return [each for each in (*self._kept.values(), *self._followers) if not isinstance(each, kinds)]

    def refresh(self, s: SparseTensor) -> None:
        for each in (*self._kept.values(), *self._followers):
            each.refresh(s)
