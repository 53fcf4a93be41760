"""Calls hooks on copies, for questions about a call that must not change its arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from louver.formats.tensor import SparseTensor
from louver.user.decorators import Candidate


def rehearsed(candidate: Candidate) -> Candidate:
    """The candidate after its config's hook. The caller's arrays and descriptors do not change."""
    if candidate.hook is None:
        return candidate
    named = {name: _copy(value) for name, value in candidate.named.items()}
    blocks = dict(named)
    candidate.hook(named)
    args = tuple(_changed(value, blocks[name]) for name, value in zip(candidate.named, candidate.args, strict=False))
    kwargs = {name: _changed(value, blocks[name]) for name, value in candidate.kwargs.items() if name in blocks}
    return replace(candidate, args=args, kwargs=candidate.kwargs | kwargs)


def _copy(value: Any) -> Any:
    """A writable copy of an array, or of a descriptor with its array. Other values are returned unchanged."""
    if hasattr(value, "block_shape"):
        return replace(value, base=_copy(value.base))
    if isinstance(value, SparseTensor):
        return value
    for make in ("clone", "copy"):
        if callable(getattr(value, make, None)) and hasattr(value, "shape"):
            return getattr(value, make)()
    return value


def _changed(value: Any, copied: Any) -> Any:
    """The caller's descriptor with the block shape from the hook; other arguments unchanged."""
    return replace(copied, base=value.base) if hasattr(value, "block_shape") else value
