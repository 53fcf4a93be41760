"""Remembers checked calls with PyTorch tensors. A later call with the same properties needs no checks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from louver.runtime.adapters import torch_stream

K = TypeVar("K")
V = TypeVar("V")


def keep_recent(kept: dict[K, V], key: K, value: V, limit: int) -> V:
    """Keep and return a value. A dictionary that has `limit` values is cleared first."""
    # A subclass of dict would be slower to read.
    if len(kept) >= limit:
        kept.clear()
    kept[key] = value
    return value


Same: TypeAlias = Callable[..., bool]
"""Whether tensors have the same properties as earlier ones: type, element type, shape, strides, device, and operations
that PyTorch has deferred.
"""


class KnownCalls(Generic[V]):
    """Checked calls by key. A key has all properties that the checks depend on. Threads may share it, because kept
    values never change.

    A subclass makes the keys from its arguments, by code without loops, because their cost is part of each launch.

    types: PyTorch's types of plain tensors; empty before the first call is kept.
    stream: returns the current stream of a device.
    guard: makes a comparison with given tensors that is faster than a key; None if PyTorch has none.
    grad_enabled: whether PyTorch records gradients. trace: the state of torch.jit.trace, or None. modes: how many modes
        see PyTorch's operations, such as those of make_fx.
    """

    __slots__ = ("calls", "grad_enabled", "guard", "modes", "stream", "trace", "types")

    def __init__(self) -> None:
        self.calls: dict[Hashable, V] = {}
        self.types: tuple[type, ...] = ()
        self.stream: Callable[[int], int] = _no_stream
        self.guard: Callable[[Sequence[Any]], Same] | None = None
        self.grad_enabled: Callable[[], bool] = never
        self.trace: Callable[[], object] = lambda: None
        self.modes: Callable[[], int] = never

    def know_torch(self) -> bool:
        """Whether PyTorch is imported. If so, sets what is known of it."""
        torch: Any = sys.modules.get("torch")
        if torch is not None and not self.types:
            self.stream = torch_stream(torch)
            self.guard = tensor_guard(torch)
            self.grad_enabled = torch.is_grad_enabled
            self.trace = torch._C._get_tracing_state
            self.modes = torch._C._len_torch_dispatch_stack
            self.types = (torch.Tensor, torch.nn.Parameter)
        return torch is not None


def never(*tensors: Any) -> bool:
    """A comparison that is always False."""
    return False


def _no_stream(ordinal: int) -> int:
    raise RuntimeError(f"no call on device {ordinal} is known yet")


def tensor_guard(torch: Any) -> Callable[[Sequence[Any]], Same] | None:
    """Makes a comparison with given tensors: their properties, and the modes of PyTorch now. None if PyTorch has none.

    Compiled PyTorch code recognizes its inputs by these guards. One call replaces a call for each property.
    """
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    made: Any = getattr(guards, "TensorGuards", None)
    if made is None:
        return None

    grad_enabled = torch.is_grad_enabled

    def guard(tensors: Sequence[Any]) -> Same:
        sizes, strides = [list(each.shape) for each in tensors], [list(each.stride()) for each in tensors]
        check: Same = made(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
        if not any(each.requires_grad for each in tensors):
            return check
        # The guards compare `requires_grad`, but not whether gradients are enabled.
        return lambda *given: not grad_enabled() and check(*given)

    return guard
