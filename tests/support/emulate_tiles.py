"""Running a kernel of register tiles on the emulator, its arguments given by the user's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.compile.compiled import CompiledTiles
from louver.compile.signature import ARRAYS, ArgumentParameter
from louver.emulator import Allocation, GlobalMemory, Latest, Order, Report, run
from louver.formats.tensor import SparseTensor
from louver.library.forms import tile_form
from louver.library.launch import bind_arguments
from louver.library.rows import Held, tensor_map
from support.signatures import arguments as user_arguments

Array: TypeAlias = NDArray[Any]

TileArgument: TypeAlias = "Array | SparseTensor | int | float"
"""An argument of the user's: a dense array, a sparse tensor, a number."""


def emulate_tiles(
    compiled: CompiledTiles,
    grid: Sequence[int],
    arguments: Mapping[str, TileArgument],
    *,
    order: Order = Latest(),  # noqa: B008 - frozen
    uninitialised: Sequence[str] = (),
) -> Report:
    """Run the kernel for each program of `grid` (x first); what it stores is in the arrays given, which are contiguous.

    arguments: by the user's names. A descriptor's array gives its sizes and strides. uninitialised: arrays that the kernel must not
    read before it has written them. Raises ValueError for arguments that do not fit, EmulationError for a misuse found.
    """
    wanted = user_arguments(compiled.signature)
    if set(wanted) != set(arguments):
        raise ValueError(f"the kernel's arguments are {', '.join(wanted)}, got {', '.join(arguments)}")
    memory = GlobalMemory()
    held: dict[tuple[str, str], Held] = {}
    numbers: dict[str, int | float] = {
        f"programs {axis}": count for axis, count in zip("xyz", (*grid, 1, 1), strict=False)
    }
    for parameter in compiled.signature.parameters:
        given, place = arguments[parameter.argument], (parameter.argument, parameter.part)
        if isinstance(parameter, ArgumentParameter) and parameter.part not in ARRAYS:
            numbers[parameter.number] = _number(parameter, given)
        elif isinstance(parameter, ArgumentParameter) and place not in held:
            array = _allocate(memory, parameter, given, parameter.argument not in uninitialised)
            held[place] = Held(array.address, array.size)
    bound = bind_arguments(compiled.signature, numbers, held, tensor_map)
    return run(compiled.kernel, tuple(grid), bound, memory=memory, order=order)


def _allocate(memory: GlobalMemory, parameter: ArgumentParameter, given: TileArgument, initialised: bool) -> Allocation:
    sparse = parameter.part != "address"
    if sparse != isinstance(given, SparseTensor):
        what = "a sparse tensor" if sparse else "a dense array"
        raise ValueError(f"{parameter.argument!r} is {what}, got {type(given).__name__}")
    if isinstance(given, SparseTensor):
        array = tile_form(given, parameter.part, parameter.element).host(given)
        return memory.add(parameter.name, array, writable=False)
    if not isinstance(given, np.ndarray) or not given.flags.c_contiguous:
        raise ValueError(f"{parameter.argument!r} is a contiguous array, got {type(given).__name__}: pass a copy")
    return memory.add(parameter.name, given, initialised=initialised, writable=given.flags.writeable)


def _number(parameter: ArgumentParameter, given: TileArgument) -> int | float:
    if parameter.dimension is not None:
        if isinstance(given, int | float):
            raise ValueError(f"{parameter.argument!r} is an array, got {given}")
        first = parameter.dimension
        return given.shape[first] if parameter.part == "size" else prod(given.shape[first + 1 :])
    if not isinstance(given, int | float | np.number):
        raise ValueError(f"{parameter.argument!r} is a number, got {type(given).__name__}")
    return float(given) if parameter.type == "f32" else int(given)
