"""Arguments of a product's epilogue. They are checked once, and bound to the kernel's parameters for each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from louver.compile.signature import batch_pitch_name, pitch_name
from louver.formats.blocks import SCALED_COLUMNS
from louver.formats.tensor import SparseTensor
from louver.frontend.epilogue import ADDENDS, ROW_VECTORS, Activation, Epilogue
from louver.frontend.problem import BIAS, Kind, accumulator_of
from louver.isa.targets import FP8_FP6_FP4
from louver.library.dense import Stored, named_view
from louver.runtime.arrays import ArrayView


class Given(NamedTuple):
    """The options of a call, as the caller gave them: arrays, or numbers where numbers are allowed. None: not given."""

    bias: Any = None
    dense_bias: Any = None
    scale: Any = None
    dense_scale: Any = None
    c: Any = None
    out_scale: Any = None
    alpha: Any = None
    beta: Any = None


NOTHING = Given()
"""No options. A call without options passes this object itself, so that an identity test recognizes it."""


def given_of(
    bias: Any, dense_bias: Any, scale: Any, dense_scale: Any, c: Any, out_scale: Any, alpha: Any, beta: Any
) -> Given:
    """The options of a call. The code is written out, without loops, because every warm call runs it."""
    plain = bias is None and dense_bias is None and scale is None and dense_scale is None and c is None
    if plain and out_scale is None and alpha is None and beta is None:
        return NOTHING
    return Given(bias, dense_bias, scale, dense_scale, c, out_scale, alpha, beta)


Place: TypeAlias = int | float | str
"""The value of an option for a launch: an array's address, a number or the text of a number."""

FACTORS = ("alpha", "scale", "dense_scale")
"""Options whose numbers the kernel takes as a single factor, their product."""

NUMBERS = (int, float, np.integer, np.floating)
"""Types of numbers: Python's and NumPy's scalars."""

_HIGHEST_F32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Bound:
    """The values that a launch binds for the epilogue, by parameter of the kernel.

    pointers: addresses of the arrays.
    sizes: pitches of the arrays, in elements.
    """

    pointers: Mapping[str, int]
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])

    def with_workspace(self, workspace: int, counters: int) -> Bound:
        """With the addresses of a launch's sums and counters, see `Cutting.workspace`."""
        return replace(self, pointers={**self.pointers, "workspace": workspace, "counters": counters})


NOTHING_BOUND = Bound({})


@dataclass(frozen=True, slots=True)
class Fused:
    """The checked options of a call.

    epilogue: the steps.
    bias: element type of the bias; None without a bias.
    arrays, numbers: the values by option.
    sizes: the pitches of `c` in elements, by parameter of the kernel. Set by `placed`.
    """

    epilogue: Epilogue
    bias: str | None
    arrays: dict[str, ArrayView]
    numbers: dict[str, float]
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def names(self) -> list[str]:
        """The given options, in the order of `Given`."""
        return [name for name in Given._fields if name in self.arrays or name in self.numbers]

    @property
    def places(self) -> tuple[Place, ...]:
        """The address or the number of each given option, in the order of `names`."""
        return tuple(self.arrays[name].address if name in self.arrays else self.numbers[name] for name in self.names)

    def bind(self, places: Sequence[Place]) -> Bound:
        """The values that a launch binds. places: addresses or numbers of the options, in the order of `names`."""
        if not places:
            return NOTHING_BOUND
        pointers: dict[str, int] = {}
        numbers = {"alpha": 1.0, "beta": 1.0}
        for name, place in zip(self.names, places, strict=True):
            if name not in self.arrays:
                numbers["alpha" if name in FACTORS else name] = float(place) * (
                    numbers["alpha"] if name in FACTORS else 1.0
                )
                continue
            pointers[name] = int(place)
            if self.epilogue.gated and name in ROW_VECTORS:
                # The first half of the array belongs to the gate, the second half to the up projection.
                array = self.arrays[name]
                pointers[f"{name}_up"] = int(place) + array.size // 2 * array.element.bytes
        return Bound(pointers, numbers, self.sizes)

    def moved_to_facts(self) -> Fused:
        """The same options without the owners of their arrays. The callers keep the arrays alive."""
        return replace(self, arrays={name: replace(array, owner=None) for name, array in self.arrays.items()})

    def moved(self, move: Callable[[ArrayView], ArrayView]) -> Fused:
        """The same options with other arrays. move: makes a contiguous copy of an array."""
        return replace(self, arrays={name: move(array) for name, array in self.arrays.items()})

    def placed(self, c: Stored | None) -> Fused:
        """The same options with the pitches of `c`."""
        if c is None:
            return self
        return replace(self, sizes=pitches("c", c.pitch, c.batch_pitch))


def pitches(argument: str, pitch: int, batch_pitch: int) -> dict[str, int]:
    """The pitches of an array that an epilogue reads, by the names that products and register tiles have for them."""
    products = {pitch_name(argument): pitch, batch_pitch_name(argument): batch_pitch}
    return products | {f"stride_{argument}": pitch, f"batch_stride_{argument}": batch_pitch}


NOT_FUSED = Fused(Epilogue(), None, {}, {})


@dataclass(frozen=True, slots=True)
class Target:
    """The product for which options are checked.

    shape: shape of the output.
    columns: shape of the dense operand without its axis of K.
    n: N; in a batch of weights, N of each product.
    place: ordinal of the operands' device; None for the host.
    like: the expected epilogue. It decides whether a scale with one element is one number for the tensor or a vector of
        length 1.
    """

    kind: Kind
    s: SparseTensor
    shape: tuple[int, ...]
    columns: tuple[int, ...]
    n: int
    place: int | None
    gated: bool
    like: Epilogue | None = None

    @property
    def leading(self) -> tuple[int, ...]:
        """The sizes of the dense operand's axes along N. In a batch, the axis of the batch is left out."""
        return self.shape[len(self.s.shape) - 2 : -1] if self.kind == "linear" else self.shape[-1:]


def fuse(target: Target, given: Given, activation: Activation | None) -> Fused:
    """Check the options of a call. Raises ValueError or TypeError that names the broken rule."""
    if given is NOTHING and activation is None and not target.gated:
        return NOT_FUSED
    arrays: dict[str, ArrayView] = {}
    numbers: dict[str, float] = {}
    values = {name: value for name, value in given._asdict().items() if value is not None}
    steps = activation is not None or target.gated or bool(values.keys() - {"bias"})
    biases = BIAS["f32" if steps else accumulator_of(target.s.dtype.name)]
    types = {"bias": biases, "dense_bias": ADDENDS, "c": ADDENDS}
    for name, value in values.items():
        number = _number(name, value)
        if number is None:
            arrays[name] = _placed(name, named_view(name, value, types.get(name, ("f32",))), target)
        else:
            numbers[name] = number
    if "beta" in numbers and "c" not in arrays:
        raise ValueError("beta is the factor of c, got one without c: give c, or neither")
    epilogue = Epilogue(
        alpha=any(name in numbers for name in FACTORS),
        scale=_scale_kind("scale", arrays, target, (target.s.shape[-2],), "row"),
        dense_scale=_scale_kind("dense_scale", arrays, target, target.leading, "column"),
        dense_bias=_dense_bias(arrays, target),
        c=_added(arrays, target),
        activation=activation,
        gated=target.gated,
        out_scale="number" if "out_scale" in numbers else _scale_kind("out_scale", arrays, target, None, "tensor"),
    )
    bias = _bias(arrays, target, biases, gated=epilogue.gated)
    return Fused(epilogue, bias, arrays, numbers)


def _number(name: str, value: Any) -> float | None:
    """The value as a number; None for an array."""
    if name not in ("alpha", "beta", "scale", "dense_scale", "out_scale"):
        return None
    if isinstance(value, bool) or not isinstance(value, NUMBERS):
        if name in ("alpha", "beta"):
            raise TypeError(
                f"{name} must be a number, got {type(value).__name__}: float(…) makes one; arrays are given as scale or out_scale"
            )
        return None
    try:
        number = float(cast(Any, value))
    except OverflowError:
        raise ValueError(f"{name} must be a number that f32 holds, got a larger integer") from None
    if abs(number) > _HIGHEST_F32 and np.isfinite(number):
        raise ValueError(f"{name} must be a number that f32 holds, got {number}")
    return number


def _placed(name: str, array: ArrayView, target: Target) -> ArrayView:
    if array.device != target.place:
        operand = "x" if target.kind == "linear" else "b"
        raise ValueError(
            f"{name} and {operand} must be on one device, got {place_name(array.device)} and {place_name(target.place)}"
        )
    return array


def _contiguous(name: str, array: ArrayView) -> None:
    """Raises ValueError for a device array that is not C-contiguous."""
    step = 1
    for size, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if array.device is not None and size > 1 and stride != step:
            raise ValueError(
                f"{name} must be contiguous, got shape {list(array.shape)}, strides {list(array.strides)}: copy it"
            )
        step *= size


def _scale_kind(
    name: str, arrays: dict[str, ArrayView], target: Target, vector: tuple[int, ...] | None, kind: Any
) -> Any:
    """How the kernel reads a scale: "tensor" for one element, `kind` for an array with the axes `vector`, None if not
    given.
    """
    array = arrays.get(name)
    if array is None:
        return None
    if array.element.name == "u8" and vector is not None:
        _check_blocks(name, array, target)
        return "blocks"
    if array.element.name != "f32":
        raise ValueError(f"{name} must be of f32, got {array.element}")
    _contiguous(name, array)
    expected = None if target.like is None else getattr(target.like, name)
    fits = vector is not None and array.shape in _forms(vector)
    if array.size == 1 and not (fits and expected == kind and array.shape):
        return "tensor"
    if not fits:
        also = "" if vector is None else f" or have one for each of {prod(vector)}, shape {list(vector)}"
        raise ValueError(f"{name} must be a number, have one element{also}, got shape {list(array.shape)}")
    return kind


def _check_blocks(name: str, array: ArrayView, target: Target) -> None:
    """Raises ValueError unless an array of bytes has a scale for each block of K of its operand."""
    if target.s.dtype.name not in FP8_FP6_FP4:
        raise ValueError(
            f"scales of blocks (u8) are for weights of {', '.join(FP8_FP6_FP4)}, got a weight of {target.s.dtype}: give "
            f"{name} as f32"
        )
    blocks = -(-target.s.shape[-1] // SCALED_COLUMNS)
    rows = target.s.shape[:-1] if name == "scale" else target.columns
    if array.shape not in ((*rows, blocks), (prod(rows), blocks)):
        raise ValueError(
            f"{name} of u8 has a power of two for each {SCALED_COLUMNS} columns of K, shape {[*rows, blocks]}, got shape "
            f"{list(array.shape)}: sparse products scale blocks of {SCALED_COLUMNS}, not of 32, and each matrix of a batch "
            "has its own scales"
        )
    _contiguous(name, array)


def _forms(vector: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The allowed shapes of a vector with these axes."""
    return vector, (*vector, 1), (prod(vector),)


def _dense_bias(arrays: dict[str, ArrayView], target: Target) -> str | None:
    array = arrays.get("dense_bias")
    if array is None:
        return None
    if array.shape not in _forms(target.leading):
        axis = "tokens" if target.kind == "linear" else "N"
        raise ValueError(f"dense_bias must be [{axis}] with {axis} = {target.n}, got shape {list(array.shape)}")
    _check_addend("dense_bias", array, ADDENDS, target)
    _contiguous("dense_bias", array)
    return array.element.name


def _added(arrays: dict[str, ArrayView], target: Target) -> str | None:
    array = arrays.get("c")
    if array is None:
        return None
    if array.shape != target.shape:
        raise ValueError(f"c must have the output's shape {list(target.shape)}, got {list(array.shape)}")
    _check_addend("c", array, ADDENDS, target)
    return array.element.name


def _bias(arrays: dict[str, ArrayView], target: Target, types: tuple[str, ...], *, gated: bool) -> str | None:
    array = arrays.get("bias")
    if array is None:
        return None
    rows = target.s.shape[-2]
    if array.shape != (rows,):
        axis = "out" if target.kind == "linear" else "M"
        twice = ", gate and then up" if gated else ""
        raise ValueError(f"bias must be [{axis}] with {axis} = {rows}{twice}, got shape {list(array.shape)}")
    _check_addend("bias", array, types, target)
    _contiguous("bias", array)
    return array.element.name


def _check_addend(name: str, array: ArrayView, allowed: tuple[str, ...], target: Target) -> None:
    if array.element.name not in allowed:
        raise ValueError(
            f"{name} must be of {' or '.join(allowed)} for operands of {target.s.dtype}, got {array.element}"
        )


def place_name(ordinal: int | None) -> str:
    """The name of the device with this ordinal, or of the host for None."""
    return "the host" if ordinal is None else f"cuda:{ordinal}"
