"""A call of a compiled kernel on the emulator, with its arguments bound as a launch binds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.compile.choose_family import CompiledKernel
from louver.compile.plan.layout import metadata_words
from louver.compile.plan.schedule import Schedule
from louver.compile.products import CompiledProduct
from louver.compile.signature import parameter_name
from louver.compile.tiles import CompiledTiles
from louver.emulator import Allocation, Argument, GlobalMemory, Latest, Order, Report, run
from louver.formats.dtypes import raw_bits
from louver.formats.tensor import SparseTensor, row_pitch
from louver.library.launch import Rows
from louver.library.operand import prepacked, tile_metadata, tile_values
from louver.user.arguments import Call
from louver.user.bind_product import PartError, ProductCall, bind_product, check_direct
from louver.user.bind_tiles import ADDRESSES, UnmappableError, check_tiles, number, tensor_maps
from louver.user.compiled import Variant
from louver.user.facts import ProductFacts
from louver.user.gated_pairs import operand
from louver.user.interpreted import flat
from louver.user.retile import SM_COUNT, schedule_of


def emulate(
    name: str,
    compiled: Callable[[Variant, Schedule | None], CompiledKernel],
    call: Call,
    grid: Sequence[int],
    *,
    sm_count: int = SM_COUNT,
    order: Order = Latest(),  # noqa: B008 - frozen
) -> Report:
    """Run a kernel on the call's NumPy arrays, in place. compiled: gives the kernel for what the call's alignment leaves, and a schedule for its sizes.

    Raises ValueError where the call's sizes, arrays and grid do not fit together, and EmulationError for a misuse found.
    """
    memory = GlobalMemory()
    arrays = {name: _add(memory, name, call) for name in call.arrays}
    made = compiled("bulk", None).made
    if not isinstance(made, CompiledProduct):
        try:
            return _emulate_tiles(name, made, call, grid, memory, arrays, order)
        except UnmappableError:
            tiles = compiled("tiles", None).made
            assert not isinstance(tiles, CompiledProduct)
            return _emulate_tiles(name, tiles, call, grid, memory, arrays, order)
    try:
        facts = ProductFacts.of(made.nest)
        bound = bind_product(name, facts, call, grid)
    except PartError as error:
        try:
            tiles = compiled("tiles", None).made
            assert not isinstance(tiles, CompiledProduct)
            return _emulate_tiles(name, tiles, call, grid, memory, arrays, order)
        except ValueError:
            raise error from None
    dense, out = (
        matrix.at(arrays[matrix.argument].address, call.arrays[matrix.argument].element.bytes)
        for matrix in (bound.dense, bound.out)
    )
    if not dense.aligned:
        tiles = compiled("tiles", None).made
        assert not isinstance(tiles, CompiledProduct)
        return _emulate_tiles(name, tiles, call, grid, memory, arrays, order)
    schedule = schedule_of(
        facts, (bound.m, bound.n, bound.batch), made.target, sm_count, aligned_output=out.bulk_writable
    )
    if made.schedule.store.way == "bulk" and not out.bulk_writable:
        direct = compiled("direct", schedule).made
        assert isinstance(direct, CompiledProduct)
        made = direct
        check_direct(name, bound, out, made.schedule.store.way)
    elif schedule not in (None, made.schedule):
        sized = compiled("bulk", schedule).made
        assert isinstance(sized, CompiledProduct)
        made = sized
    arguments = _arguments(made, bound, call, memory, arrays, dense, out)
    ctas = made.signature.grid(bound.m, bound.n, sm_count, bound.batch)
    return run(made.kernel, ctas, arguments, memory=memory, order=order)


def _emulate_tiles(
    name: str,
    made: CompiledTiles,
    call: Call,
    grid: Sequence[int],
    memory: GlobalMemory,
    arrays: dict[str, Allocation],
    order: Order,
) -> Report:
    check_tiles(name, made.signature, call, grid)
    places: dict[tuple[str, str], Allocation] = {(name, "address"): array for name, array in arrays.items()}
    for argument, element in made.signature.metadata:
        s = call.sparse[argument]
        for part, array in (("values", tile_values(s)), ("metadata", tile_metadata(s, element))):
            places[argument, part] = memory.add(f"{argument} {part}", array, writable=False)
    arguments: dict[str, Argument] = {
        parameter.name: places[parameter.argument, parameter.part]
        if parameter.part in ADDRESSES
        else number(parameter, call)
        for parameter in made.signature.parameters
    }
    held = {place: (array.address, array.size) for place, array in places.items()}
    arguments |= tensor_maps(made.signature, call, grid, held)
    return run(made.kernel, tuple(grid), arguments, memory=memory, order=order)


def _arguments(
    compiled: CompiledProduct,
    bound: ProductCall,
    call: Call,
    memory: GlobalMemory,
    arrays: dict[str, Allocation],
    dense: Rows,
    out: Rows,
) -> dict[str, Argument]:
    s = operand([call.sparse[argument] for argument in bound.sparse])
    words = prepacked(s, metadata_words(compiled.schedule, s.dtype.name))
    maps = {"a": _values(memory, s, bound.entries), "b": dense, "d": out}
    pointers = {parameter_name(argument): array for argument, array in arrays.items()}
    pointers |= {"metadata": memory.add("metadata", words, writable=False), "d": arrays[bound.out.argument]}
    return {
        **compiled.signature.bind(
            lambda parameter: maps[parameter.operand].tensor_map(parameter), pointers, bound.sizes, bound.numbers
        )
    }


def _add(memory: GlobalMemory, name: str, call: Call) -> Allocation:
    """An array's memory, as far off a multiple of 16 bytes as it is."""
    array = call.arrays[name]
    whole: NDArray[Any] = flat(array)
    return memory.add(name, whole, offset=array.address % 16, writable=array.writable)


def _values(memory: GlobalMemory, s: SparseTensor, entries: int) -> Rows:
    pitch = row_pitch(s.kept, s.dtype)
    whole = np.zeros((s.rows, pitch // s.dtype.bytes), s.dtype.bits_dtype)
    whole[:, : s.kept] = raw_bits(s.values)
    allocation = memory.add("values", whole, writable=False)
    m = s.rows // entries
    return Rows(allocation.address, s.kept, m, pitch, s.dtype.bytes, allocation, entries, m * pitch)
