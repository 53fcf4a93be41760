"""Calls of PyTorch's tensors that were checked before: a call whose facts are known needs no checks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

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


Same: TypeAlias = Callable[..., bool]
"""Whether tensors have the facts that others had: type, element type, shape, strides, device and what PyTorch has yet to do to them."""


class KnownCalls(Generic[V]):
    """Calls by keys that hold all that their checks looked at. Threads may share it: what is kept never changes.

    A subclass makes the keys, written out for its own arguments: these are the microseconds of a launch. types: of PyTorch's plain
    tensors, none before a call is kept. stream: a device's current one. guard: gives a quicker comparison with the facts of tensors
    than keys are, None where PyTorch has none.
    """

    __slots__ = ("calls", "guard", "stream", "types")

    def __init__(self) -> None:
        self.calls: dict[Hashable, V] = {}
        self.types: tuple[type, ...] = ()
        self.stream: Callable[[int], int] = _no_stream
        self.guard: Callable[[Sequence[Any]], Same] | None = None

    def know_torch(self) -> bool:
        """Whether PyTorch is imported; its types are known from then on."""
        torch: Any = sys.modules.get("torch")
        if torch is not None and not self.types:
            self.stream = torch_stream(torch)
            self.guard = _guard(torch)
            self.types = (torch.Tensor, torch.nn.Parameter)
        return torch is not None


def never(*tensors: Any) -> bool:
    """No tensors are the same."""
    return False


def _no_stream(ordinal: int) -> int:
    raise RuntimeError(f"no call on device {ordinal} is known yet")


def _guard(torch: Any) -> Callable[[Sequence[Any]], Same] | None:
    # Compiled torch code recognizes its inputs by these: one call in place of one for each fact.
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    made: Any = getattr(guards, "TensorGuards", None)
    if made is None:
        return None

    def guard(tensors: Sequence[Any]) -> Same:
        sizes, strides = [list(each.shape) for each in tensors], [list(each.stride()) for each in tensors]
        return made(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check

    return guard
