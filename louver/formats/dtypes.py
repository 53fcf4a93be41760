"""Element types: the names that all rooms use, and the NumPy dtypes that hold them. Checks of integers and switches among
arguments, and the text of a caller's value in an error.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from operator import index
from typing import Any, Final, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

MAX_BITS: Final = 64
"""Most bits of an integer argument. Longer integers would also make error texts long."""


def integer(value: object, rule: str) -> int:
    """The Python int of a Python or NumPy integer.

    rule: the rule for the value; the error text starts with it.
    Raises TypeError for other types, including bool, and ValueError for a number of more than 64 bits.
    """
    kind = type(value)
    try:
        number = index(cast(Any, value))
    except TypeError:
        number = None
    if number is None or kind in (bool, np.bool_):
        raise TypeError(f"{rule}, got {kind.__name__}")
    if number.bit_length() > MAX_BITS:
        raise ValueError(f"{rule}, got one of {number.bit_length()} bits")
    return number


def check_switch(name: str, value: object) -> None:
    """Raises TypeError unless a value is Python's True or False. name: of the option."""
    if type(value) is not bool:
        raise TypeError(f"{name} is True or False, got {shown(value)}")


def shown(value: object) -> str:
    """The text of a value in an error: the `repr` of a string or None, the type of any other object."""
    return repr(value) if isinstance(value, str | None) else f"an object of type {type(value).__name__}"


@dataclass(frozen=True, slots=True)
class ElementType:
    """An element type. `tf32` is stored as float32; the hardware reads its upper 19 bits. NumPy's float32 is `f32`.

    name: PTX's name without the dot (`f16`, `e4m3`…). numpy: the dtype that holds its bits. bits: size in memory.
    floating: has a sign bit. sparse: allowed in sparse tensors. numbers: 2 of a pair of 4-bit integers
    (`louver.formats.pairs`), else 1. unused: upper bits, which are 0. Floats with such bits have no infinity and no NaN.
    """

    name: str
    numpy: np.dtype[Any]
    bits: int
    floating: bool
    sparse: bool = True
    numbers: int = 1
    unused: int = 0

    def __post_init__(self) -> None:
        if self.numpy.itemsize * 8 != self.bits:
            raise ValueError(f"{self.name} has {self.bits} bits, but {self.numpy} holds {self.numpy.itemsize * 8}")

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def width(self) -> int:
        """Bits of an element without its unused ones."""
        return self.bits - self.unused

    @property
    def bits_dtype(self) -> np.dtype[Any]:
        """The unsigned integer dtype of the same size."""
        return np.dtype(f"u{self.bytes}")

    @property
    def magnitude_mask(self) -> int:
        """A mask of all bits but the sign bit of a floating type."""
        return (1 << (self.width - self.floating)) - 1

    @property
    def largest_magnitude(self) -> int:
        """The raw bits, without the sign, that stand for infinities and NaNs; all bits for a type without them."""
        if not self.floating or self.unused:
            return self.magnitude_mask
        return int(np.array(np.inf, self.numpy).view(self.bits_dtype)) & self.magnitude_mask

    @property
    def negative_zero(self) -> int | None:
        """The raw bits of -0.0; None for integer types."""
        return 1 << (self.width - 1) if self.floating else None

    def __str__(self) -> str:
        return self.name


ELEMENT_TYPES: Final[dict[str, ElementType]] = {
    t.name: t
    for t in (
        ElementType("f16", np.dtype(np.float16), 16, True),
        ElementType("bf16", np.dtype(ml_dtypes.bfloat16), 16, True),
        ElementType("e4m3", np.dtype(ml_dtypes.float8_e4m3fn), 8, True),
        ElementType("e5m2", np.dtype(ml_dtypes.float8_e5m2), 8, True),
        ElementType("e2m1", np.dtype(ml_dtypes.float4_e2m1fn), 8, True, unused=4),
        ElementType("e2m3", np.dtype(ml_dtypes.float6_e2m3fn), 8, True, unused=2),
        ElementType("e3m2", np.dtype(ml_dtypes.float6_e3m2fn), 8, True, unused=2),
        ElementType("f32", np.dtype(np.float32), 32, True),
        ElementType("tf32", np.dtype(np.float32), 32, True),
        ElementType("s8", np.dtype(np.int8), 8, False),
        ElementType("u8", np.dtype(np.uint8), 8, False),
        ElementType("s4x2", np.dtype([("s4x2", np.uint8)]), 8, False, numbers=2),
        ElementType("u4x2", np.dtype([("u4x2", np.uint8)]), 8, False, numbers=2),
        ElementType("s32", np.dtype(np.int32), 32, False, sparse=False),
        ElementType("s64", np.dtype(np.int64), 64, False, sparse=False),
        ElementType("bool", np.dtype(np.bool_), 8, False, sparse=False),
        ElementType("s16", np.dtype(np.int16), 16, False, sparse=False),
        ElementType("u16", np.dtype(np.uint16), 16, False, sparse=False),
        ElementType("u32", np.dtype(np.uint32), 32, False, sparse=False),
        ElementType("u64", np.dtype(np.uint64), 64, False, sparse=False),
    )
}

SPARSE_TYPES: Final = tuple(name for name, element in ELEMENT_TYPES.items() if element.sparse)

PAIR_TYPES: Final = tuple(name for name, element in ELEMENT_TYPES.items() if element.numbers > 1)
"""Types whose elements are pairs of 4-bit integers. Tensor cores keep or drop both numbers of a pair."""

NARROW_FLOATS: Final = tuple(name for name, element in ELEMENT_TYPES.items() if element.unused)
"""Floats below 8 bits, one in the low bits of each byte: tensor cores read them beside 8-bit floats."""

_LONGEST: Final = 60
"""Most characters of a text that names a type or that an error quotes."""

_OTHER_NAMES: Final[dict[str, str]] = {
    # Names of NumPy and torch. safetensors' names for these types are upper case.
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "f8_e4m3": "e4m3",
    "float8_e5m2": "e5m2",
    "f8_e5m2": "e5m2",
    "float4_e2m1fn": "e2m1",
    "float6_e2m3fn": "e2m3",
    "float6_e3m2fn": "e3m2",
    "float32": "f32",
    "int8": "s8",
    "i8": "s8",
    "uint8": "u8",
    "int32": "s32",
    "i32": "s32",
    "int64": "s64",
    "i64": "s64",
    "int16": "s16",
    "i16": "s16",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
}


_PACK: Final = "pack two of them in a byte with louver.pack_pairs"
_ADVICE: Final[dict[str, str]] = {
    **dict.fromkeys(("int4", "uint4", "s4", "u4"), _PACK),
    "float4_e2m1fn_x2": "give one number a byte, as ml_dtypes.float4_e2m1fn does",
}
"""What to do with types that no tensor has."""

# Byte-swapped dtypes differ from native ones. Of two types with the same dtype the first one wins.
_OF_DTYPES: Final = {t.numpy: t for t in reversed(ELEMENT_TYPES.values())}


_BYTE_OF_PAIR: Final = {"s4x2": "s8", "u4x2": "u8"}


def byte_of(name: str) -> str:
    """The element type as which kernels load and store data of the type `name`: a pair as one byte."""
    return _BYTE_OF_PAIR.get(name, name)


def read_beside(dense: ElementType, weight: ElementType) -> ElementType:
    """What bytes hold beside a weight of a type that most libraries lack: pairs of the sign of the bytes beside pairs,
    and numbers of the weight's own type in u8 beside narrow floats. Other arrays are what they are.
    """
    if weight.numbers > 1:
        return {ELEMENT_TYPES[byte_of(each)]: ELEMENT_TYPES[each] for each in PAIR_TYPES}.get(dense, dense)
    return weight if weight.unused and dense.name == "u8" else dense


class ElementTypeError(ValueError):
    """Data of a type that is not allowed. given: the type's name in its library."""

    given: object = None


def multiplied_as(name: str) -> str:
    """The element type as which tensor cores read data of the type `name`: f32 as tf32, each number of a pair alone."""
    return {"f32": "tf32", "s4x2": "s4", "u4x2": "u4"}.get(name, name)


def element_type(x: object, among: Collection[str] = ELEMENT_TYPES.keys()) -> ElementType:
    """The element type that `x` names. Raises ElementTypeError (a ValueError) with the allowed names for anything else.

    x: an `ElementType` or its name, a NumPy dtype or scalar type (also of ml_dtypes), or a torch dtype. Names of NumPy,
        torch and safetensors such as "float16", "torch.bfloat16" or "F8_E4M3" are known too. among: the allowed names.
    """
    found = _found(x)
    if found is None or found.name not in among:
        advice = _ADVICE.get(_text(x).lower().removeprefix("torch."), "convert the data first")
        error = ElementTypeError(
            f"an element type is one of {', '.join(among)} (or a NumPy or torch name or dtype of one), got "
            f"{repr(x) if _text(x) else shown(x)}: {advice}"
        )
        error.given = _text(x) or shown(x)
        raise error
    return found


def raw_bits(array: NDArray[Any]) -> NDArray[Any]:
    """A view of the elements as unsigned integers of the same size and shape."""
    return array.view(element_type(array.dtype).bits_dtype)


def check_unused(array: NDArray[Any], element: ElementType) -> None:
    """Raises ValueError if an element's unused bits are set: products read all bits of a byte."""
    if element.unused and (raw_bits(array) >> element.width).any():
        raise ValueError(
            f"a byte of {element} holds a number in its low {element.width} bits and zeros above, got other bits there: convert with "
            f"astype({element.numpy}), which writes zeros"
        )


def _found(x: object) -> ElementType | None:
    if isinstance(x, ElementType):
        return x
    if isinstance(x, np.dtype):
        return _OF_DTYPES.get(cast("np.dtype[Any]", x))
    # A torch dtype prints as "torch.float16". Its name is enough, without an import of torch.
    name = x.__name__ if isinstance(x, type) else _text(x).lower().removeprefix("torch.")
    return ELEMENT_TYPES.get(_OTHER_NAMES.get(name, name))


def _text(x: object) -> str:
    """The text of `x` as a possible type name; "" if there is no text or it is too long."""
    try:
        text = str(x)
    except ValueError:
        return ""
    return text if len(text) <= _LONGEST else ""
