"""Binds the parameters of a launch, for the memory of a device or of the emulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from louver.compile.signature import ARRAYS, ArgumentParameter, BoxParameter, BoxSizeParameter, Signature
from louver.formats.pattern import LIFTED
from louver.ir.polynomial import Numbers
from louver.library.forms import Operand
from louver.library.fused import Bound
from louver.library.ranges import Ranges, tiles_of_cluster, walked_rows
from louver.library.rows import Held, Rows
from louver.runtime.module import ArgumentPack, ParamType

M = TypeVar("M")
"""A tensor map: encoded for a device, or as the emulator holds it."""

MapMaker: TypeAlias = Callable[[BoxParameter, Held, Numbers], M]
"""Makes the tensor map of a box, from the memory of an array and the numbers of a launch."""


class Sized(NamedTuple):
    """The numbers that a launch computes from its sizes, without addresses.

    numbers: by name.
    ctas: CTAs of the grid.
    cut: the cut of K; None for a kernel without ranges.
    """

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
        """The numbers of a product of sizes M, N and K.

        depth: rows of b that each row of a is multiplied with.
        maps: the matrices "a", "b" and "d".
        cut: the cut of K, for a kernel that has ranges.
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
        # Register tiles have the names of tile IR, in which strides of a sparse operand count dense elements.
        for name, rows in maps.items():
            step = LIFTED[1] // LIFTED[0] if name == "a" else 1
            numbers |= {
                f"stride_{name}": step * rows.pitch // rows.element_bytes,
                f"batch_stride_{name}": step * rows.batch_pitch // rows.element_bytes,
            }
        numbers |= {} if cut is None else cut.sizes
        numbers["raster"] = _raster(signature, (m, n, depth), maps, numbers, 1 if cut is None else cut.beside)
        return cls(numbers, signature.grid.value(numbers), cut)


def bind_product(
    signature: Signature, sized: Sized, places: Mapping[str, Held], operand: Operand, bound: Bound, made: MapMaker[M]
) -> dict[str, M | int | float]:
    """The arguments of a product.

    places: memory of its matrices "a", "b" and "d".
    operand: the sparse operand.
    bound: the operands of the epilogue.
    made: makes tensor maps.
    """
    arrays: dict[tuple[str, str], Held] = {(name, "matrix"): place for name, place in places.items()}
    arrays["metadata", "address"], arrays["lists", "address"] = Held(operand.metadata, 0), Held(operand.lists, 0)
    arrays["d", "address"], arrays["b_rows", "address"] = places["d"], places["b"]
    arrays["a", "values"], arrays["a", "metadata"] = places["a"], arrays["metadata", "address"]
    arrays["b", "address"] = places["b"]
    # A user's array of the epilogue may be named "b" too. Then the kernel has no other parameter of that name.
    arrays |= {(name, "address"): Held(address, 0) for name, address in bound.pointers.items()}
    return bind_arguments(signature, {**sized.numbers, **bound.sizes, **bound.numbers}, arrays, made)


def bind_arguments(
    signature: Signature, numbers: Numbers, arrays: Mapping[tuple[str, str], Held], made: MapMaker[M]
) -> dict[str, M | int | float]:
    """The arguments of a kernel by parameter, in the order of the parameters.

    numbers: the numbers of the launch.
    arrays: memory of each array, by argument and part.
    made: makes tensor maps.
    """
    found: dict[str, M | int | float] = {}
    for each in signature.parameters:
        if isinstance(each, BoxParameter):
            found[each.name] = made(each, arrays[each.argument, each.part], numbers)
        elif isinstance(each, BoxSizeParameter):
            assert each.box.sizes[1] is not None, "a tail ends with the array"
            found[each.name] = each.box.sizes[1].value(numbers)
        elif each.part in ARRAYS:
            found[each.name] = arrays[each.argument, each.part].address
        else:
            found[each.name] = _number(each, numbers)
    return found


def packed(types: Sequence[ParamType], values: Mapping[str, int | float | bytes]) -> ArgumentPack:
    """The arguments in the memory that the driver reads."""
    pack = ArgumentPack(types)
    pack.bind(*values.values())
    return pack


def _raster(
    signature: Signature, sizes: tuple[int, int, int], maps: Mapping[str, Rows], numbers: Numbers, parts: int
) -> int:
    """The rows of tiles that are visited before the next column begins.

    sizes: M, N and the rows of K that are multiplied.
    parts: the ranges of a tile that run beside each other.
    """
    assert signature.tile is not None and signature.at_once is not None
    (m, n, k), (tile_m, tile_n) = sizes, signature.tile
    rows, columns, at_once = -(-m // tile_m), -(-n // tile_n), signature.at_once.value(numbers) // parts
    row_bytes, column_bytes = tile_m * maps["a"].pitch, tile_n * k * maps["b"].element_bytes
    taken = tiles_of_cluster(parts, signature.cluster, pairs=signature.pairs)
    return walked_rows(rows, columns, row_bytes, column_bytes, max(1, at_once), taken)


def _number(parameter: ArgumentParameter, numbers: Numbers) -> int | float:
    """The value of a parameter that is not an address: an unsigned integer, or an f32."""
    value = numbers[parameter.number]
    if parameter.type == "f32":
        return float(value)
    if isinstance(value, float):
        # The user's kernel annotates an integer type, but the call passes a float.
        raise ValueError(f"{parameter.argument!r} is an integer, {parameter.element}, got {value}")
    return int(value) & ((1 << (64 if parameter.type == "u64" else 32)) - 1)
