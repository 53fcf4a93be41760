"""Random kernels as users write them, in tile IR: any style of access, numbering of tiles, layout and epilogue, from a seed.

A kernel computes d = f(a · b), or f(a · b, a2 · b), where a, a2 [M, K] are sparse arguments on the left or on the right of the dot and
b is dense in either layout. Epilogues use steps that IEEE arithmetic rounds one by one, so that they give one result however they are run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

import louver
from louver.formats.dtypes import element_type
from louver.formats.tensor import SparseTensor
from louver.ir.interpret import run_kernel
from louver.ir.tile import FuncOp
from support.random_epilogue import RandomEpilogue, Writer

Array = NDArray[Any]

TILE_M, TILE_N, TILE_K = 64, 32, 64
"""Rows of the sparse operand, or of both of a pair, of the dense one, and columns of K in a tile."""

GROUP = 3
"""Rows of tiles in a group, for numberings that have such."""

GAP = 3
"""Elements between the rows of an output, which no kernel may touch."""

NUMBERINGS = ("grid", "swapped", "reversed", "rows", "columns", "groups", "persistent")
STYLES = ("descriptor", "blocks", "carried blocks", "pointers", "carried pointers")


@dataclass
class RandomKernel:
    """One kernel and its operands.

    text: a module. flat: its grid numbers tiles along one axis. grid: programs before tiles are numbered anew, numbered: after.
    arguments: what an interpreter binds; `out` is `arguments["d"]`. sparse: the sparse arguments in order. reads: of the epilogue.
    """

    seed: int
    text: str
    grid: tuple[int, ...]
    numbered: tuple[int, ...]
    arguments: dict[str, Any]
    sparse: list[SparseTensor]
    dense: Array
    reads: dict[str, Any]
    choices: dict[str, Any]

    @property
    def operand(self) -> SparseTensor:
        """The sparse operand of the product, gate and up as one."""
        return louver.gated(*self.sparse) if len(self.sparse) == 2 else self.sparse[0]

    def output(self, d: Array) -> Array:
        """The part of the output that a kernel writes: without the elements between its rows."""
        return d[:, :-GAP]

    def bound(self, names: Sequence[str]) -> dict[str, Any]:
        """The arguments of these names, and a poisoned output."""
        d = self.arguments["d"]
        fresh = {"d": np.full_like(d, np.nan), "a_a2": self.operand}
        return {name: (self.arguments | fresh)[name] for name in names}


def interpreted(module: ModuleOp, kernel: RandomKernel, grid: Sequence[int]) -> Array:
    """The output, with the elements between its rows, of the kernel at any stage of its passes."""
    (function,) = (op for op in module.body.ops if isinstance(op, FuncOp))
    bound = kernel.bound(list(function.argument_names.values()))
    run_kernel(module, grid, bound)
    return bound["d"]


def numbers(array: Array) -> NDArray[np.float64]:
    """The numbers and their signs, so that 0 and -0 are two."""
    wide = array.astype(np.float64)
    return np.stack([wide, np.where(np.isnan(wide), 0, np.signbit(wide))])


def random_kernel(seed: int) -> RandomKernel:
    """The kernel of a seed, of sizes up to a few tiles, with tails."""
    rng = np.random.default_rng(seed)
    w = Writer(rng)
    choices: dict[str, Any] = {
        "right": w.pick(True, False),
        "pair": w.pick(False, False, True),
        "numbering": w.pick(*NUMBERINGS),
        "a": w.pick(*STYLES),
        "b": w.pick(*STYLES),
        "d": w.pick("descriptor", "blocks", "pointers"),
        "k_major": w.pick(True, False),
        "turned": w.pick(True, False),
        "element": w.pick("f16", "bf16"),
        "out": w.pick("f16", "bf16", "f32"),
        "loop": w.pick("elements", "steps", "once"),
        "inside": w.pick(True, False),
    }
    return _Kernel(w, seed, choices).make()


@dataclass
class _Kernel(RandomEpilogue):
    seed: int
    choices: dict[str, Any]

    def make(self) -> RandomKernel:
        w, c = self.w, self.choices
        self.names = ["a", "a2"] if c["pair"] else ["a"]
        self.tile_m = TILE_M // len(self.names)
        eight = 8 if c["pair"] else 1
        m, n = -(-int(w.rng.integers(1, 200)) // eight) * eight, int(w.rng.integers(1, 100))
        k = int(w.rng.integers(1, TILE_K + 1)) if c["loop"] == "once" else int(w.rng.integers(1, 200))
        self.sizes = {"M": m, "N": n, "K": k}
        # The dot's rows and columns: (size, elements in a tile).
        axes = [("M", self.tile_m), ("N", TILE_N)]
        self.rows, self.columns = axes[::-1] if c["right"] else axes
        # The output's own order: rows and columns of the dot, or the other way round.
        self.order = (self.columns, self.rows) if c["turned"] else (self.rows, self.columns)
        self.read: dict[str, str] = {}
        body = self._body()
        return self._kernel(body, m, n, k)

    def _kernel(self, body: list[str], m: int, n: int, k: int) -> RandomKernel:
        c, rng = self.choices, self.w.rng
        element, out = c["element"], c["out"]
        dtype = element_type(element).numpy
        types = dict.fromkeys(self.names, f"!tt.ptr<{element}> {{louver.sparse.NV24 = 1 : i32}}")
        types |= {"b": f"!tt.ptr<{element}>", "d": f"!tt.ptr<{out}>"} | self.read
        types |= dict.fromkeys(("M", "N", "K", "stride_a", "stride_b", "stride_d"), "i32")
        order = list(types)
        rng.shuffle(order)
        arguments = ", ".join(f"%{name}: {types[name]}" for name in order)
        text = "\n  ".join([f"module {{\n tt.func public @random({arguments}) {{", *body, "tt.return\n }\n}\n"])
        draw = lambda *shape: rng.integers(-4, 5, shape).astype(dtype)  # noqa: E731
        sparse = [louver.compress(louver.prune(draw(m, k), "2:4"), "2:4") for _ in self.names]
        dense = draw(n, k) if c["k_major"] else draw(k, n)
        size = {"M": m, "N": n}
        first, last = (size[name] for name, _ in self.order)
        d = np.zeros((first, last + GAP), element_type(out).numpy)
        given: dict[str, Any] = {"a": sparse[0], "a2": sparse[-1], "b": dense, "d": d, "M": m, "N": n, "K": k}
        given |= {"stride_a": k, "stride_b": dense.shape[1], "stride_d": last + GAP}
        reads: dict[str, Any] = {}
        for name in self.read:
            if name == "alpha":
                reads[name] = float(rng.integers(-2, 3))
            elif name == "mode":
                reads[name] = int(rng.integers(-1, 3))
            else:
                reads[name] = rng.integers(-3, 4, size["M" if name == "along_m" else "N"]).astype(np.float32)
        tiles = {name: -(-size[name] // tile) for name, tile in (self.rows, self.columns)}
        two = tiles[self.rows[0]], tiles[self.columns[0]]
        grid: tuple[int, ...] = {"grid": two, "swapped": two[::-1], "reversed": two}.get(
            c["numbering"], (two[0] * two[1],)
        )
        numbered = tuple(tiles[name] for name, _ in self.order)
        if c["numbering"] in ("grid", "swapped"):
            numbered = grid
        return RandomKernel(self.seed, text, grid, numbered, given | reads, sparse, dense, reads, c)

    # The place where a program works.

    def _body(self) -> list[str]:
        w, c = self.w, self.choices
        self.one64 = w.put("arith.constant 1 : i64", "one64")
        self.zero = w.number(0)
        self.tiles = {name: self._count(name, tile) for name, tile in (self.rows, self.columns)}
        if c["numbering"] != "persistent":
            self._tile(self._program())
            return w.lines
        total = w.binary("muli", *(self.tiles[name] for name, _ in (self.rows, self.columns)))
        program, programs = w.put("tt.get_program_id x : i32"), w.put("tt.get_num_programs x : i32")
        w.say(f"scf.for %tile = {program} to {total} step {programs} : i32 {{")
        self._tile(self._grouped("%tile"))
        w.say("}")
        return w.lines

    def _count(self, name: str, tile: int) -> str:
        w = self.w
        above = w.binary("addi", f"%{name}", w.number(tile - 1))
        return w.put(f"arith.divsi {above}, {w.number(tile)} : i32", "tiles")

    def _program(self) -> tuple[str, str]:
        """The tile's numbers along the dot's rows and columns."""
        w, numbering = self.w, self.choices["numbering"]
        x = w.put("tt.get_program_id x : i32")
        rows, columns = self.tiles[self.rows[0]], self.tiles[self.columns[0]]
        match numbering:
            case "grid" | "swapped" | "reversed":
                y = w.put("tt.get_program_id y : i32")
                if numbering == "reversed":
                    last = w.put(f"arith.subi {w.put('tt.get_num_programs x : i32')}, {w.number(1)} : i32")
                    x = w.put(f"arith.subi {last}, {x} : i32")
                return (y, x) if numbering == "swapped" else (x, y)
            case "rows":
                return w.put(f"arith.divsi {x}, {columns} : i32"), w.put(f"arith.remsi {x}, {columns} : i32")
            case "columns":
                return w.put(f"arith.remsi {x}, {rows} : i32"), w.put(f"arith.divsi {x}, {rows} : i32")
            case _:
                return self._grouped(x)

    def _grouped(self, x: str) -> tuple[str, str]:
        w = self.w
        rows, columns = self.tiles[self.rows[0]], self.tiles[self.columns[0]]
        of_group = w.binary("muli", columns, w.number(GROUP))
        first = w.binary("muli", w.put(f"arith.divsi {x}, {of_group} : i32"), w.number(GROUP))
        height = w.put(f"arith.minsi {w.put(f'arith.subi {rows}, {first} : i32')}, {w.number(GROUP)} : i32")
        inside = w.put(f"arith.remsi {x}, {of_group} : i32")
        row = w.binary("addi", first, w.put(f"arith.remsi {inside}, {height} : i32"))
        return row, w.put(f"arith.divsi {inside}, {height} : i32")

    def _tile(self, numbers: tuple[str, str]) -> None:
        w = self.w
        self.first = {
            name: w.binary("muli", number, w.number(tile))
            for number, (name, tile) in zip(numbers, (self.rows, self.columns), strict=True)
        }
        total = self._sums()
        value = self._epilogue(total)
        self._store(value)

    # Operands.

    def _sums(self) -> list[str]:
        w, c = self.w, self.choices
        shape = f"{self.rows[1]}x{self.columns[1]}xf32"
        zeros = w.put(f"arith.constant dense<0.0> : tensor<{shape}>", "zeros")
        operands = [*self.names, "b"]
        if c["loop"] == "once":
            tiles = {name: self._load(name, self.zero, None) for name in operands}
            return [w.put(self._dot(tiles, name, zeros, shape), "sum") for name in self.names]
        carried = {name: self._begin(name) for name in operands if c["b" if name == "b" else "a"].startswith("carried")}
        inits = [(f"%p_{name}", value, type_) for name, (value, type_) in carried.items()]
        inits += [(f"%s_{name}", zeros, f"tensor<{shape}>") for name in self.names]
        steps = c["loop"] == "steps"
        end = self._count("K", TILE_K) if steps else "%K"
        step = w.number(1 if steps else TILE_K)
        results = f"%r_{w.count}"
        arguments = ", ".join(f"{argument} = {value}" for argument, value, _ in inits)
        types = ", ".join(type_ for _, _, type_ in inits)
        count = f":{len(inits)}" if len(inits) > 1 else ""
        w.say(
            f"{results}{count} = scf.for %i_{w.count} = {self.zero} to {end} step {step} iter_args({arguments}) -> ({types}) : i32 {{"
        )
        counter = f"%i_{results.removeprefix('%r_')}"
        k = w.binary("muli", counter, w.number(TILE_K)) if steps else counter
        tiles = {name: self._load(name, k, f"%p_{name}" if name in carried else None) for name in operands}
        sums: list[str] = []
        for name in self.names:
            if c["inside"]:
                sums.append(w.put(self._dot(tiles, name, f"%s_{name}", shape)))
            else:
                product = w.put(self._dot(tiles, name, zeros, shape))
                sums.append(w.put(f"arith.addf %s_{name}, {product} : tensor<{shape}>"))
        moved = [self._move(name, f"%p_{name}", type_) for name, (_, type_) in carried.items()]
        w.say(f"scf.yield {', '.join([*moved, *sums])} : {types}")
        w.say("}")
        if not count:
            return [results]
        return [f"{results}#{len(carried) + index}" for index in range(len(self.names))]

    def _dot(self, tiles: dict[str, str], name: str, total: str, shape: str) -> str:
        left, right = (tiles["b"], tiles[name]) if self.choices["right"] else (tiles[name], tiles["b"])
        e = self.choices["element"]
        return (
            f"tt.dot {left}, {right}, {total} : tensor<{self.rows[1]}x{TILE_K}x{e}> * "
            f"tensor<{TILE_K}x{self.columns[1]}x{e}> -> tensor<{shape}>"
        )

    def _axes(self, name: str) -> tuple[tuple[str, int], bool, bool]:
        """An operand's size and tile that are not K; whether K is contiguous; whether the dot wants K first."""
        axis = ("N", TILE_N) if name == "b" else ("M", self.tile_m)
        k_first = (axis == self.columns) if self.rows[0] != self.columns[0] else False
        return axis, name != "b" or self.choices["k_major"], k_first

    def _load(self, name: str, k: str, carried: str | None) -> str:
        """A tile of an operand as the dot wants it, at `k`."""
        axis, _, k_first = self._axes(name)
        style = self.choices["b" if name == "b" else "a"]
        w, e = self.w, self.choices["element"]
        if style == "descriptor":
            return self._described(name, k)
        if "blocks" in style:
            pointer = carried or self._block(name, k)
            shape = self._shape(axis[1], k_first)
            return w.put(
                f"tt.load {pointer} {{boundaryCheck = array<i32: 0, 1>, padding = 1 : i32}} : !tt.ptr<tensor<{shape}x{e}>>",
                name,
            )
        pointers = carried or self._pointers(name, k)
        shape = self._shape(axis[1], k_first)
        mask = self._mask(axis, k, k_first)
        fill = w.put(f"arith.constant dense<0.0> : tensor<{shape}x{e}>")
        return w.put(f"tt.load {pointers}, {mask}, {fill} : tensor<{shape}x!tt.ptr<{e}>>", name)

    @staticmethod
    def _shape(rows: int, k_first: bool) -> str:
        return f"{TILE_K}x{rows}" if k_first else f"{rows}x{TILE_K}"

    def _described(self, name: str, k: str) -> str:
        """By a descriptor, transposed if it has to be."""
        w, e = self.w, self.choices["element"]
        axis, k_major, k_first = self._axes(name)
        stride = w.put(f"arith.extsi %stride_{name[0]} : i32 to i64")
        sizes = [f"%{axis[0]}", "%K"] if k_major else ["%K", f"%{axis[0]}"]
        block = f"tensor<{self._shape(axis[1], not k_major)}x{e}>"
        descriptor = w.put(
            f"tt.make_tensor_descriptor %{name}, [{', '.join(sizes)}], [{stride}, {self.one64}] : <{e}>, <{block}>",
            "tensor",
        )
        first = [self.first[axis[0]], k] if k_major else [k, self.first[axis[0]]]
        tile = w.put(f"tt.descriptor_load {descriptor}[{', '.join(first)}] : !tt.tensordesc<{block}> -> {block}", name)
        if k_first != k_major:
            return tile
        turned = f"tensor<{self._shape(axis[1], k_first)}x{e}>"
        return w.put(f"tt.trans {tile} {{order = array<i32: 1, 0>}} : {block} -> {turned}", name)

    def _block(self, name: str, k: str) -> str:
        w, e = self.w, self.choices["element"]
        axis, k_major, k_first = self._axes(name)
        pitch = w.put(f"arith.extsi %stride_{name[0]} : i32 to i64")
        rows, depth = (w.put(f"arith.extsi %{size} : i32 to i64") for size in (axis[0], "K"))
        sizes, strides = [rows, depth], [pitch, self.one64] if k_major else [self.one64, pitch]
        first = [self.first[axis[0]], k]
        if k_first:
            sizes, strides, first = sizes[::-1], strides[::-1], first[::-1]
        lists = ", ".join(f"[{', '.join(each)}]" for each in (sizes, strides, first))
        return w.put(f"tt.make_tensor_ptr %{name}, {lists} : <tensor<{self._shape(axis[1], k_first)}x{e}>>", "block")

    def _range(self, size: int, first: str) -> str:
        """Indices from `first` on."""
        w = self.w
        lanes = w.put(f"tt.make_range {{end = {size} : i32, start = 0 : i32}} : tensor<{size}xi32>")
        return w.binary("addi", w.put(f"tt.splat {first} : i32 -> tensor<{size}xi32>"), lanes, f"tensor<{size}xi32>")

    def _spread(self, lanes: str, size: int, dimension: int, type_: str = "i32") -> tuple[str, str]:
        """A vector along a dimension of a matrix: the value, and its shape."""
        shape = f"{size}x1" if dimension == 0 else f"1x{size}"
        axis = 1 - dimension
        value = self.w.put(
            f"tt.expand_dims {lanes} {{axis = {axis} : i32}} : tensor<{size}x{type_}> -> tensor<{shape}x{type_}>"
        )
        return value, shape

    def _pointers(self, name: str, k: str) -> str:
        w = self.w
        axis, k_major, k_first = self._axes(name)
        lanes = self._range(axis[1], self.first[axis[0]])
        if w.pick(True, False):
            size = w.put(f"tt.splat %{axis[0]} : i32 -> tensor<{axis[1]}xi32>")
            lanes = w.put(f"arith.remsi {lanes}, {size} : tensor<{axis[1]}xi32>")
        depth = self._range(TILE_K, k)
        return self._matrix_of_pointers(
            name, f"%stride_{name[0]}", (lanes, axis[1]), (depth, TILE_K), last_contiguous=k_major, turned=k_first,
            element=self.choices["element"],
        )  # fmt: skip

    def _matrix_of_pointers(
        self,
        name: str,
        stride: str,
        one: tuple[str, int],
        two: tuple[str, int],
        *,
        last_contiguous: bool,
        turned: bool,
        element: str,
    ) -> str:
        """Pointers to elements (one, two); `turned`: the tile has `two` along its first dimension."""
        w = self.w
        places = {"one": (one, 1 if turned else 0), "two": (two, 0 if turned else 1)}
        whole = f"{two[1]}x{one[1]}" if turned else f"{one[1]}x{two[1]}"
        base = w.put(f"tt.splat %{name} : !tt.ptr<{element}> -> tensor<{whole}x!tt.ptr<{element}>>")
        names = ["one", "two"]
        self.w.rng.shuffle(names)
        for each in names:
            (lanes, size), dimension = places[each]
            value, shape = self._spread(lanes, size, dimension)
            if (each == "one") == last_contiguous:
                pitch = w.put(f"tt.splat {stride} : i32 -> tensor<{shape}xi32>")
                value = w.binary("muli", value, pitch, f"tensor<{shape}xi32>")
            offsets = w.put(f"tt.broadcast {value} : tensor<{shape}xi32> -> tensor<{whole}xi32>")
            base = w.put(f"tt.addptr {base}, {offsets} : tensor<{whole}x!tt.ptr<{element}>>, tensor<{whole}xi32>")
        return base

    def _bound(self, lanes: str, size: str, tile: int, dimension: int, whole: str) -> str:
        """lanes < size, in one of the ways in which that can be written, over a whole tile."""
        w = self.w
        value, shape = self._spread(lanes, tile, dimension)
        limit = w.put(f"tt.splat {size} : i32 -> tensor<{shape}xi32>")
        text = w.pick(f"slt, {value}, {limit}", f"sgt, {limit}, {value}", f"ult, {value}, {limit}")
        mask = w.put(f"arith.cmpi {text} : tensor<{shape}xi32>")
        return w.put(f"tt.broadcast {mask} : tensor<{shape}xi1> -> tensor<{whole}xi1>")

    def _all(self, masks: list[str], whole: str) -> str:
        """Masks joined in any order and association."""
        self.w.rng.shuffle(masks)
        while len(masks) > 1:
            index = int(self.w.rng.integers(len(masks) - 1))
            masks[index : index + 2] = [self.w.binary("andi", masks[index], masks[index + 1], f"tensor<{whole}xi1>")]
        return masks[0]

    def _mask(self, axis: tuple[str, int], k: str, k_first: bool) -> str:
        w = self.w
        whole = self._shape(axis[1], k_first)
        masks = [self._bound(self._range(TILE_K, k), "%K", TILE_K, 0 if k_first else 1, whole)]
        lanes = self._range(axis[1], self.first[axis[0]])
        masks.append(self._bound(lanes, f"%{axis[0]}", axis[1], 1 if k_first else 0, whole))
        if w.pick(True, False):
            value, shape = self._spread(lanes, axis[1], 1 if k_first else 0)
            none = w.put(f"arith.constant dense<0> : tensor<{shape}xi32>")
            mask = w.put(f"arith.cmpi sge, {value}, {none} : tensor<{shape}xi32>")
            masks.append(w.put(f"tt.broadcast {mask} : tensor<{shape}xi1> -> tensor<{whole}xi1>"))
        return self._all(masks, whole)

    def _begin(self, name: str) -> tuple[str, str]:
        """The value that a loop carries for an operand, and its type."""
        axis, _, k_first = self._axes(name)
        shape, e = self._shape(axis[1], k_first), self.choices["element"]
        if "blocks" in self.choices["b" if name == "b" else "a"]:
            return self._block(name, self.zero), f"!tt.ptr<tensor<{shape}x{e}>>"
        return self._pointers_inside(name), f"tensor<{shape}x!tt.ptr<{e}>>"

    def _pointers_inside(self, name: str) -> str:
        return self._pointers(name, self.zero)

    def _move(self, name: str, value: str, type_: str) -> str:
        """A carried pointer, one step of K on."""
        w = self.w
        axis, k_major, k_first = self._axes(name)
        step = w.number(TILE_K)
        if "blocks" in self.choices["b" if name == "b" else "a"]:
            by = [step, self.zero] if k_first else [self.zero, step]
            return w.put(f"tt.advance {value}, [{', '.join(by)}] : <{type_.removeprefix('!tt.ptr<')}")
        if not k_major:
            step = w.binary("muli", step, f"%stride_{name[0]}")
        shape = self._shape(axis[1], k_first)
        offsets = w.put(f"tt.splat {step} : i32 -> tensor<{shape}xi32>")
        return w.put(f"tt.addptr {value}, {offsets} : {type_}, tensor<{shape}xi32>")

    # The output.

    def _store(self, value: str) -> None:
        w, c = self.w, self.choices
        out, style = c["out"], c["d"]
        wide = self._type()
        type_ = wide.replace("f32", out)
        if out != "f32":
            value = w.put(f"arith.truncf {value} : {wide} to {type_}")
        (one, one_tile), (two, two_tile) = self.order
        first = [self.first[one], self.first[two]]
        if style == "descriptor":
            stride = w.put("arith.extsi %stride_d : i32 to i64")
            made = w.put(
                f"tt.make_tensor_descriptor %d, [%{one}, %{two}], [{stride}, {self.one64}] : <{out}>, <{type_}>"
            )
            w.say(f"tt.descriptor_store {made}[{', '.join(first)}], {value} : !tt.tensordesc<{type_}>, {type_}")
            return
        turned = w.pick(True, False)
        if turned:
            flat = f"tensor<{two_tile}x{one_tile}x{out}>"
            value = w.put(f"tt.trans {value} {{order = array<i32: 1, 0>}} : {type_} -> {flat}")
            type_ = flat
        if style == "blocks":
            stride = w.put("arith.extsi %stride_d : i32 to i64")
            sizes = [w.put(f"arith.extsi %{size} : i32 to i64") for size in (one, two)]
            lists = [sizes, [stride, self.one64], first]
            text = ", ".join(f"[{', '.join(each[::-1] if turned else each)}]" for each in lists)
            block = w.put(f"tt.make_tensor_ptr %d, {text} : <{type_}>")
            w.say(f"tt.store {block}, {value} {{boundaryCheck = array<i32: 0, 1>}} : !tt.ptr<{type_}>")
            return
        lanes = [(self._range(tile, start), tile) for (_, tile), start in zip(self.order, first, strict=True)]
        pointers = self._matrix_of_pointers("d", "%stride_d", *lanes, last_contiguous=True, turned=turned, element=out)
        whole = type_.removeprefix("tensor<").rsplit("x", 1)[0]
        masks = [
            self._bound(index, f"%{name}", tile, (1 - place) if turned else place, whole)
            for place, ((index, tile), (name, _)) in enumerate(zip(lanes, self.order, strict=True))
        ]
        w.say(f"tt.store {pointers}, {value}, {self._all(masks, whole)} : tensor<{whole}x!tt.ptr<{out}>>")
