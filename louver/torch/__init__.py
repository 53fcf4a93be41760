"""Louver in PyTorch: operators on plain tensors, modules with sparse weights, and the swap of a model's weights."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from louver.torch.accuracy.allocate import allocate
    from louver.torch.accuracy.distill import distill_
    from louver.torch.accuracy.prune import prune_
    from louver.torch.linear import SparseLinear, SparseWeight
    from louver.torch.masked import mask_
    from louver.torch.quantized import quantize_
    from louver.torch.ready import prepare
    from louver.torch.report import Report
    from louver.torch.stacks import SparseStack
    from louver.torch.stale import verify
    from louver.torch.swap import compress_, decompress_
    from louver.torch.tensor import SparseTensor

__all__ = [
    "Report",
    "SparseLinear",
    "SparseStack",
    "SparseTensor",
    "SparseWeight",
    "allocate",
    "compress_",
    "decompress_",
    "distill_",
    "mask_",
    "prepare",
    "prune_",
    "quantize_",
    "verify",
]

# A name's module is imported when the name is first used: `import louver.torch` imports no torch.
_HOMES = {
    "Report": "report",
    "SparseLinear": "linear",
    "SparseStack": "stacks",
    "SparseTensor": "tensor",
    "SparseWeight": "linear",
    "allocate": "accuracy.allocate",
    "compress_": "swap",
    "decompress_": "swap",
    "distill_": "accuracy.distill",
    "mask_": "masked",
    "prepare": "ready",
    "prune_": "accuracy.prune",
    "quantize_": "quantized",
    # `louver.library` looks for it when PyTorch records a call.
    "recorded_linear": "recorded",
    "verify": "stale",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"louver.torch has no attribute {name!r}; its public names are {', '.join(__all__)}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
