"""The parameters that a launch of a compiled kernel binds, and the size of its grid.

The records are plain data. They are stored beside the cubin, so a warm start needs no IR.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from louver.ir.computed import CODES, VIOLATIONS
from louver.ir.polynomial import Numbers, Size
from louver.isa.bulk import SwizzleBytes
from louver.isa.instruction import LANES

TAIL_MAP = "b_tail"
"""The map of the rows of the dense operand that are left after whole tiles."""

OWN = (
    "a_map",
    "b_map",
    TAIL_MAP,
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
"""Names of parameters that any product may have."""

RANGES = ("whole", "parts", "part_steps")
"""Sizes of a kernel with ranges of K: tiles that are not cut, ranges of each later tile, K steps of a range."""

RESERVED = ("smem", "WARP_SZ")
"""Names that no parameter may have: the symbol of shared memory, and the only reserved word of PTX with the form of a
name.
"""

_TAKEN = re.compile(rf"({'|'.join((*OWN, *RANGES, *RESERVED))}|(batch_)?pitch_.*|own.*)")
"""Names of arguments of an epilogue that the parameter cannot keep."""

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*|_[A-Za-z0-9_]+")
"""The form of a name in PTX."""

_PARTS = re.compile(r"[A-Za-z0-9_.]*")
"""An argument that keeps its letters."""


def parameter_name(argument: str) -> str:
    """The name of the parameter for an argument of an epilogue.

    It is the name of the argument, unless the kernel may have a parameter with this name, or PTX does not allow it. For
    an element of a tuple, such as `sizes.rows`, it contains the lengths of the parts: `own5_sizes4_rows`. Two arguments
    never get the same parameter, and no argument gets the name of a pitch.
    """
    if not _PARTS.fullmatch(argument):
        return f"ownx{argument.encode().hex()}"
    if "." in argument:
        return "own" + "".join(f"{len(part)}_{part}" for part in argument.split("."))
    return f"own_{argument}" if _TAKEN.fullmatch(argument) or not _PLAIN.fullmatch(argument) else argument


FLAG = ".flag"
"""The argument of a kernel that runs only if a word in memory allows it: the address of that word. No argument of a user
has this name.
"""


def kernel_name(function: str, parameters: Collection[str]) -> str:
    """The name of a kernel in PTX: the name of the function if possible. It differs from all parameters."""
    name = parameter_name(function)
    while name in parameters:
        name = f"own_{name}"
    return name


def pitch_name(argument: str) -> str:
    """The parameter with the row pitch of an array that an epilogue reads, in elements."""
    return f"pitch_{parameter_name(argument)}"


def batch_pitch_name(argument: str) -> str:
    """The parameter with the pitch of batch entries of an array that an epilogue reads, in elements."""
    return f"batch_pitch_{parameter_name(argument)}"


Part: TypeAlias = Literal["value", "address", "values", "metadata", "matrix", "size", "stride"]
"""The part of an argument that a parameter passes."""

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

    name: the name in PTX.
    argument: for register tiles the user's argument; for a product the name of the parameter, see `Signature`.
    part: the part of the argument, see below.
    dimension: the dimension of a size or stride; else None.
    type: the type in PTX.
    element: the element type of the array at an address, or of the number, as in tile IR ("f16", "i32"). For metadata
    it is the element type of the products for which it is laid out.
    multiple: an assumed divisor of the parameter, a power of two.

    Parts:

    - "value": a number, as its low 32 or 64 bits, or as f32.
    - "address": the address of a dense array.
    - "values", "metadata": the addresses of the two arrays of a sparse tensor: [M, K/2] without gaps between rows, and
      `louver.isa.metadata.metadata_rows`.
    - "size", "stride": of a dimension of an argument that is a descriptor, in elements. For a sparse tensor they are
      those of the dense tensor.
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
        """The name of the number of a call that a parameter passes, if it is not an address."""
        if self.dimension is None:
            return self.argument
        return f"{self.argument}.{'shape' if self.part == 'size' else 'stride'}.{self.dimension}"


@dataclass(frozen=True, slots=True)
class BoxParameter:
    """A tensor map of an array of an argument, from which the kernel copies boxes.

    Dimensions are innermost first, in elements.

    part: "address", "values" or "metadata", as for an `ArgumentParameter`, or "matrix", an operand of a product.
    sizes: None for a dimension in which the kernel does not bound the array.
    strides: the strides of all dimensions but the first.
    least, free: conditions for the map, see `louver.analysis.mapped.Mapped`.
    adds: the element type of an output to which results are added.
    along: a size of the launch. The box has only the rows that whole boxes leave of it. None for a whole box.
    tailed: where rows of the array end inside a box, copies may be by its `tail`. The kernel knows `sizes[1]` then, by a
        `BoxSizeParameter`.
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
    along: Size | None = None
    tailed: bool = False
    least: tuple[Size, ...] = ()
    free: int | None = None

    def __post_init__(self) -> None:
        if self.part not in ARRAYS:
            raise ValueError(f"boxes are of an array, got {self.part!r} of {self.argument!r}")
        if len(self.sizes) != len(self.box) or len(self.strides) + 1 != len(self.box):
            raise ValueError(f"a box has a size for each dimension, and strides but for the first, got {self}")

    @property
    def type(self) -> Literal["tensormap"]:
        """The type in PTX."""
        return "tensormap"

    @property
    def tail(self) -> BoxParameter:
        """The box of the rows that whole boxes leave of the array."""
        return replace(self, name=f"{self.name}_tail", along=self.sizes[1], tailed=False)


def copied_box(box: BoxParameter, numbers: Numbers) -> tuple[int, ...]:
    """The elements that a copy brings in each dimension.

    A tail has no rows outside the array: all SMs together copy only 12 such rows a clock (`benchmarks/box_copies.py`).
    """
    if box.along is None:
        return box.box
    columns, rows, *others = box.box
    return columns, (box.along.value(numbers) - 1) % rows + 1, *others


@dataclass(frozen=True, slots=True)
class BoxSizeParameter:
    """The rows of the array of a box that has a tail."""

    box: BoxParameter
    type: Literal["u32"] = "u32"

    @property
    def name(self) -> str:
        """The name in PTX. No other parameter has it."""
        return f"{self.box.name}_rows"

    @property
    def argument(self) -> str:
        """The argument of the box."""
        return self.box.argument

    @property
    def part(self) -> Part:
        """The part of the argument that the box is of."""
        return self.box.part


def with_tails(parameters: Sequence[ArgumentParameter | BoxParameter]) -> tuple[Parameter, ...]:
    """All parameters of a kernel: these of its arguments, then the tails of its boxes and the rows of their arrays."""
    tailed = [each for each in parameters if isinstance(each, BoxParameter) and each.tailed]
    return (*parameters, *(part for each in tailed for part in (each.tail, BoxSizeParameter(each))))


SIZES, STRIDES = (
    {operand: tuple(f"{operand}.{what}.{each}" for each in range(first, 3)) for operand in "abd"}
    for what, first in (("size", 0), ("stride", 1))
)
"""The names of the sizes and strides of a product's matrices, innermost first, in elements.

Sizes are those of a row, a matrix and a batch. Strides are those of rows and of entries.
"""


Parameter: TypeAlias = ArgumentParameter | BoxParameter | BoxSizeParameter


@dataclass(frozen=True, slots=True)
class Signature:
    """The interface of a compiled kernel to its launch.

    parameters: the parameters, in order.
    threads: threads of a CTA.
    shared_bytes: dynamic shared memory of a CTA.
    cluster: CTAs of a cluster, along x.
    pairs: the two CTAs of a cluster take neighbouring tiles, or two ranges of one.
    grid: CTAs along x, computed from numbers of the launch; None if the caller gives the grid.
    tile: rows and columns of a tile, with all rows of a cluster; None if the caller gives the grid.
    at_once: tiles of a wave, computed from numbers of the launch; None if the caller gives the grid.
    dependent: a launch may begin while earlier kernels of its stream end.

    The matrices of a product are "a" (the stored values), "b" (the dense operand) and "d" (the output), with `SIZES`
    and `STRIDES`. Other numbers of a product have the names of their parameters:

    - "M", "N", "K", and "batch", the entries of a batch.
    - "entries": entries of the sparse operand, if an array selects one for each tile.
    - "kept": columns of the values, if these are rows of K that lists name.
    - "pitch", "batch_pitch": elements from row to row and from entry to entry of the output.
    - "b_pitch", "b_batch_pitch": the same for a dense operand that is gathered.
    - `pitch_name`, `batch_pitch_name`: the same for an array of the epilogue.
    - "raster": rows of tiles that are processed before the next column.
    - f32 numbers of the epilogue.
    - "sms": SMs of the device.

    Addresses have the names of their parameters too: "metadata" (prepacked words), "lists", "b_rows", "d", arrays of
    the epilogue, and the array that selects the entry of a tile.
    """

    kernel: str
    parameters: tuple[Parameter, ...]
    threads: int
    shared_bytes: int
    cluster: int = 1
    pairs: bool = False
    grid: Size | None = None
    tile: tuple[int, int] | None = None
    at_once: Size | None = None
    dependent: bool = False

    @property
    def warps(self) -> int:
        """Warps of a CTA."""
        return self.threads // LANES

    @property
    def types(self) -> tuple[ParameterType | Literal["tensormap"], ...]:
        """The types of the parameters in PTX."""
        return tuple(each.type for each in self.parameters)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The sparse arguments of register tiles, with the element types for which their metadata is laid out."""
        return described_arguments(self.parameters)

    @property
    def computed(self) -> tuple[str, ...]:
        """The sparse arguments whose tiles are addressed at run time."""
        return computed_arguments(self.parameters)

    @property
    def reports(self) -> bool:
        """Whether the kernel reports violations of rules that it checks at run time."""
        return any(each.argument == VIOLATIONS for each in self.parameters)


def described_arguments(parameters: Sequence[Parameter]) -> tuple[tuple[str, str], ...]:
    """See `Signature.metadata`."""
    arguments = (each for each in parameters if isinstance(each, ArgumentParameter))
    return tuple((each.argument, each.element) for each in arguments if each.part == "metadata")


def computed_arguments(parameters: Sequence[Parameter]) -> tuple[str, ...]:
    """See `Signature.computed`."""
    return tuple(each.argument.removesuffix(CODES) for each in parameters if each.argument.endswith(CODES))
