"""Arithmetic on two 16-bit floats in a 32-bit register. Source: PTX ISA, Half Precision Floating Point Instructions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import element_type
from louver.isa.convert import HALF_NAN, Half
from louver.isa.floating import f32_to_odd
from louver.isa.instruction import Bits, Pure, Requirement, output, register
from louver.isa.rule import RuleError
from louver.isa.scalar import FLOATING

PackedOp = Literal["add", "sub", "mul", "min", "max", "min.NaN", "max.NaN"]


def _apply(kind: Half, function: Callable[..., NDArray[Any]], inputs: tuple[Bits, ...]) -> Bits:
    """`function` on the halves in float64, rounded to their type. NaN results are canonical."""
    dtype = element_type(kind).numpy
    with np.errstate(all="ignore"):
        wide = [np.ascontiguousarray(bits).view(dtype).astype(np.float64) for bits in inputs]
        # A cast from float64 to bf16 goes through f32 and would round twice.
        result = f32_to_odd(function(*wide)).astype(dtype)
    halves = np.where(np.isnan(result.astype(np.float32)), HALF_NAN, result.view(np.uint16))
    return np.ascontiguousarray(halves).view(np.uint32)


@dataclass(frozen=True, slots=True)
class PackedBinary(Pure):
    """`op.rn.f16x2 d, a, b` (or bf16x2) on each half, to nearest even. min and max prefer a number to NaN; min.NaN
    and max.NaN do not.
    """

    op: PackedOp
    type: Half

    takes = (output("b32"), *(register(name, "b32") for name in ("a", "b")))

    def __post_init__(self) -> None:
        if self.op not in get_args(PackedOp):
            raise RuleError(f"packed floats have the operations {', '.join(get_args(PackedOp))}, got {self.op!r}")

    @property
    def mnemonic(self) -> str:
        return f"{self.op}{'' if self._selects else '.rn'}.{self.type}x2"

    @property
    def requires(self) -> Requirement:
        return Requirement((7, 8), "sm_90") if self.type == "bf16" and not self._selects else Requirement()

    @property
    def _selects(self) -> bool:
        """Whether the result is one of the operands, so that nothing is rounded."""
        return self.op not in ("add", "sub", "mul")

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        return (_apply(self.type, FLOATING[self.op], inputs),)
