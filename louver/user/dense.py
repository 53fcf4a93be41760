"""A call without sparse tensors: Triton compiles and launches it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, cast

from louver.user.arguments import Call
from louver.user.decorated_call import Given
from louver.user.decorators import OPTIONS, Layers
from louver.user.descriptor import TensorDescriptor
from louver.user.hints import Hints
from louver.user.source import KernelSource


def launch_dense(source: KernelSource, hints: Hints, call: Call, grid: Sequence[int]) -> None:
    """Launch the kernel through Triton on PyTorch's tensors, with Triton's options. Raises ValueError for Louver's
    hints and for descriptors that Triton rejects, RuntimeError for descriptors without Triton's class.
    """
    _refuse_hints(source.name, hints)
    given = {name: for_triton(name, value) for name, value in call.given.items()}
    source.native[tuple(grid)](**given, **dict(hints.triton))


def launch_decorated(name: str, layers: Layers, hints: Hints, grid: Any, given: Given) -> None:
    """Launch through the decorators above a kernel. Raises as `launch_dense`, and for options that configs set."""
    _refuse_hints(name, hints)
    doubled = [option for option, _ in hints.triton if option in OPTIONS]
    if doubled and layers.tuner is not None:
        raise ValueError(
            "a call without a sparse tensor is Triton's own, whose configs set num_warps and num_stages; "
            f"{name} got {', '.join(doubled)}: leave them out of this call and of louver.jit"
        )
    args = [for_triton(name, value) for name, value in zip(given.names, given.args, strict=False)]
    kwargs = {name: for_triton(name, value) for name, value in given.kwargs.items()}
    layers.native[grid if callable(grid) else tuple(grid)](*args, **kwargs, **dict(hints.triton))


def _refuse_hints(name: str, hints: Hints) -> None:
    if hints.own:
        raise ValueError(
            f"a call without a sparse tensor is Triton's own, whose options are num_warps and num_stages; {name} got the hints "
            f"{', '.join(hints.own)}, which are for products of sparse tensors: leave them out of this call and of louver.jit"
        )


def for_triton(name: str, value: Any) -> Any:
    """The argument in Triton's form."""
    if isinstance(value, tuple):
        elements: Any = cast("tuple[Any, ...]", value)
        made = [for_triton(f"{name}.{index}", each) for index, each in enumerate(elements)]
        if all(one is other for one, other in zip(made, elements, strict=True)):
            return elements
        return elements._make(made) if hasattr(elements, "_make") else tuple(made)
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
