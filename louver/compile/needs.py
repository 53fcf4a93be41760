"""What a kernel needs of a call. It is known before the kernel is lowered, so that a call that does not fit costs little."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from louver.compile.signature import Parameter, computed_arguments, described_arguments
from louver.ir.conditions import Conditions
from louver.ir.product import ProductNest


@dataclass(frozen=True, slots=True)
class Needs:
    """What a call must fulfil.

    checked: the product, or the conditions of register tiles.
    sparse: the sparse arguments of register tiles. computed: those of them whose tiles are addressed at run time.
    """

    checked: ProductNest | Conditions
    sparse: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()

    @classmethod
    def of(cls, checked: ProductNest | Conditions, parameters: Sequence[Parameter]) -> Needs:
        """What a kernel with these parameters needs. A product names its sparse arguments itself."""
        if isinstance(checked, ProductNest):
            return cls(checked)
        computed = computed_arguments(parameters)
        return cls(checked, (*(name for name, _ in described_arguments(parameters)), *computed), computed)


Fits: TypeAlias = Callable[[Needs], object]
"""Raises an error for a call that does not fulfil what a kernel needs."""


def fits_any(needs: Needs) -> None:
    """No call is at hand: the kernel is compiled for all that fulfil what it needs."""
