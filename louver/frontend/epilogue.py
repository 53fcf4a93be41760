"""The epilogue of a product, between its sums and the store, and the activations as elementwise steps.

    y = cast( out_scale · activation( alpha · scale · dense_scale · sum + bias + dense_bias + beta · c ) )

A gated product has gate rows and up rows. It computes `act(gate) · up` in place of `activation(…)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

from louver.formats.dtypes import shown

Activation: TypeAlias = Literal["relu", "gelu", "gelu_tanh", "silu"]

ADDENDS = ("f16", "bf16", "f32")
"""Element types of the addends `bias`, `dense_bias` and `c`. They are added in f32."""

ROW_VECTORS = ("bias", "scale")
"""Vectors along the sparse rows. For a gated product each holds the gate's half, then the up projection's."""


class Steps(Protocol):
    """Applies an elementwise step by name (`louver.isa.elementwise.ELEMENTWISE_STEPS`). Numbers become constants."""

    def __call__(self, step: str, /, *operands: Any) -> Any: ...


def _relu(do: Steps, x: Any) -> Any:
    return do("maximum", x, 0.0)


def _logistic(do: Steps, x: Any, steepness: Any) -> Any:
    """x / (1 + exp(-steepness))."""
    return do("divide", x, do("add", do("exp", do("negate", steepness)), 1.0))


def _silu(do: Steps, x: Any) -> Any:
    return _logistic(do, x, x)


def _gelu(do: Steps, x: Any) -> Any:
    half = do("multiply", x, 0.5)
    return do("multiply", half, do("add", do("erf", do("multiply", x, math.sqrt(0.5))), 1.0))


def _gelu_tanh(do: Steps, x: Any) -> Any:
    # (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), which is precise where tanh(u) is near -1.
    scale = 2 * math.sqrt(2 / math.pi)
    inner = do("add", do("multiply", do("multiply", x, x), 0.044715 * scale), scale)
    return _logistic(do, x, do("multiply", x, inner))


ACTIVATIONS: dict[str, Callable[[Steps, Any], Any]] = {
    "relu": _relu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
}
"""gelu: x·Φ(x) by the error function, as PyTorch's default. gelu_tanh: its approximation by tanh."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """The steps of an epilogue, and the form of their operands. Each call gives the values. All steps compute in f32;
    integer sums are converted first.

    alpha: multiplies the sum by a number (the call's `alpha`, or a number as `scale` or `dense_scale`).
    scale, dense_scale: multiply the sum by an f32 on the device ("tensor"), or by one f32 for each sparse row [M]
        ("row") or each dense column [N] ("column"). Or both multiply blocks of K by powers of two ("blocks"): bytes, see
        `louver.quantize_blocks`. dense_bias, c: element types of an added vector [N], and of an
        added array in the output's layout, which a number `beta` multiplies. activation: see `ACTIVATIONS`. gated: the
        rows are those of `louver.gated`; the output `activation(gate) · up` has half as many. out_scale: multiplies the
        output by a number or by an f32 on the device.
    """

    alpha: bool = False
    scale: Literal["tensor", "row", "blocks"] | None = None
    dense_scale: Literal["tensor", "column", "blocks"] | None = None
    dense_bias: str | None = None
    c: str | None = None
    activation: Activation | None = None
    gated: bool = False
    out_scale: Literal["number", "tensor"] | None = None

    def __post_init__(self) -> None:
        for name in ("alpha", "gated"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise TypeError(f"an epilogue's {name} is True or False, got {type(value).__name__}")
        for field, allowed in (
            ("scale", (None, "tensor", "row", "blocks")),
            ("dense_scale", (None, "tensor", "column", "blocks")),
            ("dense_bias", (None, *ADDENDS)),
            ("c", (None, *ADDENDS)),
            ("activation", (None, *ACTIVATIONS)),
            ("out_scale", (None, "number", "tensor")),
        ):
            value = getattr(self, field)
            if not (value is None or isinstance(value, str)) or value not in allowed:
                raise ValueError(f"{field} must be one of {', '.join(map(repr, allowed))}, got {shown(value)}")
        if (self.scale == "blocks") != (self.dense_scale == "blocks"):
            raise ValueError(
                "both operands have scales of blocks, or none, got scale and dense_scale of which one is u8: give bytes of 127, "
                "which are factors of 1"
            )
        if self.gated and self.c is not None:
            raise ValueError("a gated product takes no c: add it afterwards")

    @property
    def scaled(self) -> bool:
        """Whether products of blocks are scaled, before they are added."""
        return self.scale == "blocks"

    @property
    def after(self) -> Epilogue:
        """The steps behind the sum, without scales of blocks."""
        return replace(self, scale=None, dense_scale=None) if self.scaled else self

    @property
    def floating(self) -> bool:
        """Whether there is any step. Integer sums then become f32."""
        return self != Epilogue()


NO_EPILOGUE = Epilogue()
"""Stores the sums, with the problem's bias if it has one."""
