"""A call without sparse tensors: Triton's own, which Triton compiles and launches."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from louver.user.arguments import Call
from louver.user.descriptor import TensorDescriptor
from louver.user.hints import Hints
from louver.user.source import KernelSource


def launch_dense(source: KernelSource, hints: Hints, call: Call, grid: Sequence[int]) -> None:
    """Have Triton launch the kernel on PyTorch's tensors, with the options that are Triton's own.

    Raises ValueError for hints of Louver's and for descriptors that Triton does not take, RuntimeError where it has none.
    """
    if hints.schedule:
        names = ", ".join(name for name, _ in hints.schedule)
        raise ValueError(
            f"a call without a sparse tensor is Triton's own, whose options are num_warps and num_stages; {source.name} got the hints "
            f"{names}, which are for products of sparse tensors: leave them out of this call and of louver.jit"
        )
    given = {name: _for_triton(name, value) for name, value in call.given.items()}
    source.native[tuple(grid)](**given, **dict(hints.triton))


def _for_triton(name: str, value: Any) -> Any:
    """An argument as Triton knows it."""
    if not isinstance(value, TensorDescriptor):
        return value
    try:
        made = importlib.import_module("triton.tools.tensor_descriptor").TensorDescriptor
    except (ImportError, AttributeError):
        raise RuntimeError(
            f"the argument {name!r}: a descriptor of a call without a sparse tensor becomes Triton's, and the Triton that is installed "
            "has none: install Triton 3.4 or newer, or give pointers"
        ) from None
    try:
        return made(value.base, list(value.shape), list(value.strides), list(value.block_shape))
    except (AssertionError, TypeError, ValueError) as error:
        raise ValueError(
            f"the argument {name!r}: a call without a sparse tensor is Triton's own, which does not take this descriptor: {error}"
        ) from error
