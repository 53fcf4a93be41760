"""The parameters that a launch of a compiled kernel binds, and the size of its grid.

The records are plain data, so that they are stored beside the cubin and a warm start needs no IR.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

from louver.ir.polynomial import Size
from louver.isa.tensormap import SwizzleBytes

OWN = (
    "a_map",
    "b_map",
    "d_map",
    "metadata",
    "d",
    "M",
    "N",
    "K",
    "pitch",
    "batch",
    "batch_pitch",
    "raster",
    "entries",
    "workspace",
    "counters",
    "lists",
    "kept",
    "b_rows",
    "b_pitch",
    "b_batch_pitch",
)
"""Names that every product may have for its own parameters."""

RANGES = ("whole", "parts", "part_steps")
"""Sizes of a kernel that knows ranges of K: tiles that are not cut, ranges of each later one, K steps of a range."""

RESERVED = ("smem", "WARP_SZ")
"""Names that no parameter has: shared memory's, and the only word that PTX reserves among those that look like one."""

_TAKEN = re.compile(rf"({'|'.join((*OWN, *RANGES, *RESERVED))}|(batch_)?pitch_.*|own.*)")
"""Names that an argument of the epilogue does not keep as a parameter."""

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*|_[A-Za-z0-9_]+")
"""Names that PTX has."""


def parameter_name(argument: str) -> str:
    """The parameter of an argument that an epilogue reads: of the same name, unless the kernel has or may have that one already,
    or PTX has no such names. An element of a tuple, `sizes.rows`, has the lengths of its name's parts too: `own5_sizes4_rows`. No two
    arguments are one parameter, and none is a pitch of another.
    """
    if not argument.isascii():
        return f"ownx{argument.encode().hex()}"
    if "." in argument:
        return "own" + "".join(f"{len(part)}_{part}" for part in argument.split("."))
    return f"own_{argument}" if _TAKEN.fullmatch(argument) or not _PLAIN.fullmatch(argument) else argument


def kernel_name(function: str, parameters: Collection[str]) -> str:
    """A kernel's name in PTX, which is none of its parameters': the function's, if it can be."""
    name = parameter_name(function)
    while name in parameters:
        name = f"own_{name}"
    return name


def pitch_name(argument: str) -> str:
    """The parameter with the elements from row to row of an array that an epilogue reads."""
    return f"pitch_{parameter_name(argument)}"


def batch_pitch_name(argument: str) -> str:
    """The parameter with the elements from entry to entry of an array that an epilogue reads."""
    return f"batch_pitch_{parameter_name(argument)}"


Part: TypeAlias = Literal["value", "address", "values", "metadata", "matrix", "size", "stride"]
"""The part of an argument that a parameter is."""

ParameterType: TypeAlias = Literal["u32", "u64", "f32"]
"""PTX types of parameters."""

_TYPES: dict[Part, tuple[ParameterType, ...]] = {
    "value": ("u32", "u64", "f32"),
    "address": ("u64",),
    "values": ("u64",),
    "metadata": ("u64",),
    "matrix": (),
    "size": ("u32",),
    "stride": ("u64",),
}
ARRAYS: tuple[Part, ...] = ("address", "values", "metadata", "matrix")
"""Parts that are arrays in memory."""

_DIMENSIONS: tuple[Part, ...] = ("size", "stride")


@dataclass(frozen=True, slots=True)
class ArgumentParameter:
    """A number or an address.

    name: as PTX has it. argument: of register tiles the user's argument; of a product the parameter's own name, see `Signature`.
    part: "value", a number: its low 32 or 64 bits, or as f32; "address", of a dense array; "values" and "metadata", the addresses
    of a sparse tensor's two arrays, [M, K/2] without a gap between rows and `louver.isa.prepack.metadata_rows`; "size" and
    "stride" of dimension `dimension` of an argument that is a descriptor, in elements, of a sparse tensor those of the dense one.
    type: PTX's. element: of the array behind an address, as tile IR names it (such as "f16", "i32"), or of the number; of metadata,
    the element type of the products that it is laid out for.
    multiple: the assumed divisor of the parameter; a power of two.
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
        if self.dimension is None:
            return self.argument
        return f"{self.argument}.{'shape' if self.part == 'size' else 'stride'}.{self.dimension}"


@dataclass(frozen=True, slots=True)
class BoxParameter:
    """A tensor map over an array of an argument, of which the kernel copies boxes; dimensions innermost first, in elements.

    part: "address", "values" or "metadata", as of an `ArgumentParameter`; "matrix", an operand of a product. sizes: None where the
    kernel does not bound the array. strides: of all dimensions but the first. adds: the element type of an output that is added to.
    """

    name: str
    argument: str
    part: Part
    element_bytes: int
    sizes: tuple[Size | None, ...]
    strides: tuple[Size, ...]
    box: tuple[int, ...]
    swizzle: SwizzleBytes
    adds: str | None = None

    def __post_init__(self) -> None:
        if self.part not in ARRAYS:
            raise ValueError(f"boxes are of an array, got {self.part!r} of {self.argument!r}")
        if len(self.sizes) != len(self.box) or len(self.strides) + 1 != len(self.box):
            raise ValueError(f"a box has a size for each dimension, and strides but for the first, got {self}")

    @property
    def type(self) -> Literal["tensormap"]:
        """PTX's."""
        return "tensormap"


SIZES, STRIDES = (
    {operand: tuple(f"{operand}.{what}.{each}" for each in range(first, 3)) for operand in "abd"}
    for what, first in (("size", 0), ("stride", 1))
)
"""Numbers of a launch that are sizes and strides of a product's matrices, innermost first: row, matrix and batch; between rows and
entries. In elements.
"""


Parameter: TypeAlias = ArgumentParameter | BoxParameter


@dataclass(frozen=True, slots=True)
class Signature:
    """A compiled kernel as its launch sees it. parameters: in order. shared_bytes: dynamic shared memory of a CTA.

    cluster: CTAs of a cluster, along x. grid: CTAs along x, by numbers of the launch; None where the grid is the caller's.
    tile: rows and columns of a tile, with all rows of a cluster. at_once: tiles of a wave, by numbers of the launch. Both are None where the
    caller gives the grid.
    dependent: a launch may begin while the kernels before it in its stream end.

    The matrices of a product are "a" (the stored values), "b" (the dense operand) and "d" (the output), with `SIZES` and `STRIDES`. Its other numbers have the names of their parameters: M, N, K, the entries of a batch ("batch"), those of the
    sparse operand of which an array says one for each tile ("entries"), the columns of its values where these are rows of K that lists
    name ("kept"), a pitch in elements: of the output from row to row ("pitch") and from entry to entry ("batch_pitch"), of a dense
    operand that is gathered ("b_pitch", "b_batch_pitch"), rows of tiles that are walked before the next column ("raster"), or of an array of the epilogue (`pitch_name`, `batch_pitch_name`), and f32
    numbers of the epilogue. "sms" are those of the device. So have addresses: of "metadata" (prepacked words), "lists", "b_rows", "d",
    arrays of the epilogue, and the array that says which entry a tile takes.
    """

    kernel: str
    parameters: tuple[Parameter, ...]
    threads: int
    shared_bytes: int
    cluster: int = 1
    grid: Size | None = None
    tile: tuple[int, int] | None = None
    at_once: Size | None = None
    dependent: bool = False

    @property
    def types(self) -> tuple[ParameterType | Literal["tensormap"], ...]:
        """PTX's types of the parameters."""
        return tuple(each.type for each in self.parameters)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The sparse arguments of register tiles, and the element types that their metadata is laid out for."""
        parameters = (each for each in self.parameters if isinstance(each, ArgumentParameter))
        return tuple((each.argument, each.element) for each in parameters if each.part == "metadata")
