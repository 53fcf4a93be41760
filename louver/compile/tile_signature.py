"""What a launch of a kernel of register tiles must bind, parameter by parameter.

Plain data, so that it is stored beside the cubin and a warm start needs no IR. The grid is the caller's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from louver.ir.conditions import NO_CONDITIONS, Conditions
from louver.ir.polynomial import Size
from louver.isa.tensormap import SwizzleBytes

Part: TypeAlias = Literal["value", "address", "values", "metadata", "size", "stride"]
"""What of an argument of the user's kernel a parameter is."""

ParameterType: TypeAlias = Literal["u32", "u64", "f32"]
"""PTX types of parameters."""

_TYPES: dict[Part, tuple[ParameterType, ...]] = {
    "value": ("u32", "u64", "f32"),
    "address": ("u64",),
    "values": ("u64",),
    "metadata": ("u64",),
    "size": ("u32",),
    "stride": ("u64",),
}
ARRAYS: tuple[Part, ...] = ("address", "values", "metadata")
"""Parts that are arrays in memory."""

_DIMENSIONS: tuple[Part, ...] = ("size", "stride")


@dataclass(frozen=True, slots=True)
class ArgumentParameter:
    """One parameter of the compiled kernel.

    name: as PTX has it. argument: the user's argument that it is of.
    part: "value", a number: its low 32 or 64 bits, or as f32; "address", of a dense array; "values" and "metadata", the addresses
    of a sparse tensor's two arrays, [M, K/2] without a gap between rows and `louver.isa.prepack.metadata_rows`; "size" and
    "stride" of dimension `dimension` of an argument that is a descriptor, in elements, of a sparse tensor those of the dense one.
    type: PTX's. element: of the array behind an address, as tile IR names it (such as "f16", "i32"), or of the number; of metadata,
    the element type of the products that it is laid out for.
    multiple: what the kernel takes for granted that the parameter is a multiple of; a power of two.
    """

    name: str
    argument: str
    part: Part
    dimension: int | None
    type: ParameterType
    element: str
    multiple: int = 1

    def __post_init__(self) -> None:
        if self.part not in _TYPES:
            raise ValueError(f"parts of an argument are {', '.join(_TYPES)}, got {self.part!r}")
        if self.type not in _TYPES[self.part]:
            raise ValueError(f"the type of a {self.part} is {' or '.join(_TYPES[self.part])}, got {self.type!r}")
        if self.multiple < 1 or self.multiple & (self.multiple - 1):
            raise ValueError(f"parameters are multiples of powers of two, got {self.multiple}")
        if (self.dimension is not None) != (self.part in _DIMENSIONS):
            raise ValueError(
                f"sizes and strides, and nothing else, have a dimension, got {self.part}, {self.dimension}"
            )

    @property
    def number(self) -> str:
        """The name of a call's number that a parameter which is no address is."""
        part = {"size": "shape", "stride": "stride"}.get(self.part)
        return self.argument if part is None else f"{self.argument}.{part}.{self.dimension}"


@dataclass(frozen=True, slots=True)
class BoxParameter:
    """A tensor map over an array of an argument, of which the kernel copies boxes; dimensions innermost first, in elements.

    part: "address", "values" or "metadata", as of an `ArgumentParameter`. sizes: None where the kernel does
    not bound the array. strides: of all dimensions but the first.
    """

    name: str
    argument: str
    part: Part
    element_bytes: int
    sizes: tuple[Size | None, ...]
    strides: tuple[Size, ...]
    box: tuple[int, ...]
    swizzle: SwizzleBytes

    def __post_init__(self) -> None:
        if self.part not in ARRAYS:
            raise ValueError(f"boxes are of an array, got {self.part!r} of {self.argument!r}")
        if len(self.sizes) != len(self.box) or len(self.strides) + 1 != len(self.box):
            raise ValueError(f"a box has a size for each dimension, and strides but for the first, got {self}")

    @property
    def type(self) -> Literal["tensormap"]:
        """PTX's."""
        return "tensormap"


@dataclass(frozen=True, slots=True)
class TileSignature:
    """A compiled kernel of register tiles as its launch sees it. shared_bytes: dynamic shared memory of a CTA.

    boxes: tensor maps, which come behind the other parameters. conditions: what a launch must check.
    """

    kernel: str
    parameters: tuple[ArgumentParameter, ...]
    threads: int
    shared_bytes: int
    conditions: Conditions = NO_CONDITIONS
    boxes: tuple[BoxParameter, ...] = ()

    @property
    def all_parameters(self) -> tuple[ArgumentParameter | BoxParameter, ...]:
        """Those of the kernel, in order."""
        return (*self.parameters, *self.boxes)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The user's arguments, in order."""
        return tuple(dict.fromkeys(each.argument for each in self.parameters))

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The sparse arguments, and the element types that their metadata is laid out for."""
        return tuple((each.argument, each.element) for each in self.parameters if each.part == "metadata")
