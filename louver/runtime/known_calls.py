"""Calls of PyTorch's tensors that were checked before: a call whose facts are known needs no checks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from louver.runtime.adapters import torch_stream

K = TypeVar("K")
V = TypeVar("V")


def keep_recent(kept: dict[K, V], key: K, value: V, limit: int) -> V:
    """Remember and return a value among the latest; a dictionary that has `limit` of them begins anew."""
    # A subclass of dict would take longer to read.
    if len(kept) >= limit:
        kept.clear()
    kept[key] = value
    return value


class KnownCalls(Generic[V]):
    """Calls by keys that hold all that their checks looked at. Threads may share it: what is kept never changes.

    A subclass makes the keys, written out for its own arguments: these are the microseconds of a launch. types: of PyTorch's plain
    tensors, none before a call is kept. stream: a device's current one.
    """

    __slots__ = ("calls", "stream", "types")

    def __init__(self) -> None:
        self.calls: dict[Hashable, V] = {}
        self.types: tuple[type, ...] = ()
        self.stream: Callable[[int], int] = _no_stream

    def know_torch(self) -> bool:
        """Whether PyTorch is imported; its types are known from then on."""
        torch: Any = sys.modules.get("torch")
        if torch is not None and not self.types:
            self.stream = torch_stream(torch)
            self.types = (torch.Tensor, torch.nn.Parameter)
        return torch is not None


def _no_stream(ordinal: int) -> int:
    raise RuntimeError(f"no call on device {ordinal} is known yet")
