"""Compares the boxes of a kernel's loads with the addresses and masks that the interpreter computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from louver.compile.compiled import CompiledTiles, TileOptions
from louver.compile.kernel_state import KernelState
from louver.compile.passes import run_passes
from louver.compile.pipeline import DESCRIBE, compile_tiles
from louver.compile.signature import BoxParameter
from louver.compile.sparse_tiles import DECOMPOSE
from louver.ir.interpret import program, run_kernel
from louver.ir.interpret.program import Program
from louver.ir.interpret.values import Memory, Pointers, Value
from louver.ir.tile import FuncOp, LoadOp
from louver.ir.tile.types import tensor_of
from louver.isa.bulk import TensorMap
from louver.isa.targets import target
from louver.library.rows import Held, tensor_map
from support.random_access import TILES, Launch, RandomAccess, random_access

Array = NDArray[Any]

DESCRIBED = next(index for index, each in enumerate(DESCRIBE, 1) if each.name == "describe-boxes")

ADDRESS = 1 << 20


@dataclass(frozen=True)
class Read:
    """A tile that a program loads: offsets and mask of its elements; the box and the place of its first element, outermost first."""

    argument: str
    offsets: Array
    inside: Array
    box: BoxParameter | None
    place: tuple[int, ...]


@dataclass(frozen=True)
class Described:
    """A kernel with the boxes of its loads."""

    module: ModuleOp
    boxes: Mapping[SSAValue, BoxParameter]

    @classmethod
    def of(cls, module: ModuleOp) -> Described:
        state = KernelState(module, target("sm_90a"), options=TileOptions(warps=4))
        run_passes((*DECOMPOSE, *DESCRIBE[:DESCRIBED]), state)
        arguments = state.kernel.body.block.args
        return cls(state.module, dict(zip(arguments[len(arguments) - len(state.maps) :], state.maps, strict=True)))

    def reads(self, launch: Launch) -> list[Read]:
        """All tiles that the programs of a launch load."""
        (function,) = (op for op in self.module.body.ops if isinstance(op, FuncOp))
        found: list[Read] = []

        def load(op: LoadOp, values: Sequence[Any]) -> Sequence[Value]:
            pointers = cast(Pointers, values[0])
            if pointers.single.name == "loaded":
                return (pointers.single.elements[pointers.offsets],)
            inside = np.ones(pointers.offsets.shape, np.bool_) if op.mask is None else np.asarray(values[1])
            box = None if op.box is None else self.boxes[op.box]
            place = tuple(int(each) for each in values[len(values) - len(op.place) :])
            found.append(Read(pointers.single.name, pointers.offsets, inside, box, place))
            return (np.zeros(tensor_of(op.result).get_shape(), np.float16),)

        store = lambda op, values: ()  # noqa: E731
        handlers: dict[type[Operation], Any] = {LoadOp: load, program.tt.StoreOp: store}
        names = function.argument_names
        values = [self._value(each, names.get(each, ""), launch) for each in function.body.block.args]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(program, "_HANDLERS", {**program._HANDLERS, **handlers})
            for z, y, x in np.ndindex(launch.grid[::-1]):
                list(Program((x, y, z), launch.grid, lambda value, op: None).run(function.body.block, values))
        return found

    def _value(self, argument: BlockArgument, name: str, launch: Launch) -> Any:
        if name in launch.numbers:
            return np.asarray(launch.numbers[name], np.int32)
        elements = launch.loaded if name == "loaded" else np.zeros(0)
        return Pointers(Memory(name, elements), np.asarray(0, np.int64))


def box_of(read: Read, map_: TensorMap, *, turned: bool) -> tuple[Array, Array]:
    """Which elements of the tile are inside of the map, and the offset of each in the array, in elements.

    turned: whether neighbours are along the tile's first dimension.
    """
    shape = read.offsets.shape[::-1] if turned else read.offsets.shape
    *entry, rows, columns = read.place
    indices = [columns + np.arange(shape[1])[None, :], rows + np.arange(shape[0])[:, None], *map(np.asarray, entry)]
    inside, offset = np.ones(shape, np.bool_), np.zeros(shape, np.int64)
    steps = (1, *(each // map_.element_bytes for each in map_.strides))
    for index, size, step in zip(indices, map_.shape, steps, strict=True):
        inside = inside & (index >= 0) & (index < size)
        offset = offset + index * step
    return (inside.T, offset.T) if turned else (inside, offset)


@dataclass(frozen=True)
class Reads:
    """What a launch reads. elements: of the arrays x and y, as far as a mask lets them through."""

    tiles: Sequence[Read]
    elements: Mapping[str, Array]

    @classmethod
    def of(cls, described: Described, launch: Launch) -> Reads | None:
        """None if it reads before an array."""
        tiles = described.reads(launch)
        found: dict[str, Array] = {}
        for name in "xy":
            offsets = [each.offsets[each.inside] for each in tiles if each.argument == name]
            found[name] = np.unique(np.concatenate(offsets)) if offsets else np.zeros(0, np.int64)
        return None if any(each.min(initial=0) < 0 for each in found.values()) else cls(tiles, found)

    def size(self, name: str, slack: int = 0) -> int:
        """Elements of an array: up to the last one that is read."""
        return int(self.elements[name].max(initial=0)) + 1 + slack


def numbers_of(launch: Launch) -> dict[str, int | float]:
    """The numbers of a launch and of its grid."""
    return {**launch.numbers, **{f"programs {axis}": n for axis, n in zip("xyz", launch.grid, strict=True)}}


def differences(kernel: RandomAccess, described: Described, launch: Launch, slack: int = 0) -> tuple[int, list[str]]:
    """The number of tiles that boxes bring, and what is wrong with them. None are brought for a launch that reads before an
    array. slack: elements of an array behind the last one that is read.
    """
    reads = Reads.of(described, launch)
    if reads is None:
        return 0, []
    operands = {each.name: each for each in kernel.operands}
    count, wrong = 0, list[str]()
    for read in reads.tiles:
        if read.box is None:
            continue
        try:
            map_ = tensor_map(read.box, Held(ADDRESS, 2 * reads.size(read.argument, slack)), numbers_of(launch))
        except ValueError:
            continue
        count += 1
        operand = operands[read.argument]
        turned = operand.across == (read.argument == "x")
        inside, offset = box_of(read, map_, turned=turned)
        wanted = read.inside
        if operand.wrap != "none":
            # Rows that wrap have zeros. No store writes what they compute.
            at = read.place[-1 if operand.across else -2] + np.arange(read.offsets.shape[1 - operand.k_axis])
            beyond = np.expand_dims(at >= launch.numbers["W"], operand.k_axis)
            inside, wanted = inside & ~beyond, wanted & ~beyond
        if (inside != wanted).any() or (offset != read.offsets)[wanted].any():
            wrong.append(f"{read.argument} at {read.place} of {map_}: {read.box}")
    return count, wrong


def arguments_of(reads: Reads, launch: Launch, tile: Mapping[str, int]) -> dict[str, Any]:
    """The arguments of a launch. Elements that it does not read, and sums that it does not write, are NaN."""
    rng = np.random.default_rng(launch.seed)
    found: dict[str, Any] = {}
    for name in "xy":
        array = found[name] = np.full(reads.size(name), np.nan, np.float16)
        array[reads.elements[name]] = rng.integers(-3, 4, reads.elements[name].size)
    sums = np.full((int(np.prod(launch.grid)), tile["m"], tile["n"]), np.nan, np.float32)
    return found | {"d": sums, "loaded": launch.loaded} | launch.numbers


MOST_PROGRAMS = 4

MOST_LAUNCHES = 20


def check_whole(seed: int, run: Callable[[CompiledTiles, Launch, dict[str, Any]], None]) -> CompiledTiles | None:
    """Run a random kernel at the first launch that stays in its arrays, and compare it with the interpreter.

    run: launches the kernel, and brings sums back. Raises ValueError if bulk copies cannot read its boxes: then the next launch
    is drawn. Returns the kernel; None if no launch was run.
    """
    tile = TILES[seed % len(TILES)]
    kernel = random_access(seed, tile)
    described, compiled = Described.of(kernel.module), compile_tiles(kernel.module)
    for index in range(MOST_LAUNCHES):
        launch = kernel.launch(index)
        reads = Reads.of(described, launch) if np.prod(launch.grid) <= MOST_PROGRAMS else None
        if reads is None:
            continue
        expected, found = arguments_of(reads, launch, tile), arguments_of(reads, launch, tile)
        try:
            run(compiled, launch, found)
        except ValueError:
            continue
        run_kernel(kernel.module, launch.grid, expected)
        np.testing.assert_array_equal(found["d"], expected["d"], err_msg=f"{kernel.operands} {kernel.loop} {launch}")
        return compiled
    return None
