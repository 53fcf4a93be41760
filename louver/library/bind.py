"""Binds the parameters of a launch, in a device's memory or the emulator's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from louver.compile.signature import ARRAYS, ArgumentParameter, BoxParameter, Signature
from louver.ir.polynomial import Numbers
from louver.library.boxes import Held
from louver.library.forms import Operand
from louver.library.fused import Bound
from louver.library.order import walked_rows
from louver.library.ranges import Ranges
from louver.library.rows import Rows
from louver.runtime.module import ArgumentPack, ParamType

M = TypeVar("M")
"""A tensor map as the memory has it: encoded, or as it is."""

MapMaker: TypeAlias = Callable[[BoxParameter, Held, Numbers], M]
"""The encoder of the tensor map of a box: of an array, by a launch's numbers."""


class Sized(NamedTuple):
    """The numbers that a product's launch computes of its sizes, wherever its matrices are, the CTAs of its grid, and the cut of K."""

    numbers: dict[str, int | float]
    ctas: int
    cut: Ranges | None = None

    @classmethod
    def of(
        cls,
        signature: Signature,
        sizes: tuple[int, int, int],
        depth: int,
        maps: Mapping[str, Rows],
        sm_count: int,
        cut: Ranges | None = None,
    ) -> Sized:
        """Of a product of these sizes, M, N and K. depth: the rows of K that a row is multiplied with. maps: the matrices "a", "b" and
        "d". cut: where the kernel knows ranges of K.
        """
        assert signature.grid is not None, "the library computes the grids of products"
        (m, n, k), d = sizes, maps["d"]
        pitch, batch_pitch = d.pitch // d.element_bytes, d.batch_pitch // d.element_bytes
        numbers: dict[str, int | float] = {"M": m, "N": n, "K": k, "batch": d.batch, "sms": sm_count, "kept": depth}
        numbers |= {"pitch": pitch, "batch_pitch": batch_pitch}
        for name, rows in maps.items():
            numbers |= rows.numbers(name)
        numbers |= {
            "b_pitch": numbers["b.stride.1"],
            "b_batch_pitch": numbers["b.stride.2"],
        }
        numbers |= {} if cut is None else cut.sizes
        numbers["raster"] = _raster(signature, sizes, maps, numbers)
        return cls(numbers, signature.grid.value(numbers), cut)


def bind_product(
    signature: Signature, sized: Sized, places: Mapping[str, Held], operand: Operand, bound: Bound, made: MapMaker[M]
) -> dict[str, M | int | float]:
    """The arguments of a product. places: of its matrices. operand: the sparse one. bound: the operands of the epilogue."""
    arrays = {(name, "address"): Held(address, 0) for name, address in bound.pointers.items()}
    for name, place in places.items():
        arrays[name, "matrix"] = place
    arrays["metadata", "address"], arrays["lists", "address"] = Held(operand.metadata, 0), Held(operand.lists, 0)
    arrays["d", "address"], arrays["b_rows", "address"] = places["d"], places["b"]
    return bind_arguments(signature, {**sized.numbers, **bound.sizes, **bound.numbers}, arrays, made)


def bind_arguments(
    signature: Signature, numbers: Numbers, arrays: Mapping[tuple[str, str], Held], made: MapMaker[M]
) -> dict[str, M | int | float]:
    """The arguments of a kernel, by parameter and in order. numbers: of its launch. arrays: by argument and part."""
    found: dict[str, M | int | float] = {}
    for each in signature.parameters:
        if isinstance(each, BoxParameter):
            found[each.name] = made(each, arrays[each.argument, each.part], numbers)
        elif each.part in ARRAYS:
            found[each.name] = arrays[each.argument, each.part].address
        else:
            found[each.name] = _number(each, numbers)
    return found


def packed(types: Sequence[ParamType], values: Mapping[str, int | float | bytes]) -> ArgumentPack:
    """Arguments in the memory that the driver reads them from."""
    pack = ArgumentPack(types)
    pack.bind(*values.values())
    return pack


def _raster(signature: Signature, sizes: tuple[int, int, int], maps: Mapping[str, Rows], numbers: Numbers) -> int:
    """The rows of tiles that are walked before the next column."""
    assert signature.tile is not None and signature.at_once is not None
    (m, n, k), (tile_m, tile_n) = sizes, signature.tile
    row_bytes, column_bytes = tile_m * maps["a"].pitch, tile_n * k * maps["b"].element_bytes
    return walked_rows(-(-m // tile_m), -(-n // tile_n), row_bytes, column_bytes, signature.at_once.value(numbers))


def _number(parameter: ArgumentParameter, numbers: Numbers) -> int | float:
    """The value of a parameter that is no address: unsigned, or an f32."""
    value = numbers[parameter.number]
    if parameter.type == "f32":
        return float(value)
    if isinstance(value, float):
        # A number that the user's annotation makes an integer type of other bits is not one.
        raise ValueError(f"{parameter.argument!r} is an integer, {parameter.element}, got {value}")
    return int(value) & ((1 << (64 if parameter.type == "u64" else 32)) - 1)
