"""Binds the parameters of a launch, in a device's memory or the emulator's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from louver.compile.signature import MapParameter, Signature
from louver.compile.tile_signature import ArgumentParameter, TileSignature
from louver.isa.tensormap import TensorMap
from louver.library.boxes import tensor_map
from louver.library.fused import Bound
from louver.library.rows import Rows
from louver.runtime.driver import DriverError
from louver.runtime.module import ArgumentPack, ParamType

M = TypeVar("M")
"""A tensor map as the memory has it: encoded, or as it is."""


class UnmappableError(ValueError):
    """An array that bulk copies cannot read: its kernel is the one without boxes."""


class Held(NamedTuple):
    """Where an array begins, and how many bytes it has from there on."""

    address: int
    nbytes: int


def product_arguments(
    signature: Signature,
    sizes: tuple[int, int, int],
    maps: Mapping[str, Rows],
    metadata: int,
    bound: Bound,
    encode: Callable[[MapParameter, Rows], M],
) -> dict[str, M | int | float]:
    """The arguments of a product, by parameter and in order.

    sizes: M, N and K. maps: the matrices "a", "b" and "d". metadata: its address. bound: what the epilogue reads.
    """
    m, n, k = sizes
    d = maps["d"]
    pitch, batch_pitch = d.pitch // d.element_bytes, d.batch_pitch // d.element_bytes
    known = {"M": m, "N": n, "K": k, "pitch": pitch, "batch": d.batch, "batch_pitch": batch_pitch, **bound.sizes}
    values = {**known, **bound.numbers, **bound.pointers, "metadata": metadata, "d": d.address}
    return {
        each.name: encode(each, maps[each.operand]) if isinstance(each, MapParameter) else values[each.name]
        for each in signature.parameters
    }


def tile_arguments(
    signature: TileSignature,
    numbers: Mapping[str, int | float],
    held: Mapping[tuple[str, str], Held],
    encode: Callable[[TensorMap], M],
) -> dict[str, M | int | float]:
    """The arguments of a kernel of register tiles, by parameter and in order.

    numbers: of the call, with its grid. held: each argument's arrays, by part. Raises UnmappableError.
    """
    found: dict[str, M | int | float] = {}
    for parameter in signature.parameters:
        place = held.get((parameter.argument, parameter.part))
        found[parameter.name] = _number(parameter, numbers) if place is None else place.address
    try:
        for box in signature.boxes:
            found[box.name] = encode(tensor_map(box, *held[box.argument, box.part], numbers))
    except (ValueError, DriverError) as error:
        raise UnmappableError(str(error)) from error
    return found


def packed(types: Sequence[ParamType], values: Mapping[str, int | float | bytes]) -> ArgumentPack:
    """Arguments in the memory that the driver reads them from."""
    pack = ArgumentPack(types)
    for index, value in enumerate(values.values()):
        pack[index] = value
    return pack


def _number(parameter: ArgumentParameter, numbers: Mapping[str, int | float]) -> int | float:
    """The value of a parameter that is no address: unsigned, or an f32."""
    value = numbers[parameter.number]
    if parameter.type == "f32":
        return float(value)
    if isinstance(value, float):
        # A number that the user's annotation makes an integer type of other bits is not one.
        raise ValueError(f"{parameter.argument!r} is an integer, {parameter.element}, got {value}")
    return int(value) & ((1 << (64 if parameter.type == "u64" else 32)) - 1)
