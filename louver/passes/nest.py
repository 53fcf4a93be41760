"""Tile IR -> product nest."""

from __future__ import annotations

from louver.passes.product import (
    Accumulator,
    Add,
    Argument,
    Cast,
    Expression,
    Load,
    LoadVector,
    Multiply,
    ProductNest,
    Size,
    Store,
    walk,
)

__all__ = [
    "Accumulator",
    "Add",
    "Argument",
    "Cast",
    "Expression",
    "Load",
    "LoadVector",
    "Multiply",
    "ProductNest",
    "Size",
    "Store",
    "walk",
]
