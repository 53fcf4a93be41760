"""PyTorch's tensors as memory that Louver reads, and as results. PyTorch is looked up in `sys.modules`: if a tensor
exists, it is imported.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Sequence
from typing import Any, Literal, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray


def is_torch_tensor(x: object) -> bool:
    """Whether `x` is a PyTorch tensor of any kind."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def check_memory(x: Any) -> None:
    """Raises TypeError or ValueError unless a tensor is its elements in memory, on the CPU or a CUDA device, and nothing
    more: a plain type, strided, with no operation pending, and with a storage that holds all elements.
    """
    torch: Any = sys.modules["torch"]
    kind = type(cast("object", x))
    if not _is_plain(kind, torch):
        raise TypeError(
            "a tensor is read in place if its type is torch.Tensor or a subclass that leaves PyTorch's operations as they "
            f"are, got {kind.__module__}.{kind.__qualname__}: give the plain tensor that it stands for"
        )
    if x.is_nested:
        raise ValueError(
            "only strided tensors can be read in place, got a nested tensor: call to_padded_tensor(…) first"
        )
    if x.layout is not torch.strided:
        raise ValueError(f"only strided tensors can be read in place, got layout {x.layout}: call to_dense() first")
    if x.is_quantized:
        raise ValueError("a quantized tensor's elements need its scale, got one: call dequantize() first")
    if x.device.type not in ("cpu", "cuda"):
        raise ValueError(f"tensors are on a CUDA device or on the CPU, got {x.device}: move the tensor there")
    for pending, resolve in ((x.is_neg, "resolve_neg"), (x.is_conj, "resolve_conj")):
        if pending():
            name = "negation" if resolve == "resolve_neg" else "conjugation"
            raise ValueError(f"the tensor's {name} is still pending: call {resolve}() first")
    held = _storage_bytes(x)
    if held is None:
        raise ValueError(
            "a tensor needs memory of its own, got one that a PyTorch transform (vmap, grad, functionalize) stands in for: "
            "call Louver outside the transform"
        )
    needed = _reach(x)
    if held < needed:
        raise ValueError(
            f"the tensor's storage must hold its elements, {needed} bytes, got a storage of {held} bytes: it was freed or "
            "resized; fill it again before the call (under FSDP, gather the parameters)"
        )


def check_operand(x: Any) -> None:
    """As `check_memory`. Raises ValueError also if PyTorch records what is done with the tensor: in a trace, or for its
    gradient.
    """
    torch: Any = sys.modules["torch"]
    # First: a trace warns of the comparisons below.
    proxies = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY)
    if proxies is not None or torch._C._get_tracing_state() is not None:
        raise ValueError(
            "a trace would keep the result of Louver as a constant, got a call while PyTorch traces: call Louver outside the "
            "traced function, or use the eager model"
        )
    check_memory(x)
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            "only louver.linear has a gradient, of x and bias after `import louver.torch`, got a tensor that requires one while "
            "gradients are enabled: call under torch.no_grad(), or give the tensor's detach()"
        )


def detached(x: Any) -> Any:
    """An array without its gradient, of the same memory. Tensors are checked as by `check_memory`; other arrays are
    returned as they are.
    """
    if not is_torch_tensor(x):
        return x
    check_memory(x)
    return x.detach() if x.requires_grad else x


def data_of(x: Any) -> Any:
    """An array that is data, such as a weight, without its gradient. Raises ValueError for a tensor that an operation
    with a gradient has made: its history would be lost silently.
    """
    if is_torch_tensor(x) and x.requires_grad and not x.is_leaf and sys.modules["torch"].is_grad_enabled():
        raise ValueError(
            "a parameter is taken as data, without its gradient, but the result of an operation would lose its history, got a "
            "tensor with a grad_fn: give its detach(), or call under torch.no_grad()"
        )
    return detached(x)


def numpy_dtype(x: Any) -> np.dtype[Any]:
    """The dtype of NumPy, or of ml_dtypes, with the name of a tensor's. Raises TypeError if there is none."""
    name = str(x.dtype).removeprefix("torch.")
    return np.dtype(getattr(ml_dtypes, name, name))


def host_array(x: Any) -> NDArray[Any]:
    """The elements of a tensor on the CPU, in place, of `numpy_dtype`."""
    plain, dtype = x.detach(), numpy_dtype(x)
    return plain.numpy() if dtype.isbuiltin == 1 else plain.view(_bits(dtype)).numpy().view(dtype)


Library = Literal["numpy", "torch"]
"""The libraries of results on the host."""


def library_of(x: object) -> Library:
    """The library of results that are made of `x` on the host."""
    return "torch" if is_torch_tensor(x) else "numpy"


def like(x: object, array: NDArray[Any]) -> Any:
    """A result of the library of `x`: the NumPy array itself, or for a tensor a tensor with its memory."""
    return of_host(array) if is_torch_tensor(x) else array


def of_host(array: NDArray[Any]) -> Any:
    """The tensor of a writable NumPy array, with its memory. Imports PyTorch."""
    torch: Any = importlib.import_module("torch")
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    bits = np.uint8 if array.itemsize == 1 else np.int16
    return torch.from_numpy(array.view(bits)).view(getattr(torch, array.dtype.name))


def dense_meta(shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
    """A contiguous tensor without memory, on PyTorch's meta device."""
    torch: Any = sys.modules["torch"]
    return torch.empty(tuple(shape), dtype=getattr(torch, dtype.name), device="meta")


def _bits(dtype: np.dtype[Any]) -> Any:
    torch: Any = sys.modules["torch"]
    return torch.uint8 if dtype.itemsize == 1 else torch.int16


@functools.lru_cache(maxsize=256)
def _is_plain(kind: Any, torch: Any) -> bool:
    """Whether tensors of a type are handled by PyTorch's own operations."""
    own = torch.Tensor
    function = getattr(kind.__torch_function__, "__func__", kind.__torch_function__)
    plain = (own.__torch_function__.__func__, torch._C._disabled_torch_function_impl)
    return kind.__torch_dispatch__ is own.__torch_dispatch__ and function in plain


def _storage_bytes(x: Any) -> int | None:
    """The bytes of a tensor's storage; None if there is no memory behind it."""
    try:
        storage = x.untyped_storage()
        # An error, where a transform stands in for the storage.
        storage.data_ptr()
    except RuntimeError:
        return None
    return storage.nbytes()


def _reach(x: Any) -> int:
    """Bytes from the start of the storage to the end of the last element."""
    if 0 in x.shape:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return (x.storage_offset() + last + 1) * x.element_size()
