"""Checkpoints of any size: what each tensor is, what is pruned, and files that survive an interruption."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Not lazy: the module has the function's name, and the one that is imported last would win.
from louver.models.analyze import analyze

if TYPE_CHECKING:
    from louver.models.api import advise, compress, decompress, prune

__all__ = ["advise", "analyze", "compress", "decompress", "prune"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"louver.models has no attribute {name!r}; its public names are {', '.join(__all__)}")
    return getattr(importlib.import_module("louver.models.api"), name)
