"""Element types of tile IR: MLIR's types and Louver's names for them."""

from __future__ import annotations

from xdsl.dialects.builtin import (
    Float4E2M1FNType,
    Float6E2M3FNType,
    Float6E3M2FNType,
    Float8E4M3FNType,
    Float8E5M2Type,
    IntegerType,
    Signedness,
    bf16,
    f16,
    f32,
    i8,
    i32,
)
from xdsl.ir import Attribute

from louver.isa.rule import RuleError
from louver.isa.targets import FP8_FP6_FP4

ELEMENTS: dict[str, Attribute] = {
    "f16": f16,
    "bf16": bf16,
    "f32": f32,
    "e4m3": Float8E4M3FNType(),
    "e5m2": Float8E5M2Type(),
    "e2m3": Float6E2M3FNType(),
    "e3m2": Float6E3M2FNType(),
    "e2m1": Float4E2M1FNType(),
    "s8": i8,
    "u8": IntegerType(8, Signedness.UNSIGNED),
    "s32": i32,
}
"""The MLIR type of each element type, by name.

Signed integers are signless in MLIR, and all operations of tile IR read them as signed. u8 has an unsigned type, so
that a dot can distinguish it.
"""

BYTE_FLOATS = tuple(ELEMENTS[name] for name in FP8_FP6_FP4)
"""Floats that have a byte each, in memory and in tiles."""

_NAMES: dict[Attribute, str] = {type_: name for name, type_ in ELEMENTS.items()}

ACCUMULATORS: dict[tuple[str, str], tuple[str, ...]] = {
    ("f16", "f16"): ("f32", "f16"),
    ("bf16", "bf16"): ("f32",),
    ("f32", "f32"): ("f32",),
    **{(a, b): ("f32", "f16") for a in FP8_FP6_FP4 for b in FP8_FP6_FP4},
    **{(a, b): ("s32",) for a in ("s8", "u8") for b in ("s8", "u8")},
}
"""Accumulator types of a product, by operand types. f32 operands are read as tf32."""


def element_attribute(name: str) -> Attribute:
    """The MLIR type of an element type. Raises ValueError for a name that tile IR does not have."""
    if name not in ELEMENTS:
        raise RuleError(f"an element type of tile IR is one of {', '.join(ELEMENTS)}, got {name!r}")
    return ELEMENTS[name]


def element_name(type_: Attribute) -> str:
    """The name of an MLIR element type in Louver. Raises ValueError for a type that products do not support."""
    if type_ not in _NAMES:
        raise RuleError(f"an element type of tile IR is one of {', '.join(map(str, _NAMES))}, got {type_}")
    return _NAMES[type_]
