"""PTX text of instructions on one line, for errors."""

from __future__ import annotations

import re

from louver.ptx.module import If, Inst, Node
from louver.ptx.printer import instruction_text, register_name

_SHOWN = 4
"""Registers of a vector that are shown; a product has up to 128 accumulators."""


def describe(node: Node) -> str:
    """An instruction or branch, with long vectors shortened."""
    if isinstance(node, Inst):
        return f"{re.sub(r'{([^{}]*)}', _shortened, instruction_text(node))};"
    kind = "if" if isinstance(node, If) else "repeat while"
    return f"{kind} {'!' if node.negated else ''}{register_name(node.condition)}"


def _shortened(vector: re.Match[str]) -> str:
    parts = vector[1].split(", ")
    return f"{{{', '.join([*parts[:_SHOWN], '…'])}}}" if len(parts) > _SHOWN else vector[0]
