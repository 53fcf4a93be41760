"""Arguments of tile IR marked as multiples of 16, as a call's are marked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from louver.ir.tile import FuncOp
from louver.ir.tile.multiples import MULTIPLE, mark_multiples


def marked(module: ModuleOp, names: Collection[str]) -> ModuleOp:
    """The module with these arguments of its kernel marked."""
    (function,) = [op for op in module.body.ops if isinstance(op, FuncOp)]
    mark_multiples(function, dict.fromkeys(names, MULTIPLE))
    return module


def mark_arguments(module: ModuleOp, arguments: Mapping[str, Any]) -> ModuleOp:
    """With those marked that are such multiples: arrays, at aligned addresses, and integers."""
    names = [
        name
        for name, value in arguments.items()
        if not isinstance(value, int | float) or (type(value) is int and value % MULTIPLE == 0)
    ]
    return marked(module, names)
