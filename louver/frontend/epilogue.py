"""An epilogue as a value: the steps of a product between its sums and the store; and activations as elementwise steps.

    y = cast( out_scale · activation( alpha · scale · dense_scale · sum + bias + dense_bias + beta · c ) )

A gated product has rows of two kinds, gate and up, and `act(gate) · up` in place of `activation(…)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from louver.formats.given import shown

Activation: TypeAlias = Literal["relu", "gelu", "gelu_tanh", "silu"]

ADDENDS = ("f16", "bf16", "f32")
"""Element types of what is added in f32: `bias`, `dense_bias` and `c`."""


ROW_VECTORS = ("bias", "scale")
"""The vectors that an epilogue reads along the sparse rows; of a gated product the gate's half and the up projection's, one after the other."""


class Steps(Protocol):
    """Applies an elementwise step by its name (`louver.isa.elementwise.ELEMENTWISE_STEPS`); Python numbers are constants."""

    def __call__(self, step: str, /, *operands: Any) -> Any:
        """The step's result."""
        ...


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
    # (1 + tanh(u)) / 2 is 1 / (1 + exp(-2u)), which keeps its precision where tanh(u) is near -1.
    scale = 2 * math.sqrt(2 / math.pi)
    inner = do("add", do("multiply", do("multiply", x, x), 0.044715 * scale), scale)
    return _logistic(do, x, do("multiply", x, inner))


ACTIVATIONS: dict[str, Callable[[Steps, Any], Any]] = {
    "relu": _relu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
}
"""Activations by name. gelu: x·Φ(x) by the error function, as PyTorch's default; gelu_tanh: its approximation by tanh."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """The steps of a product's epilogue, and where their operands come from; their values are given call by call.

    alpha: the sum is multiplied by a number (which a call gives as `alpha`, or as a number for `scale` or `dense_scale`).
    scale, dense_scale: by one f32 on the device ("tensor"), or one for each sparse row [M] ("row") or dense column [N]
    ("column"). dense_bias, c: element types of a vector [N] and of an array like the output that are added; c times a number
    `beta`. activation: see `ACTIVATIONS`. gated: the sparse rows are those of `louver.gated`, and the output has half of
    them: `activation(gate) · up`. out_scale: stored elements are multiplied by a number or by one f32 on the device.
    Everything here is computed in f32, sums of integers are converted first.
    """

    alpha: bool = False
    scale: Literal["tensor", "row"] | None = None
    dense_scale: Literal["tensor", "column"] | None = None
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
            ("scale", (None, "tensor", "row")),
            ("dense_scale", (None, "tensor", "column")),
            ("dense_bias", (None, *ADDENDS)),
            ("c", (None, *ADDENDS)),
            ("activation", (None, *ACTIVATIONS)),
            ("out_scale", (None, "number", "tensor")),
        ):
            value = getattr(self, field)
            if not (value is None or isinstance(value, str)) or value not in allowed:
                raise ValueError(f"{field} must be one of {', '.join(map(repr, allowed))}, got {shown(value)}")
        if self.gated and self.c is not None:
            raise ValueError("a gated product takes no c: add it afterwards")

    @property
    def floating(self) -> bool:
        """Whether there is any step, so that sums of integers become f32."""
        return self != Epilogue()


NO_EPILOGUE = Epilogue()
"""Sums are stored as they are, with the bias that a problem may have."""
