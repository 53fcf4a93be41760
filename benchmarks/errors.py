"""Errors relative to float64 and to their bounds: `python benchmarks/errors.py --out FILE.json`.

Protocol. Sums: random normal weights [512, K], pruned to 2:4 by magnitude, times random normal tokens [512, K], for
each element type and way to accumulate. Results are f32 (integers: s32). Reported are the greatest |y - float64| /
Σ|a||b|, and the greatest error over the bound of louver.library.numerics for random data. Worst data: the same for the
families of adversarial.py, [512, K] by [512, K]. The bound for any data counts; the bound for random data, also
reported, may be passed. Activations: the argument is exact (an array c and a product of 0). It takes 2^15 significands
for every exponent and sign of normal f32 numbers, and 2^24 steps from -12 to 12. Reported are the greatest error over
the argument's magnitude, over the bound, and in last places of the exact result in the output's type. Near zeros of
gelu and silu far below 0, last places are many, because the bound is relative to the argument. All references are
float64 on the GPU. Exit status 1 if a bound is passed, 2 if nothing can be measured.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import louver
from adversarial import FAMILIES, adversarial
from louver.formats.dtypes import element_type
from louver.formats.tensor import SparseTensor
from louver.frontend.epilogue import Activation
from louver.frontend.problem import modes_of
from louver.library.numerics import (
    ACTIVATION_ERROR,
    LARGEST,
    SMALLEST_SUBNORMAL,
    UNIT_ROUNDOFF,
    Data,
    accumulation,
    coefficients,
)
from louver.measure.machine import CannotMeasureError, require_torch
from louver.measure.operands import as_torch, converted, pruned
from louver.measure.record import write_record
from louver.measure.report.table import Column, Table
from script import arguments, facts_of

SIZES = (256, 1024, 4096, 5003, 16384)
"""K of the sums. One is odd."""

SIDE = 512
"""Rows of the weight, and tokens."""

TYPES = ("f16", "bf16", "e4m3", "e5m2", "s8")

OUTPUTS = ("f32", "f16", "bf16")
"""Output types of activations."""

STEPS = 1 << 12
"""Columns of the argument arrays, and rows of the array of even steps."""

RANGE = 12.0
"""The end of even steps. Beyond it, the curves round to 0 or to their argument."""

EXPONENTS = 254
SIGNIFICAND_STEP = 8
"""Low bits of the significand that one grid step skips."""


def sums(torch: Any) -> Iterator[dict[str, Any]]:
    """A row for each element type, way to accumulate and K."""
    for dtype in TYPES:
        generator = torch.Generator(device="cuda").manual_seed(1)
        for k in SIZES:
            dense, s = _weight(torch, generator, dtype, k)
            x = converted(torch, torch.randn(SIDE, k, generator=generator, device="cuda"), dtype)
            for mode in _modes(dtype):
                error = _errors(torch, x, dense, s, dtype, mode, k)
                yield {"dtype": dtype, "accumulate": mode, "k": k, **error("random")}


def worst_sums(torch: Any) -> Iterator[dict[str, Any]]:
    """A row for each adversarial family, element type, way to accumulate and K."""
    rng = np.random.default_rng(1)
    for family, dtype, k in itertools.product(FAMILIES, TYPES, SIZES):
        if not element_type(dtype).floating:
            continue
        weight, tokens = adversarial(family, rng, dtype, SIDE, SIDE, k)
        x, dense = (as_torch(torch, each).cuda() for each in (tokens, weight))
        for mode in _modes(dtype):
            error = _errors(torch, x, dense, louver.compress(weight, "2:4"), dtype, mode, k)
            of_random = error("random")["of_bound"]
            yield {"data": family, "dtype": dtype, "accumulate": mode, "k": k, **error("any"), "of_random": of_random}


def _modes(dtype: str) -> list[Any]:
    # "f32" equals "fast" if registers hold more bits than the sum.
    return [mode for mode in modes_of(dtype) if not (mode == "f32" and "fast" in modes_of(dtype))]


def _errors(torch: Any, x: Any, dense: Any, s: SparseTensor, dtype: str, mode: str, k: int) -> Callable[[Data], Any]:
    """The errors of a product, relative to the bound for a kind of data."""
    wide, weight = x.double(), dense.double()
    exact, magnitude = wide @ weight.t(), wide.abs() @ weight.abs().t()
    out = "f32" if element_type(dtype).floating else "s32"
    error = (louver.linear(x, s, out_dtype=out, accumulate=mode).double() - exact).abs()

    def in_units(data: Data) -> dict[str, float]:
        relative, absolute, summed = coefficients(k, out, accumulation(dtype, mode), data)
        allowed = relative * exact.abs() + absolute + summed * magnitude
        return {"error": _worst(torch, error, magnitude), "bound": summed, "of_bound": _worst(torch, error, allowed)}

    return in_units


def _weight(torch: Any, generator: Any, dtype: str, k: int) -> tuple[Any, SparseTensor]:
    """A pruned weight [SIDE, k] on the GPU, dense and compressed."""
    normal = torch.randn(SIDE, k, generator=generator, device="cuda")
    return pruned(converted(torch, normal, dtype), dtype)


def activations(torch: Any) -> Iterator[dict[str, Any]]:
    """A row for each activation, output type and grid."""
    s = _weight_of(torch, STEPS)
    x = torch.zeros(1, s.shape[1], dtype=torch.float16, device="cuda")
    for grid, argument in (("all exponents", _every_exponent(torch)), ("even steps", _even_steps(torch))):
        tokens = x.repeat(len(argument), 1)
        for name, curve in CURVES.items():
            for out in OUTPUTS:
                y = louver.linear(tokens, s, c=argument, activation=name, out_dtype=out).double()
                yield {"activation": name, "out": out, "grid": grid, **_curve_errors(torch, curve, argument, y, out)}


def _weight_of(torch: Any, rows: int) -> SparseTensor:
    """A weight with this number of rows. Its values do not matter, because the tokens are 0."""
    generator = torch.Generator(device="cuda").manual_seed(2)
    normal = torch.randn(rows, 64, generator=generator, device="cuda")
    return pruned(converted(torch, normal, "f16"), "f16")[1]


def _curve_errors(torch: Any, curve: Callable[[Any, Any], Any], argument: Any, y: Any, out: str) -> dict[str, Any]:
    x = argument.double()
    exact = curve(torch, x)
    size, unit, least = exact.abs(), UNIT_ROUNDOFF[out], SMALLEST_SUBNORMAL[out]
    allowed = unit * size + least / 2 + ACTIVATION_ERROR * x.abs()
    error = (y - exact).abs()
    # Infinity is right beyond the range of the output.
    beyond = size > LARGEST[out]
    error = torch.where(beyond & torch.isinf(y) & (y.sign() == exact.sign()), torch.zeros_like(error), error)
    # Neighbours of m · 2^e, with m from 1/2 to 1, are 2^e times the unit roundoff away. Around 0 the spacing is the
    # least one.
    spacing = torch.exp2(torch.frexp(size).exponent.double()) * unit
    last_place = error / torch.where(size == 0, torch.full_like(size, least), spacing.clamp(min=least))
    place = int(last_place.argmax())
    return {
        "error": _worst(torch, error, x.abs()),
        "bound": ACTIVATION_ERROR,
        "of_bound": _worst(torch, error, allowed),
        "last_places": float(last_place.flatten()[place]),
        "last_places_at": float(x.flatten()[place]),
    }


def _worst(torch: Any, error: Any, unit: Any) -> float:
    """The greatest ratio of error to unit: infinite for NaN, 0 if both are 0."""
    ratio = torch.where(error == 0, torch.zeros_like(error), error / unit)
    return float(torch.where(torch.isnan(ratio), torch.full_like(ratio, math.inf), ratio).max())


def _every_exponent(torch: Any) -> Any:
    """f32 [4064, 4096]: 2^15 significands for each exponent of normal numbers and each sign."""
    count = EXPONENTS << 16
    number = torch.arange(count, device="cuda", dtype=torch.int64)
    sign, rest = number // (count // 2), number % (count // 2)
    exponent, place = rest // (1 << 15) + 1, rest % (1 << 15)
    # Vary the low bits too, so that not all significands have few bits.
    low = place * 0x9E % (1 << SIGNIFICAND_STEP)
    bits = sign << 31 | exponent << 23 | place << SIGNIFICAND_STEP | low
    return _f32(torch, bits).reshape(-1, STEPS)


def _f32(torch: Any, bits: Any) -> Any:
    signed = torch.where(bits >= 1 << 31, bits - (1 << 32), bits)
    return signed.to(torch.int32).view(torch.float32)


def _even_steps(torch: Any) -> Any:
    return (
        torch.linspace(-RANGE, RANGE, STEPS * STEPS, dtype=torch.float64, device="cuda").float().reshape(STEPS, STEPS)
    )


def _gelu(torch: Any, x: Any) -> Any:
    return x * torch.special.erfc(x * -math.sqrt(0.5)) / 2


def _gelu_tanh(torch: Any, x: Any) -> Any:
    return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))


def _silu(torch: Any, x: Any) -> Any:
    return x * torch.sigmoid(x)


CURVES: dict[Activation, Callable[[Any, Any], Any]] = {"gelu": _gelu, "gelu_tanh": _gelu_tanh, "silu": _silu}


def show(title: str, names: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    columns = tuple(Column(name.replace("_", " "), right=not isinstance(rows[0][name], str)) for name in names)
    cells = [[row[name] if isinstance(row[name], str) else f"{row[name]:.4g}" for name in names] for row in rows]
    print("\n".join(Table(title, columns, cells).lines()))


def main() -> int:
    parser = arguments(__doc__)
    given = parser.parse_args()
    try:
        torch = require_torch()
    except CannotMeasureError as error:
        parser.error(str(error))
    found, worst, curves = list(sums(torch)), list(worst_sums(torch)), list(activations(torch))
    show("Sums", ("dtype", "accumulate", "k", "error", "bound", "of_bound"), found)
    show(
        "Sums of the worst data", ("data", "dtype", "accumulate", "k", "error", "bound", "of_bound", "of_random"), worst
    )
    show(
        "Activations",
        ("activation", "out", "grid", "error", "bound", "of_bound", "last_places", "last_places_at"),
        curves,
    )
    passed = [row for row in (*found, *worst, *curves) if not row["of_bound"] <= 1]
    if given.out is not None:
        record = facts_of(torch, "errors", __doc__)
        rows = {"sums": found, "worst_sums": worst, "activations": curves}
        print(f"wrote {write_record(given.out, {**record, **rows})}")
    for row in passed:
        print(f"beyond its bound: {row}")
    return 1 if passed else 0


if __name__ == "__main__":
    raise SystemExit(main())
