"""A call's arguments: bound to the kernel's parameters, with Triton's types and facts for the launch.

- An array is a pointer to its elements. A sparse tensor is a pointer marked sparse. A descriptor is `tensordesc<…>`.
- Integers are i32 or i64. The integer 1 is compiled in, so that strides of 1 are known. Floats are fp32, bools u1.
- A tuple is given by named elements: `shape.0`, `strides.1.0`, or `sizes.rows` for named fields.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

import numpy as np

from louver.compile.signature import FLAG
from louver.formats.dtypes import ElementType
from louver.formats.tensor import SparseTensor
from louver.frontend.tuples import CONSTEXPR, EMPTY
from louver.ir.computed import LENGTH, TRANSPOSED
from louver.library.longer_rows import LongerRows
from louver.ptx.flagged import RunsIf
from louver.runtime.arrays import ArrayView, view
from louver.user.descriptor import check_descriptor
from louver.user.reached import is_function, reached
from louver.user.source import Parameter

POINTEES = {
    "f16": "fp16",
    "bf16": "bf16",
    "f32": "fp32",
    "tf32": "fp32",
    "e4m3": "fp8e4nv",
    "e5m2": "fp8e5",
    "s8": "i8",
    "u8": "u8",
    "s32": "i32",
    "s64": "i64",
    "bool": "i1",
    "s16": "i16",
    "u16": "u16",
    "u32": "u32",
    "u64": "u64",
}
"""Triton's names of element types."""

Number: TypeAlias = "int | float"


@dataclass(frozen=True, slots=True)
class Kind:
    """Everything of a call that its compiled kernel depends on.

    signature: Triton's types by argument, also of compiled-in tuple elements ("constexpr"). constexprs: values by
        argument, with `ones` that have no annotated type. sparse: patterns by argument. ones: integers that are compiled in
        because they are 1. zeros: integers that are compiled in as 0, see `without_zeros`. divisors: integers of which a
        power of two is compiled in that divides them, see `Conditions`.
        runs_if: the words of the array `FLAG` with which the kernel runs; None for a kernel that always runs.
    """

    signature: tuple[tuple[str, str], ...]
    constexprs: tuple[tuple[str, Any], ...]
    sparse: tuple[tuple[str, str], ...]
    ones: tuple[str, ...]
    runs_if: RunsIf | None = None
    zeros: tuple[str, ...] = ()
    divisors: tuple[tuple[str, int], ...] = ()

    @property
    def typed_ones(self) -> tuple[str, ...]:
        """Those of `ones` whose annotated type is in the signature. Triton does not compile them in, Louver does."""
        constant = dict(self.constexprs)
        return tuple(one for one in self.ones if one not in constant)

    def without_one(self, name: str) -> Kind:
        """The same call with the integer `name` passed at the launch."""
        signature = dict(self.signature) if name in self.typed_ones else {**dict(self.signature), name: "i32"}
        constexprs = tuple(each for each in self.constexprs if each[0] != name)
        ones = tuple(one for one in self.ones if one != name)
        return replace(self, signature=tuple(signature.items()), constexprs=constexprs, ones=ones)

    def passed(self) -> Kind:
        """The same call with all integers passed at the launch."""
        return replace(functools.reduce(Kind.without_one, self.ones, self), zeros=(), divisors=())

    def to_json(self) -> dict[str, Any]:
        return {
            "signature": list(self.signature),
            "constexprs": [(name, canonical(value)) for name, value in self.constexprs],
            "sparse": list(self.sparse),
            "ones": list(self.ones),
            "runs_if": self.runs_if,
            "zeros": list(self.zeros),
            "divisors": list(self.divisors),
        }


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call's arguments.

    kind: the compiled part. arrays, sparse: by argument; the base of a descriptor has its name. numbers: integers,
        floats and bools, also compiled-in ones, and sizes and strides of descriptors as `x.shape.0` and `x.stride.0`.
        given: all arguments by name, unchanged. found: the sparse ones whose pattern was found in a dense array.
    """

    kind: Kind
    arrays: dict[str, ArrayView] = field(default_factory=dict[str, ArrayView])
    sparse: dict[str, SparseTensor] = field(default_factory=dict[str, SparseTensor])
    numbers: dict[str, Number] = field(default_factory=dict[str, Number])
    given: dict[str, Any] = field(default_factory=dict[str, Any])
    found: tuple[str, ...] = ()

    def flagged(self, flag: ArrayView, runs_if: RunsIf) -> Call:
        """The call of a kernel that runs only if the word `flag`, 32 bits, is as `runs_if` says."""
        return replace(self, kind=replace(self.kind, runs_if=runs_if), arrays={**self.arrays, FLAG: flag})

    def with_sparse(self, found: Mapping[str, SparseTensor]) -> Call:
        """The call with sparse tensors in place of some of its arrays, in which they were found."""
        patterns, numbers = dict(self.kind.sparse), dict(self.numbers)
        for name, s in found.items():
            patterns[name], more = _marks(name, s)
            numbers |= more
        arrays = {name: array for name, array in self.arrays.items() if name not in found}
        kind = replace(self.kind, sparse=tuple(patterns.items()))
        sparse, names = {**self.sparse, **found}, (*self.found, *found)
        return replace(self, kind=kind, arrays=arrays, sparse=sparse, numbers=numbers, found=names)

    def with_rows(self, argument: str, size: int) -> Call:
        """The call with a sparse tensor as rows of `size` elements, several of its own each."""
        s = self.sparse[argument]
        return replace(self, sparse={**self.sparse, argument: s.derived.of(LongerRows).of(s, size)})

    @property
    def zeros(self) -> tuple[str, ...]:
        """Integers of the launch that are 0, such as the stride of a weight that all matrices of a batch share."""
        passed = dict(self.kind.signature)
        return tuple(
            name
            for name, value in self.numbers.items()
            if type(value) is int and value == 0 and re.fullmatch(_INTEGER, passed.get(name, ""))
        )

    @property
    def held(self) -> frozenset[str]:
        """The parameters that are or contain arrays or sparse tensors."""
        return frozenset(name.partition(".")[0] for name in (*self.arrays, *self.sparse))


def bind(
    name: str, parameters: Sequence[Parameter], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments by parameter, with defaults; and the other keywords (hints). Raises TypeError as Python does."""
    if len(args) > len(parameters):
        raise TypeError(f"{name} takes {len(parameters)} arguments, got {len(args)}")
    names = [parameter.name for parameter in parameters]
    given = dict(zip(names, args, strict=False))
    hints: dict[str, Any] = {}
    for keyword, value in kwargs.items():
        if keyword in given:
            raise TypeError(f"{name} got two values for the argument {keyword!r}")
        (given if keyword in names else hints)[keyword] = value
    for parameter in parameters:
        if parameter.name not in given and parameter.has_default:
            given[parameter.name] = parameter.default
    missing = [each for each in names if each not in given]
    if missing:
        raise TypeError(f"{name} is missing {', '.join(missing)}")
    return {each: given[each] for each in names}, hints


def classify(parameters: Sequence[Parameter], given: Mapping[str, Any]) -> Call:
    """The call with these arguments. Raises TypeError or ValueError with the name of an invalid argument."""
    maker = _Maker()
    for parameter in parameters:
        maker.add(parameter, given[parameter.name])
    kind = Kind(tuple(maker.signature), tuple(maker.constexprs), tuple(maker.patterns), tuple(maker.ones))
    return Call(kind, maker.arrays, maker.sparse, maker.numbers, dict(given))


@dataclass(slots=True)
class _Maker:
    signature: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    constexprs: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    patterns: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    ones: list[str] = field(default_factory=list[str])
    arrays: dict[str, ArrayView] = field(default_factory=dict[str, ArrayView])
    sparse: dict[str, SparseTensor] = field(default_factory=dict[str, SparseTensor])
    numbers: dict[str, Number] = field(default_factory=dict[str, Number])

    def add(self, parameter: Parameter, value: Any, *, inside: bool = False) -> None:
        """Add an argument, or an element of a tuple (inside). Raises TypeError or ValueError with its name."""
        if isinstance(value, tuple) and not parameter.constexpr:
            self._tuple(parameter, cast("tuple[Any, ...]", value))
            return
        try:
            if inside:
                parameter = replace(parameter, constexpr=value is None or _is_constant(value))
                if parameter.constexpr:
                    self.signature.append((parameter.name, CONSTEXPR))
            self._value(parameter, value, inside=inside)
        except (TypeError, ValueError) as error:
            raise type(error)(f"the argument {parameter.name!r}: {error}") from error

    def _tuple(self, parameter: Parameter, value: tuple[Any, ...]) -> None:
        name = parameter.name
        if parameter.type:
            raise TypeError(f"the argument {name!r}: it is annotated as {parameter.type}, a number, got a tuple")
        if not value:
            self.signature.append((name, EMPTY))
        names: Sequence[Any] = getattr(value, "_fields", range(len(value)))
        for each, element in zip(names, value, strict=True):
            self.add(replace(parameter, name=f"{name}.{each}"), element, inside=True)

    def _value(self, parameter: Parameter, value: Any, *, inside: bool) -> None:
        name = parameter.name
        value = plain(value)
        if parameter.constexpr or value is None:
            canonical(value)
            self.constexprs.append((name, value))
        elif isinstance(value, int | float):
            self._number(parameter, value, inside=inside)
        elif type(value) in (list, dict):
            raise TypeError(f"several values must be passed as a tuple, got a {type(value).__name__}")
        elif hasattr(value, "block_shape"):
            self._descriptor(name, value)
        else:
            self.signature.append((name, f"*{self._array(name, value)}"))

    def _number(self, parameter: Parameter, value: Number, *, inside: bool) -> None:
        name = parameter.name
        self.numbers[name] = value
        is_one = type(value) is int and value == 1 and parameter.by_value
        if parameter.type:
            _check_fits(value, parameter.type)
            self.signature.append((name, parameter.type))
            if is_one and re.fullmatch(_INTEGER, parameter.type):
                self.ones.append(name)
        elif is_one:
            self.constexprs.append((name, 1))
            self.ones.append(name)
            if inside:
                self.signature.append((name, CONSTEXPR))
        else:
            self.signature.append((name, _number_type(value)))

    def _array(self, name: str, value: Any) -> str:
        """Keep an array or sparse tensor under `name`. Returns Triton's name of its element type."""
        if isinstance(value, SparseTensor):
            if value.axis < len(value.shape) - 2:
                raise ValueError(
                    "a sparse argument must be sparse along its last axis or the one before it, got axis "
                    f"{value.axis} of shape {value.shape}"
                )
            self.sparse[name] = value
            pattern, numbers = _marks(name, value)
            self.numbers |= numbers
            self.patterns.append((name, pattern))
            return _pointee(value.dtype)
        found = self.arrays[name] = view(value)
        return _pointee(found.element)

    def _descriptor(self, name: str, value: Any) -> None:
        shape, strides, block = (
            [int(each) for each in getattr(value, part)] for part in ("shape", "strides", "block_shape")
        )
        check_descriptor(shape, strides, block)
        if getattr(value, "padding", "zero") != "zero":
            raise ValueError(f'a descriptor reads zeros outside its tensor, got padding {value.padding!r}: use "zero"')
        element = self._array(name, value.base)
        self.signature.append((name, f"tensordesc<{element}[{','.join(map(str, block))}]>"))
        for part, sizes in (("shape", shape), ("stride", strides)):
            self.numbers |= {f"{name}.{part}.{axis}": size for axis, size in enumerate(sizes)}


def _pointee(element: ElementType) -> str:
    """Triton's name of an element type. Raises ValueError for one that it lacks."""
    if element.name not in POINTEES:
        raise ValueError(f"kernels have elements of {', '.join(POINTEES)}, got {element}: call louver.linear or matmul")
    return POINTEES[element.name]


def _marks(name: str, s: SparseTensor) -> tuple[str, dict[str, Number]]:
    """The pattern of a sparse argument in `Kind`, and the numbers that the kernel takes with it."""
    if s.axis == len(s.shape) - 1:
        return str(s.pattern), {}
    return str(s.pattern) + TRANSPOSED, {name + LENGTH: s.size}


def plain(value: Any) -> Any:
    """The Python value of a NumPy number or a `tl.constexpr`; other values unchanged."""
    if isinstance(value, np.generic):
        return cast(Any, value).item()
    return value.value if type(value).__name__ == "constexpr" else value


def _is_constant(value: Any) -> bool:
    """Whether a tuple's element is always compiled in: a `tl.constexpr`, a jit function or a dtype."""
    return is_function(value) or type(value).__name__ in ("constexpr", "dtype")


def canonical(value: Any) -> Any:
    """A constant as JSON values that are unique to it. Raises TypeError for an invalid constant."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        # Equal numbers of different types, and 0 and -0, are different constants.
        return [type(value).__name__, repr(value)]
    if isinstance(value, tuple | list):
        names = getattr(cast("Any", value), "_fields", ())
        return ["tuple", list(names), *(canonical(plain(each)) for each in cast("Sequence[Any]", value))]
    if is_function(value):
        return ["function", reached(value).key]
    if type(value).__name__ == "dtype":
        return ["dtype", str(value)]
    raise TypeError(
        f"a constexpr is a number, a text, None, a dtype, a jit function or a tuple of such, got {type(value).__name__}"
    )


def _number_type(value: Number) -> str:
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, float):
        return "fp32"
    if -(2**31) <= value < 2**31:
        return "i32"
    if -(2**63) <= value < 2**63:
        return "i64"
    if value < 2**64:
        return "u64"
    raise ValueError(f"an integer has at most 64 bits, got {value}")


_INTEGER = r"([iu])(\d+)"
"""Triton's name of an integer type."""


def _check_fits(value: Number, type_: str) -> None:
    """Raises ValueError unless a value fits in the annotated integer type."""
    found = re.fullmatch(_INTEGER, type_)
    if found is None:
        return
    bits = int(found[2])
    signed = found[1] == "i" and bits > 1
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    if isinstance(value, float) or not least <= value <= most:
        raise ValueError(f"it is annotated as {type_}, an integer from {least} to {most}, got {value}")
