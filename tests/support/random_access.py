"""Random address expressions: kernels in tile IR whose loop multiplies two tiles, each read by its own offsets and mask.

An array ends with the last element that a mask lets through, so a load that Triton would run is in its array. `d` has a
tile of sums for each program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from louver.ir.context import parse_ir
from support.random_epilogue import Writer

Array = NDArray[Any]

TILES = {"m": 16, "n": 16, "k": 32}, {"m": 64, "n": 32, "k": 64}
"""Elements of a tile along each axis of a product: of warps, of a warpgroup."""

LENGTHS = {"K": (1, 100), "LIMIT": (1, 140), "R": (1, 60), "E": (1, 4), "W": (1, 60)}
"""Ranges of the arguments that masks compare with: K, any other limit of K, limits of rows, of matrices, of rows that wrap."""

STRIDES = (0, -16, 8, 16, 32, 48, 64, 96, 128)
OFFSETS = (-16, -8, 0, 0, 8, 16)
MATRICES = (8, 32, 64, 1024, 2048, -64)


@dataclass(frozen=True)
class Operand:
    """How a tile of [m, k] (x) or [k, n] (y) is read.

    across: whether neighbours are along m or n, not along k. steps: how offsets go along k: computed, or of a pointer
    that the loop carries. by: what it moves by: a tile along k, another number, an argument, a tile along m or n.
    masks: of k, of m or n, of the matrix. shifted: what is added to the index along k and along m or n, and whether the
    mask knows it. wrap: of m or n. entry: what selects a matrix. numbered: how the tile along m or n is numbered.
    """

    name: str
    across: bool
    steps: str
    by: str
    k_mask: str
    mn_mask: str
    entry_mask: bool
    k_shift: str
    mn_shift: str
    wrap: str
    entry: str
    numbered: str
    unsigned: bool
    limit: str
    tile: Mapping[str, int]

    @property
    def mn(self) -> str:
        return "m" if self.name == "x" else "n"

    @property
    def shape(self) -> tuple[int, int]:
        sides = (self.tile[self.mn], self.tile["k"])
        return sides if self.name == "x" else sides[::-1]

    @property
    def k_axis(self) -> int:
        return 1 if self.name == "x" else 0


@dataclass(frozen=True)
class RandomAccess:
    """A kernel. loop: how it counts."""

    seed: int
    operands: tuple[Operand, Operand]
    loop: str
    text: str

    @cached_property
    def module(self) -> ModuleOp:
        return parse_ir(self.text)

    def launch(self, index: int) -> Launch:
        """The numbers of one launch."""
        rng = np.random.default_rng([self.seed, index, 1])
        pick = lambda among: int(among[int(rng.integers(len(among)))])  # noqa: E731
        # Sizes that a tile divides, and any others.
        size = lambda low, high: pick([int(rng.integers(low, high)), 16 * int(rng.integers(1, 7)), 32, 64])  # noqa: E731
        numbers = {name: size(*ends) for name, ends in LENGTHS.items()}
        if rng.integers(3) == 0:
            numbers["LIMIT"] = numbers["K"]
        numbers |= {"START": pick((0, 0, 8, 32, -8)), "MOVE": pick((8, 32, 48, 64))}
        for each in "xy":
            numbers |= {f"s{each}": pick(STRIDES), f"e{each}": pick(MATRICES), f"o{each}": pick(OFFSETS)}
        if rng.integers(3) == 0:
            numbers["sx"] = numbers["sy"] = -(-numbers["K"] // 8) * 8
        grid = tuple(int(rng.integers(1, 4)) for _ in "xyz")
        return Launch(numbers, grid, rng.integers(-1, 3, 4).astype(np.int32), (self.seed, index))


@dataclass(frozen=True)
class Launch:
    """Numbers by argument, a grid, the numbers of matrices that kernels load, and the seed of its elements."""

    numbers: Mapping[str, int]
    grid: tuple[int, ...]
    loaded: Array
    seed: tuple[int, int]


def random_access(seed: int, tile: Mapping[str, int] = TILES[0]) -> RandomAccess:
    """The kernel of a seed."""
    w = Writer(np.random.default_rng([seed, 0]))
    operands = _operand(w, "x", tile), _operand(w, "y", tile)
    return written(w, seed, operands, w.pick("elements", "elements", "steps", "from a number", "twice"))


def written(w: Writer, seed: int, operands: tuple[Operand, Operand], loop: str) -> RandomAccess:
    """The kernel with these operands and this loop."""
    return RandomAccess(seed, operands, loop, _Kernel(w, operands, loop, operands[0].tile).text())


def _operand(w: Writer, name: str, tile: Mapping[str, int]) -> Operand:
    steps = w.pick("computed", "carried", "carried")
    return Operand(
        name,
        across=w.pick(False, False, True),
        steps=steps,
        by="tile" if steps == "computed" else w.pick("tile", "tile", "tile", "8", "64", "MOVE", "rows"),
        k_mask=w.pick("none", "fixed", "moving", "moving", "least", "floored", "floored fixed"),
        mn_mask=w.pick("none", "fixed", "moving", "moving", "floored"),
        entry_mask=w.pick(False, True),
        k_shift=w.pick("none", "none", "none", "known", "unknown", "number"),
        mn_shift=w.pick("none", "none", "none", "known", "unknown", "number"),
        wrap=w.pick("none", "none", "none", "remainder", "minimum", "where"),
        entry=w.pick("none", "none", "program", "iteration", "loaded", "argument"),
        numbered=w.pick("plain", "plain", "grouped", "reversed", "remainder"),
        unsigned=w.pick(False, False, True),
        limit=w.pick("K", "K", "LIMIT", "48"),
        tile=tile,
    )


@dataclass
class _Kernel:
    """Writes the text of a kernel."""

    w: Writer
    operands: tuple[Operand, Operand]
    loop: str
    tile: Mapping[str, int]
    first: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        w = self.w
        marked = "{tt.divisibility = 16 : i32}"
        arguments = [f"%{name}: !tt.ptr<f16> {marked}" for name in "xy"]
        arguments += ["%d: !tt.ptr<f32>", "%loaded: !tt.ptr<i32>"]
        numbers = [*LENGTHS, "START"]
        strides = ["MOVE", *(f"{part}{name}" for name in "xy" for part in "seo")]
        arguments += [f"%{name}: i32" for name in numbers] + [f"%{name}: i32 {marked}" for name in strides]
        self._body()
        return "\n  ".join(
            [f"module {{\n tt.func public @k({', '.join(arguments)}) {{", *w.lines, "tt.return\n }\n}\n"]
        )

    def _body(self) -> None:
        w = self.w
        self.program = {axis: w.put(f"tt.get_program_id {axis} : i32") for axis in "xyz"}
        self.zero, tile = w.number(0), w.number(self.tile["k"])
        for each in self.operands:
            self.first[each.name] = self._first(each)
        m, n = self.tile["m"], self.tile["n"]
        total = w.put(f"arith.constant dense<0.0> : tensor<{m}x{n}xf32>", "none")
        loops = 2 if self.loop == "twice" else 1
        for _ in range(loops):
            total = self._sum(total, tile)
        self._store(total)

    def _first(self, each: Operand) -> str:
        """The first index of the tile along m or n."""
        w = self.w
        program = self.program["x" if each.name == "x" else "y"]
        axis = "x" if each.name == "x" else "y"
        match each.numbered:
            case "reversed":
                last = w.binary("subi", w.put(f"tt.get_num_programs {axis} : i32"), w.number(1))
                program = w.binary("subi", last, program)
            case "grouped":
                # Programs in groups of two, the last of which may be smaller.
                two = w.number(2)
                first = w.binary("muli", w.put(f"arith.divsi {program}, {two} : i32"), two)
                left = w.binary("subi", w.put(f"tt.get_num_programs {axis} : i32"), first)
                height = w.put(f"arith.minsi {left}, {two} : i32")
                program = w.binary("addi", first, w.put(f"arith.remsi {program}, {height} : i32"))
            case "remainder":
                program = w.put(f"arith.remsi {program}, {w.number(2)} : i32")
            case _:
                pass
        return w.binary("muli", program, w.number(self.tile[each.mn]))

    def _sum(self, total: str, tile: str) -> str:
        w, m, n, k = self.w, self.tile["m"], self.tile["n"], self.tile["k"]
        start, end, step = self.zero, "%K", tile
        if self.loop == "steps":
            end = w.put(f"arith.divsi {w.binary('addi', '%K', w.number(k - 1))}, {tile} : i32")
            step = w.number(1)
        elif self.loop == "from a number":
            start = "%START"
        carried = [each for each in self.operands if each.steps == "carried"]
        begins = {
            each.name: (
                self._pointers(each, start if self.loop == "from a number" else self.zero, None),
                self._type(each),
            )
            for each in carried
        }
        acc, result, counter = f"%acc_{w.count}", f"%r_{w.count}", f"%i_{w.count}"
        inits = [(acc, total, f"tensor<{m}x{n}xf32>")]
        inits += [(f"%p{name}_{w.count}", value, type_) for name, (value, type_) in begins.items()]
        given = ", ".join(f"{name} = {value}" for name, value, _ in inits)
        types = ", ".join(type_ for _, _, type_ in inits)
        many = f":{len(inits)}" if len(inits) > 1 else ""
        names = {each.name: inits[1 + place][0] for place, each in enumerate(carried)}
        w.say(
            f"{result}{many} = scf.for {counter} = {start} to {end} step {step} iter_args({given}) -> ({types}) : i32 {{"
        )
        at = w.binary("muli", counter, tile) if self.loop == "steps" else counter
        tiles = []
        for each in self.operands:
            pointers = names.get(each.name) or self._pointers(each, at, counter)
            tiles.append(self._load(each, pointers, at, counter))
        product = w.put(
            f"tt.dot {tiles[0]}, {tiles[1]}, {acc} : tensor<{m}x{k}xf16> * tensor<{k}x{n}xf16> -> tensor<{m}x{n}xf32>"
        )
        moved = [self._moved(each, names[each.name]) for each in carried]
        w.say(f"scf.yield {', '.join([product, *moved])} : {types}")
        w.say("}")
        return f"{result}#0" if many else result

    @staticmethod
    def _type(each: Operand) -> str:
        return f"tensor<{'x'.join(map(str, each.shape))}x!tt.ptr<f16>>"

    def _lanes(self, each: Operand, axis: int, *starts: str) -> str:
        """Numbers along an axis of the tile, from a sum of scalars on, for the whole tile."""
        w, size = self.w, each.shape[axis]
        value = w.put(f"tt.make_range {{end = {size} : i32, start = 0 : i32}} : tensor<{size}xi32>")
        for start in starts:
            value = w.binary(
                "addi", w.put(f"tt.splat {start} : i32 -> tensor<{size}xi32>"), value, f"tensor<{size}xi32>"
            )
        return self._spread(each, value, axis)

    def _spread(self, each: Operand, value: str, axis: int) -> str:
        w, size = self.w, each.shape[axis]
        one = f"{size}x1" if axis == 0 else f"1x{size}"
        wide = w.put(f"tt.expand_dims {value} {{axis = {1 - axis} : i32}} : tensor<{size}xi32> -> tensor<{one}xi32>")
        return w.put(f"tt.broadcast {wide} : tensor<{one}xi32> -> {self._whole(each)}")

    @staticmethod
    def _whole(each: Operand, element: str = "i32") -> str:
        return f"tensor<{'x'.join(map(str, each.shape))}x{element}>"

    def _splat(self, each: Operand, scalar: str) -> str:
        return self.w.put(f"tt.splat {scalar} : i32 -> {self._whole(each)}")

    def _shift(self, each: Operand, kind: str) -> list[str]:
        if kind == "none":
            return []
        return [self.w.number(8)] if kind == "number" else [f"%o{each.name}"]

    def _pointers(self, each: Operand, at: str, counter: str | None) -> str:
        w, whole = self.w, self._whole(each)
        along_k = self._lanes(each, each.k_axis, at, *self._shift(each, each.k_shift))
        along_mn = self._lanes(each, 1 - each.k_axis, self.first[each.name], *self._shift(each, each.mn_shift))
        if each.wrap != "none":
            size = self._splat(each, "%W")
            match each.wrap:
                case "remainder":
                    along_mn = w.put(f"arith.remsi {along_mn}, {size} : {whole}")
                case "minimum":
                    last = self._splat(each, w.binary("subi", "%W", w.number(1)))
                    along_mn = w.put(f"arith.minsi {along_mn}, {last} : {whole}")
                case _:
                    none = w.put(f"arith.constant dense<0> : {whole}")
                    inside = w.put(f"arith.cmpi slt, {along_mn}, {size} : {whole}")
                    along_mn = w.put(f"arith.select {inside}, {along_mn}, {none} : {self._whole(each, 'i1')}, {whole}")
        pitch = self._splat(each, f"%s{each.name}")
        if each.across:
            along_k = w.binary("muli", along_k, pitch, whole)
        else:
            along_mn = w.binary("muli", along_mn, pitch, whole)
        base = f"%{each.name}"
        entry = self._entry(each, counter)
        if entry is not None:
            base = w.put(f"tt.addptr {base}, {w.binary('muli', entry, f'%e{each.name}')} : !tt.ptr<f16>, i32")
        found = w.put(f"tt.splat {base} : !tt.ptr<f16> -> {self._type(each)}")
        for offset in (along_k, along_mn):
            found = w.put(f"tt.addptr {found}, {offset} : {self._type(each)}, {whole}")
        return found

    def _entry(self, each: Operand, counter: str | None) -> str | None:
        match each.entry:
            case "none":
                return None
            case "program":
                return self.program["z"]
            case "argument":
                return "%E"
            case "iteration" if counter is not None:
                return (
                    counter
                    if self.loop == "steps"
                    else self.w.put(f"arith.divsi {counter}, {self.w.number(self.tile['k'])} : i32")
                )
            case _:
                at = self.w.put(f"tt.addptr %loaded, {self.program['z']} : !tt.ptr<i32>, i32")
                return self.w.put(f"tt.load {at} : !tt.ptr<i32>")

    def _moved(self, each: Operand, pointers: str) -> str:
        w = self.w
        match each.by:
            case "MOVE":
                step = "%MOVE"
            case "rows":
                step = w.number(self.tile[each.mn])
            case by:
                step = w.number(self.tile["k"] if by == "tile" else int(by))
        if each.across != (each.by == "rows"):
            step = w.binary("muli", step, f"%s{each.name}")
        return w.put(f"tt.addptr {pointers}, {self._splat(each, step)} : {self._type(each)}, {self._whole(each)}")

    def _bound(self, each: Operand, index: str, limit: str) -> str:
        name = "ult" if each.unsigned else self.w.pick("slt", "slt", "sgt")
        size = self._splat(each, limit)
        pair = f"{size}, {index}" if name == "sgt" else f"{index}, {size}"
        return self.w.put(f"arith.cmpi {name}, {pair} : {self._whole(each)}")

    def _load(self, each: Operand, pointers: str, at: str, counter: str) -> str:
        w, whole = self.w, self._whole(each, "i1")
        masks: list[str] = []
        # As an unsigned number, each index is at least 0.
        floor = "uge" if each.unsigned else "sge"
        known = [shift for kind in (each.k_shift,) if kind != "unknown" for shift in self._shift(each, kind)]
        limit = f"%{each.limit}" if each.limit.isalpha() else w.number(int(each.limit))
        match each.k_mask:
            case "fixed" | "floored fixed":
                masks.append(self._bound(each, self._lanes(each, each.k_axis, *known), limit))
            case "moving" | "floored":
                masks.append(self._bound(each, self._lanes(each, each.k_axis, at, *known), limit))
            case "least":
                least = w.put(f"arith.minsi {limit}, %LIMIT : i32")
                masks.append(self._bound(each, self._lanes(each, each.k_axis, at, *known), least))
            case _:
                pass
        if each.k_mask.startswith("floored"):
            none = w.put(f"arith.constant dense<0> : {self._whole(each)}")
            lanes = self._lanes(each, each.k_axis, at, *known)
            masks.append(w.put(f"arith.cmpi {floor}, {lanes}, {none} : {self._whole(each)}"))
        known = [shift for kind in (each.mn_shift,) if kind != "unknown" for shift in self._shift(each, kind)]
        limit = "%R" if each.wrap == "none" else "%W"
        if each.mn_mask != "none":
            starts = [] if each.mn_mask == "fixed" else [self.first[each.name]]
            lanes = self._lanes(each, 1 - each.k_axis, *starts, *known)
            masks.append(self._bound(each, lanes, limit))
            if each.mn_mask == "floored":
                none = w.put(f"arith.constant dense<0> : {self._whole(each)}")
                masks.append(w.put(f"arith.cmpi {floor}, {lanes}, {none} : {self._whole(each)}"))
        if each.entry_mask and each.entry in ("program", "argument"):
            entry = self._entry(each, counter)
            inside = w.put(f"arith.cmpi slt, {entry}, %E : i32")
            masks.append(w.put(f"tt.splat {inside} : i1 -> {whole}"))
        if not masks:
            return w.put(f"tt.load {pointers} : {self._type(each)}", each.name)
        while len(masks) > 1:
            masks[:2] = [w.binary("andi", masks[0], masks[1], whole)]
        none = w.put(f"arith.constant dense<0.0> : {self._whole(each, 'f16')}")
        return w.put(f"tt.load {pointers}, {masks[0]}, {none} : {self._type(each)}", each.name)

    def _store(self, total: str) -> None:
        """The sums of each program behind each other. Rows that wrap are left out."""
        w, m, n = self.w, self.tile["m"], self.tile["n"]
        program = self.program["x"]
        for axis in "yz":
            count = w.put(f"tt.get_num_programs {axis} : i32")
            program = w.binary("addi", w.binary("muli", program, count), self.program[axis])
        place = w.binary("muli", program, w.number(m * n))
        whole = f"tensor<{m}x{n}xi32>"
        lanes = []
        for size in (m, n):
            lane = w.put(f"tt.make_range {{end = {size} : i32, start = 0 : i32}} : tensor<{size}xi32>")
            lanes.append(lane)

        def spread(value: str, axis: int) -> str:
            size, one = (m, n)[axis], f"{m}x1" if axis == 0 else f"1x{n}"
            wide = w.put(
                f"tt.expand_dims {value} {{axis = {1 - axis} : i32}} : tensor<{size}xi32> -> tensor<{one}xi32>"
            )
            return w.put(f"tt.broadcast {wide} : tensor<{one}xi32> -> {whole}")

        flat = w.binary("addi", w.put(f"tt.splat {place} : i32 -> {whole}"), spread(lanes[1], 1), whole)
        pitch = w.put(f"arith.constant dense<{n}> : {whole}")
        flat = w.binary("addi", flat, w.binary("muli", spread(lanes[0], 0), pitch, whole), whole)
        base = w.put(f"tt.splat %d : !tt.ptr<f32> -> tensor<{m}x{n}x!tt.ptr<f32>>")
        at = w.put(f"tt.addptr {base}, {flat} : tensor<{m}x{n}x!tt.ptr<f32>>, {whole}")
        masks = []
        for axis, each in enumerate(self.operands):
            if each.wrap != "none":
                size = (m, n)[axis]
                lane = lanes[axis]
                for start in (self.first[each.name], *self._shift(each, each.mn_shift)):
                    lane = w.binary(
                        "addi", w.put(f"tt.splat {start} : i32 -> tensor<{size}xi32>"), lane, f"tensor<{size}xi32>"
                    )
                limit = w.put(f"tt.splat %W : i32 -> {whole}")
                masks.append(w.put(f"arith.cmpi slt, {spread(lane, axis)}, {limit} : {whole}"))
        while len(masks) > 1:
            masks[:2] = [w.binary("andi", masks[0], masks[1], f"tensor<{m}x{n}xi1>")]
        mask = f", {masks[0]}" if masks else ""
        w.say(f"tt.store {at}, {total}{mask} : tensor<{m}x{n}x!tt.ptr<f32>>")
