"""What a launch of a compiled product must bind, parameter by parameter, and how large its grid is.

Plain data, so that it is stored beside the cubin and a warm start needs no IR.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

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
    "entries",
    "workspace",
    "counters",
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


@dataclass(frozen=True, slots=True)
class MapParameter:
    """A tensor map over operand "a" (the stored values), "b" (the dense operand) or "d" (the output); box innermost first, in
    elements, with a third dimension where each product of a batch has an entry. adds: the element type of an output that is added to.
    """

    name: str
    operand: str
    box: tuple[int, ...]
    element_bytes: int
    swizzle: SwizzleBytes
    adds: str | None = None

    @property
    def type(self) -> Literal["tensormap"]:
        """PTX's."""
        return "tensormap"


@dataclass(frozen=True, slots=True)
class ValueParameter:
    """A number or an address, by name.

    Unsigned: M, N, K, the entries of a batch ("batch"), those of the sparse operand of which an array says one for each tile
    ("entries"), or a pitch in elements: of the output from row to row ("pitch") and from entry to entry ("batch_pitch"), or of an array
    of the epilogue (`pitch_name`, `batch_pitch_name`). Addresses, u64: of "metadata" (prepacked words), "d" (the output), an array,
    vector or number that the epilogue reads, or the array that says which entry a tile takes. f32: a number of the epilogue.
    """

    name: str
    type: Literal["u32", "u64", "f32"]


Parameter: TypeAlias = MapParameter | ValueParameter


@dataclass(frozen=True, slots=True)
class Signature:
    """A compiled product as its launch sees it. cluster: CTAs on neighbouring tiles along M.

    shared_bytes: dynamic shared memory of a CTA.
    """

    kernel: str
    parameters: tuple[Parameter, ...]
    tile_m: int
    tile_n: int
    cluster: int
    threads: int
    shared_bytes: int

    @property
    def all_parameters(self) -> tuple[Parameter, ...]:
        """Those of the kernel, in order."""
        return self.parameters

    def grid(self, m: int, n: int, sm_count: int, batch: int = 1) -> int:
        """CTAs to launch: one a tile of each entry, at most one an SM (CTAs are persistent), in whole clusters."""
        tiles = -(-m // (self.tile_m * self.cluster)) * -(-n // self.tile_n) * batch
        return min(tiles, max(1, sm_count // self.cluster)) * self.cluster
