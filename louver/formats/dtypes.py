"""Element types: the names that every room uses, with the NumPy dtypes that hold them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from louver.formats.given import shown


@dataclass(frozen=True, slots=True)
class ElementType:
    """One element type.

    name: PTX's name without the dot (`f16`, `e4m3`…). numpy: the dtype whose bits hold it. bits: size in memory.
    floating: has a sign bit, infinities or NaN. sparse: may be the element type of a sparse tensor.
    `tf32` is stored as float32, of which the hardware reads the upper 19 bits; NumPy's float32 is named `f32`.
    """

    name: str
    numpy: np.dtype[Any]
    bits: int
    floating: bool
    sparse: bool = True

    def __post_init__(self) -> None:
        if self.numpy.itemsize * 8 != self.bits:
            raise ValueError(f"{self.name} has {self.bits} bits, but {self.numpy} holds {self.numpy.itemsize * 8}")

    @property
    def bytes(self) -> int:
        """Bytes of one element."""
        return self.bits // 8

    @property
    def bits_dtype(self) -> np.dtype[Any]:
        """The unsigned integer dtype that holds an element's raw bits."""
        return np.dtype(f"u{self.bytes}")

    @property
    def magnitude_mask(self) -> int:
        """The raw bits without the sign bit of a floating type; all bits of an integer type."""
        return (1 << (self.bits - self.floating)) - 1

    @property
    def largest_magnitude(self) -> int:
        """The raw bits, without the sign, that infinities and NaNs count as; all bits of an integer type."""
        if not self.floating:
            return self.magnitude_mask
        return int(np.array(np.inf, self.numpy).view(self.bits_dtype)) & self.magnitude_mask

    @property
    def negative_zero(self) -> int | None:
        """The raw bits of -0.0; None for integer types, which have one zero only."""
        return 1 << (self.bits - 1) if self.floating else None

    def __str__(self) -> str:
        return self.name


ELEMENT_TYPES: Final[dict[str, ElementType]] = {
    t.name: t
    for t in (
        ElementType("f16", np.dtype(np.float16), 16, True),
        ElementType("bf16", np.dtype(ml_dtypes.bfloat16), 16, True),
        ElementType("e4m3", np.dtype(ml_dtypes.float8_e4m3fn), 8, True),
        ElementType("e5m2", np.dtype(ml_dtypes.float8_e5m2), 8, True),
        ElementType("f32", np.dtype(np.float32), 32, True),
        ElementType("tf32", np.dtype(np.float32), 32, True),
        ElementType("s8", np.dtype(np.int8), 8, False),
        ElementType("u8", np.dtype(np.uint8), 8, False),
        ElementType("s32", np.dtype(np.int32), 32, False, sparse=False),
        ElementType("s64", np.dtype(np.int64), 64, False, sparse=False),
    )
}
"""Every element type by name."""

SPARSE_TYPES: Final = tuple(name for name, element in ELEMENT_TYPES.items() if element.sparse)
"""Names of the element types that a sparse tensor may have."""

_LONGEST: Final = 60
"""Letters of the longest text that may name a type, or that an error quotes."""

_OTHER_NAMES: Final[dict[str, str]] = {
    # NumPy's and torch's names; safetensors' names for the same types are upper case.
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "f8_e4m3": "e4m3",
    "float8_e5m2": "e5m2",
    "f8_e5m2": "e5m2",
    "float32": "f32",
    "int8": "s8",
    "i8": "s8",
    "uint8": "u8",
    "int32": "s32",
    "i32": "s32",
    "int64": "s64",
    "i64": "s64",
}


# Byte-swapped dtypes are not equal to native ones; of two types with one dtype the first is meant.
_OF_DTYPES: Final = {t.numpy: t for t in reversed(ELEMENT_TYPES.values())}


class ElementTypeError(ValueError):
    """Data of a type that is none of those asked for. given: the type, as its library names it."""

    given: object = None


def multiplied_as(name: str) -> str:
    """The name of the element type that tensor cores read an element type as: f32 as tf32."""
    return "tf32" if name == "f32" else name


def element_type(x: object, among: Collection[str] = ELEMENT_TYPES.keys()) -> ElementType:
    """The element type that `x` names.

    x: an `ElementType`, one of its names, a NumPy dtype or scalar type (ml_dtypes' included), a torch dtype, or
    a NumPy, torch or safetensors name such as "float16", "torch.bfloat16" or "F8_E4M3". among: the names that may be meant.
    Raises ElementTypeError (a ValueError) for anything else, listing those names.
    """
    found = _found(x)
    if found is None or found.name not in among:
        error = ElementTypeError(
            f"an element type is one of {', '.join(among)} (or a NumPy or torch name or dtype of one), got "
            f"{repr(x) if _text(x) else shown(x)}: convert the data first"
        )
        error.given = _text(x) or shown(x)
        raise error
    return found


def raw_bits(array: NDArray[Any]) -> NDArray[Any]:
    """The array's elements as unsigned integers of the same size: a view, same shape."""
    return array.view(element_type(array.dtype).bits_dtype)


def _found(x: object) -> ElementType | None:
    if isinstance(x, ElementType):
        return x
    if isinstance(x, np.dtype):
        return _OF_DTYPES.get(cast("np.dtype[Any]", x))
    # A torch dtype prints as "torch.float16"; torch itself need not be imported for it.
    name = x.__name__ if isinstance(x, type) else _text(x).lower().removeprefix("torch.")
    return ELEMENT_TYPES.get(_OTHER_NAMES.get(name, name))


def _text(x: object) -> str:
    """The text of what may name a type; none for what has none, or a long one."""
    try:
        text = str(x)
    except ValueError:
        return ""
    return text if len(text) <= _LONGEST else ""
