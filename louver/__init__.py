"""Louver: structured sparsity compiled to PTX from Python."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from louver.formats.blocks import quantize_blocks
    from louver.formats.check import check
    from louver.formats.compress import compress, compress_both, from_indices
    from louver.formats.file import load, save
    from louver.formats.gated import GatedTensor, gated
    from louver.formats.pairs import pack_pairs, unpack_pairs
    from louver.formats.pattern import NoKernelWarning, Pattern
    from louver.formats.prune import prune
    from louver.formats.tensor import SparseTensor
    from louver.frontend.epilogue import Epilogue
    from louver.ir.refusal import UnsupportedKernelError
    from louver.library import resident as resident
    from louver.library import streamed as streamed
    from louver.library.plan import Plan, plan
    from louver.library.products import linear, matmul
    from louver.library.sparsify import sparsify
    from louver.measure.advise import advise
    from louver.measure.ready import prepare
    from louver.runtime.violations import AddressError, synchronize
    from louver.user.descriptor import TensorDescriptor
    from louver.user.jit import jit

__version__ = "0.2.0"

__all__ = [
    "AddressError",
    "Epilogue",
    "GatedTensor",
    "NoKernelWarning",
    "Pattern",
    "Plan",
    "SparseTensor",
    "TensorDescriptor",
    "UnsupportedKernelError",
    "advise",
    "check",
    "compress",
    "compress_both",
    "from_indices",
    "gated",
    "jit",
    "linear",
    "load",
    "matmul",
    "pack_pairs",
    "plan",
    "prepare",
    "prune",
    "quantize_blocks",
    "save",
    "sparsify",
    "synchronize",
    "unpack_pairs",
]

# A name's module is imported when the name is first used, so that `import louver` costs little.
_HOMES = {
    "AddressError": "louver.runtime.violations",
    "Epilogue": "louver.frontend.epilogue",
    "GatedTensor": "louver.formats.gated",
    "NoKernelWarning": "louver.formats.pattern",
    "Pattern": "louver.formats.pattern",
    "Plan": "louver.library.plan",
    "SparseTensor": "louver.formats.tensor",
    "TensorDescriptor": "louver.user.descriptor",
    "UnsupportedKernelError": "louver.ir.refusal",
    "advise": "louver.measure.advise",
    "check": "louver.formats.check",
    "compress": "louver.formats.compress",
    "compress_both": "louver.formats.compress",
    "from_indices": "louver.formats.compress",
    "gated": "louver.formats.gated",
    "jit": "louver.user.jit",
    "linear": "louver.library.products",
    "load": "louver.formats.file",
    "matmul": "louver.library.products",
    "pack_pairs": "louver.formats.pairs",
    "plan": "louver.library.plan",
    "prepare": "louver.measure.ready",
    "prune": "louver.formats.prune",
    "quantize_blocks": "louver.formats.blocks",
    "save": "louver.formats.file",
    "sparsify": "louver.library.sparsify",
    "synchronize": "louver.runtime.violations",
    "unpack_pairs": "louver.formats.pairs",
}

# Modules that an earlier room reaches by the package's name, since it may not import them; no part of the interface.
_ROOMS = {"models": "louver.models", "resident": "louver.library.resident", "streamed": "louver.library.streamed"}


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(_ROOMS[name])
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"louver has no attribute {name!r}; its public names are {', '.join(__all__)}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
