"""Tile IR of loops of dots, by pointers with masks: operands of every type, on both sides, along and across K."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import louver
from louver.compile.compiled import CompiledTiles
from louver.emulator import Seeded
from louver.emulator.order import Order
from louver.ptx.module import Kernel, Module
from support.compiled import compiled_tiles
from support.emulate_tiles import emulate_tiles

Array = NDArray[Any]

TYPES: dict[str, tuple[np.dtype[Any], str, str]] = {
    "f16": (np.dtype(np.float16), "f16", "f32"),
    "bf16": (np.dtype(ml_dtypes.bfloat16), "bf16", "f32"),
    "e4m3": (np.dtype(ml_dtypes.float8_e4m3fn), "f8E4M3FN", "f32"),
    "e5m2": (np.dtype(ml_dtypes.float8_e5m2), "f8E5M2", "f32"),
    "s8": (np.dtype(np.int8), "i8", "i32"),
    "f32": (np.dtype(np.float32), "f32", "f32"),
}
"""NumPy's type, tile IR's, and that of the sums."""

PARTS = {"x": ("a", "%m0", "%M"), "y": ("b", "%n0", "%N")}


@dataclass(frozen=True)
class DotLoop:
    """d [M, N] = a [M, K] · b, tile by tile. sparse: "a", "b" or neither. along_k: whether b is [N, K]; else it is [K, N].

    twice: another loop adds the same product again. scaled: b's tile is doubled in the loop. raised: b's tile has one added to each
    of its elements, so that a sparse one is multiplied as a dense one. warps: of a CTA. stored: b's element in
    memory, where it is another one. sums: the accumulators' element. promoted: columns of K that are summed before the sums are
    promoted. blocks: each step's product is scaled, by a factor of each row and of each column. factors: the sparse tile is multiplied by
    a factor of each of its columns. precision: that the dot asks for, of f32.
    """

    element: str
    tile: tuple[int, int, int]
    sparse: str = "a"
    along_k: bool = True
    twice: bool = False
    scaled: bool = False
    raised: bool = False
    warps: int | None = None
    stored: str | None = None
    sums: str | None = None
    promoted: int = 0
    blocks: bool = False
    factors: bool = False
    precision: str | None = None
    operands: dict[str, Array] = field(default_factory=dict[str, Array], compare=False)

    def text(self) -> str:
        (m, n, k), (_, t, s) = self.tile, TYPES[self.element]
        s, u = self.sums or s, TYPES[self.stored or self.element][1]
        zero = "0" if s == "i32" else "0.0"
        kept = "NV12" if self.element == "f32" else "NV24"
        marks = {each: f", louver.sparse.{kept} = 1 : i32" if each == self.sparse else "" for each in "ab"}
        arrays = ", ".join(
            f"%{each}: !tt.ptr<{element}> {{tt.divisibility = 16 : i32{marks[each]}}}"
            for each, element in zip("ab", (t, u), strict=True)
        )
        arrays += "".join(f", %{each}: !tt.ptr<f32>" for each in ("as", "bs")) if self.blocks else ""
        arrays += f", %f: !tt.ptr<{t}> {{tt.divisibility = 16 : i32}}" if self.factors else ""
        taken = f"{{maxNumImpreciseAcc = {self.promoted} : i32}} " if self.promoted else ""
        begin = "%none" if self.blocks else "%c"
        precision = "" if self.precision is None else f", inputPrecision = {self.precision}"
        # Tests have tiles with any number of rows.
        sizes = "%M: i32, %N: i32 {tt.divisibility = 8 : i32}, %K: i32 {tt.divisibility = 16 : i32}"
        loop = f"""= scf.for %i = %zero to %K step %step iter_args(%c = FROM) -> (tensor<{m}x{n}x{s}>) : i32 {{
{self._load("x", m, k, t)}
{self._load("y", n, k, u) if self.along_k else self._load("y", k, n, u, across=True)}
{self._multiplied("x", m, k, t) if self.factors and self.sparse == "a" else ""}
{self._raised("x", "x_f", f"tensor<{m}x{k}x{t}>") if self.raised and self.sparse == "a" else ""}
{self._multiplied("y", n, k, t) if self.factors and self.sparse == "b" else ""}
{self._turned(n, k, t)}
    %p = tt.dot {"%x_f" if (self.factors or self.raised) and self.sparse == "a" else "%x"}, %bt, {begin}{precision} {taken}: tensor<{m}x{k}x{t}> * tensor<{k}x{n}x{t}> -> tensor<{m}x{n}x{s}>
{self._scaled_sum(m, n, k) if self.blocks else ""}
    scf.yield {"%q" if self.blocks else "%p"} : tensor<{m}x{n}x{s}>
  }}"""
        loops = "  %once " + loop.replace("FROM", "%none")
        if self.twice:
            loops += "\n  %total " + loop.replace("FROM", "%once")
        return f"""tt.func public @k(%d: !tt.ptr<{s}> {{tt.divisibility = 16 : i32}}, {arrays}, {sizes}) {{
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %step = arith.constant {k} : i32
  %bm = arith.constant {m} : i32
  %bn = arith.constant {n} : i32
  %row = tt.get_program_id x : i32
  %column = tt.get_program_id y : i32
  %m0 = arith.muli %row, %bm : i32
  %n0 = arith.muli %column, %bn : i32
  %none = arith.constant dense<{zero}> : tensor<{m}x{n}x{s}>
{loops}
{self.places("o", m, n, "%m0", "%n0", "%M", "%N")}
  %o_pitch = tt.splat %N : i32 -> tensor<{m}x{n}xi32>
  %o_flat = arith.muli %o_rows, %o_pitch : tensor<{m}x{n}xi32>
  %o_at = arith.addi %o_flat, %o_columns : tensor<{m}x{n}xi32>
  %o_base = tt.splat %d : !tt.ptr<{s}> -> tensor<{m}x{n}x!tt.ptr<{s}>>
  %o_ptr = tt.addptr %o_base, %o_at : tensor<{m}x{n}x!tt.ptr<{s}>>, tensor<{m}x{n}xi32>
  tt.store %o_ptr, {"%total" if self.twice else "%once"}, %o_in : tensor<{m}x{n}x!tt.ptr<{s}>>
  tt.return
}}"""

    def _scaled_sum(self, m: int, n: int, k: int) -> str:
        """%q, the sum %c and the product %p times factors of its rows and columns."""
        whole = f"tensor<{m}x{n}xf32>"
        lines = [
            f"""    %size = arith.constant {k} : i32
    %block = arith.divsi %i, %size : i32
    %rounding = arith.constant {k - 1} : i32
    %above = arith.addi %K, %rounding : i32
    %blocks = arith.divsi %above, %size : i32"""
        ]
        for name, count, first, size, axis in (("as", m, "%m0", "%M", 1), ("bs", n, "%n0", "%N", 0)):
            row, shape = f"tensor<{count}xi32>", f"{m}x1" if axis else f"1x{n}"
            lines.append(f"""    %{name}_r = tt.make_range {{start = 0 : i32, end = {count} : i32}} : {row}
    %{name}_0 = tt.splat {first} : i32 -> {row}
    %{name}_at = arith.addi %{name}_r, %{name}_0 : {row}
    %{name}_size = tt.splat {size} : i32 -> {row}
    %{name}_in = arith.cmpi slt, %{name}_at, %{name}_size : {row}
    %{name}_pitch = tt.splat %blocks : i32 -> {row}
    %{name}_flat = arith.muli %{name}_at, %{name}_pitch : {row}
    %{name}_step = tt.splat %block : i32 -> {row}
    %{name}_place = arith.addi %{name}_flat, %{name}_step : {row}
    %{name}_base = tt.splat %{name} : !tt.ptr<f32> -> tensor<{count}x!tt.ptr<f32>>
    %{name}_ptr = tt.addptr %{name}_base, %{name}_place : tensor<{count}x!tt.ptr<f32>>, {row}
    %{name}_none = arith.constant dense<0.0> : tensor<{count}xf32>
    %{name}_v = tt.load %{name}_ptr, %{name}_in, %{name}_none : tensor<{count}x!tt.ptr<f32>>
    %{name}_1 = tt.expand_dims %{name}_v {{axis = {axis} : i32}} : tensor<{count}xf32> -> tensor<{shape}xf32>
    %{name}_all = tt.broadcast %{name}_1 : tensor<{shape}xf32> -> {whole}""")
        lines.append(f"""    %p1 = arith.mulf %p, %as_all : {whole}
    %p2 = arith.mulf %p1, %bs_all : {whole}
    %q = arith.addf %c, %p2 : {whole}""")
        return "\n".join(lines)

    def _turned(self, n: int, k: int, t: str) -> str:
        shape = f"{n}x{k}" if self.along_k else f"{k}x{n}"
        tile = f"tensor<{shape}x{t}>"
        lines, taken = [], "%y_f" if self.factors and self.sparse == "b" else "%y"
        if self.stored is not None:
            lines.append(f"    %y2 = arith.sitofp %y : tensor<{shape}x{TYPES[self.stored][1]}> to {tile}")
            taken = "%y2"
        if self.scaled:
            lines.append(f"    %y2 = arith.addf %y, %y : {tile}")
            taken = "%y2"
        if self.raised and self.sparse != "a":
            lines.append(self._raised("y", "y2", tile))
            taken = "%y2"
        if self.along_k:
            lines.append(f"    %bt = tt.trans {taken} {{order = array<i32: 1, 0>}} : {tile} -> tensor<{k}x{n}x{t}>")
            return "\n".join(lines)
        return "\n".join(lines).replace("%y2 =", "%bt =")

    @staticmethod
    def _raised(name: str, result: str, tile: str) -> str:
        one, add = ("1", "addi") if tile.endswith("xi8>") else ("1.0", "addf")
        return f"""    %{name}_1 = arith.constant dense<{one}> : {tile}
    %{result} = arith.{add} %{name}, %{name}_1 : {tile}"""

    @staticmethod
    def _multiplied(name: str, rows: int, columns: int, t: str) -> str:
        """%NAME_f, a tile times the factors of its columns."""
        line, row, whole = f"tensor<{columns}x", f"tensor<1x{columns}x{t}>", f"tensor<{rows}x{columns}x{t}>"
        return f"""    %f_r = tt.make_range {{start = 0 : i32, end = {columns} : i32}} : {line}i32>
    %f_0 = tt.splat %i : i32 -> {line}i32>
    %f_at = arith.addi %f_r, %f_0 : {line}i32>
    %f_size = tt.splat %K : i32 -> {line}i32>
    %f_in = arith.cmpi slt, %f_at, %f_size : {line}i32>
    %f_base = tt.splat %f : !tt.ptr<{t}> -> {line}!tt.ptr<{t}>>
    %f_ptr = tt.addptr %f_base, %f_at : {line}!tt.ptr<{t}>>, {line}i32>
    %f_none = arith.constant dense<{"0" if t == "i8" else "0.0"}> : {line}{t}>
    %f_v = tt.load %f_ptr, %f_in, %f_none : {line}!tt.ptr<{t}>>
    %f_1 = tt.expand_dims %f_v {{axis = 0 : i32}} : {line}{t}> -> {row}
    %f_all = tt.broadcast %f_1 : {row} -> {whole}
    %{name}_f = arith.{"muli" if t == "i8" else "mulf"} %{name}, %f_all : {whole}"""

    def _load(self, name: str, rows: int, columns: int, t: str, *, across: bool = False) -> str:
        array, first, size = PARTS[name]
        sparse = array == self.sparse
        starts = ("%i", first, "%K", size) if across else (first, "%i", size, "%K")
        shape = f"tensor<{rows}x{columns}x"
        result = "bt" if across and not self.scaled and self.stored is None else name
        zero = "0" if t == "i8" else "0.0"
        places = self.places(name, rows, columns, *starts)
        none = f"    %{name}_none = arith.constant dense<{zero}> : {shape}{t}>"
        assert not (sparse and across)
        return f"""{places}
  %{name}_pitch = tt.splat {"%N" if across else "%K"} : i32 -> {shape}i32>
  %{name}_flat = arith.muli %{name}_rows, %{name}_pitch : {shape}i32>
  %{name}_at = arith.addi %{name}_flat, %{name}_columns : {shape}i32>
  %{name}_base = tt.splat %{array} : !tt.ptr<{t}> -> {shape}!tt.ptr<{t}>>
  %{name}_ptr = tt.addptr %{name}_base, %{name}_at : {shape}!tt.ptr<{t}>>, {shape}i32>
{none}
    %{result} = tt.load %{name}_ptr, %{name}_in, %{name}_none : {shape}!tt.ptr<{t}>>"""

    @staticmethod
    def places(name: str, rows: int, columns: int, row: str, column: str, most_rows: str, most_columns: str) -> str:
        whole, down, along = (f"tensor<{shape}xi32>" for shape in (f"{rows}x{columns}", f"{rows}x1", f"1x{columns}"))
        bits = whole.replace("i32", "i1")
        return f"""  %{name}_r = tt.make_range {{start = 0 : i32, end = {rows} : i32}} : tensor<{rows}xi32>
  %{name}_c = tt.make_range {{start = 0 : i32, end = {columns} : i32}} : tensor<{columns}xi32>
  %{name}_r1 = tt.expand_dims %{name}_r {{axis = 1 : i32}} : tensor<{rows}xi32> -> {down}
  %{name}_c1 = tt.expand_dims %{name}_c {{axis = 0 : i32}} : tensor<{columns}xi32> -> {along}
  %{name}_r0 = tt.splat {row} : i32 -> {down}
  %{name}_c0 = tt.splat {column} : i32 -> {along}
  %{name}_r2 = arith.addi %{name}_r0, %{name}_r1 : {down}
  %{name}_c2 = arith.addi %{name}_c0, %{name}_c1 : {along}
  %{name}_rows = tt.broadcast %{name}_r2 : {down} -> {whole}
  %{name}_columns = tt.broadcast %{name}_c2 : {along} -> {whole}
  %{name}_rm = tt.splat {most_rows} : i32 -> {whole}
  %{name}_cm = tt.splat {most_columns} : i32 -> {whole}
  %{name}_r_in = arith.cmpi slt, %{name}_rows, %{name}_rm : {whole}
  %{name}_c_in = arith.cmpi slt, %{name}_columns, %{name}_cm : {whole}
  %{name}_in = arith.andi %{name}_r_in, %{name}_c_in : {bits}"""

    def compiled(self, *, boxes: bool = True) -> CompiledTiles:
        return compiled_tiles(self.text(), warps=self.warps, boxes=boxes)

    def drawn(self, rng: np.random.Generator, m: int, n: int, k: int) -> LoopRun:
        """Random operands of that size, and what they must give."""
        sums = self.sums or TYPES[self.element][2]

        def draw(element: str, *shape: int) -> Array:
            if element == "s8":
                return rng.integers(-128, 128, shape).astype(np.int8)
            return rng.standard_normal(shape, np.float32).astype(TYPES[element][0])

        a, b = draw(self.element, m, k), draw(self.stored or self.element, n, k)
        pattern = "1:2" if self.element == "f32" else "2:4"
        a = louver.prune(a, pattern) if self.sparse == "a" else a
        b = louver.prune(b, pattern) if self.sparse == "b" else b
        d = np.empty((m, n), {"i32": np.int32, "f32": np.float32, "f16": np.float16}[sums])
        given: dict[str, Any] = {"d": d, "a": a, "b": b if self.along_k else np.ascontiguousarray(b.T)}
        if self.sparse in given:
            given[self.sparse] = louver.compress(given[self.sparse], pattern)
        if self.raised:
            a, b = (a + a.dtype.type(1), b) if self.sparse == "a" else (a, b + b.dtype.type(1))
        if self.factors:
            # Products with powers of two are exact; integers wrap.
            given["f"] = (rng.integers(-3, 4, k) if a.dtype == np.int8 else 2.0 ** rng.integers(-3, 4, k)).astype(
                a.dtype
            )
            a, b = (a * given["f"], b) if self.sparse == "a" else (a, b * given["f"])
        a, b = a.astype(np.float64), b.astype(np.float64)
        if self.blocks:
            for name, rows in (("as", a), ("bs", b)):
                given[name] = rng.choice(np.array([1, 1e-3, 1e3], np.float32), (len(rows), -(-k // self.tile[2])))
                rows *= np.repeat(given[name], self.tile[2], axis=1)[:, :k]
        wide, magnitude = a @ b.T, np.abs(a) @ np.abs(b).T
        factor = (2 if self.twice else 1) * (2 if self.scaled else 1)
        return LoopRun(self, {**given, "M": m, "N": n, "K": k}, factor * wide, factor * magnitude)


@dataclass(frozen=True)
class LoopRun:
    """A call of a `DotLoop`. expected, magnitude: the result in float64, and that of absolute values."""

    loop: DotLoop
    arguments: dict[str, Any]
    expected: Array
    magnitude: Array

    @property
    def grid(self) -> tuple[int, int]:
        m, n = self.expected.shape
        return -(-m // self.loop.tile[0]), -(-n // self.loop.tile[1])

    def emulate(self, made: CompiledTiles, order: Order = Seeded(0), kernel: Kernel | None = None) -> None:  # noqa: B008
        """Run and compare. kernel: another one in the place of the compiled one."""
        changed = made if kernel is None else replace(made, module=Module(made.module.target, [kernel]))
        d = self.arguments["d"]
        d[...] = -(1 << 30) if d.dtype == np.int32 else np.nan
        emulate_tiles(changed, self.grid, self.arguments, order=order, uninitialised=["d"])
        off = np.abs(d.astype(np.float64) - self.expected)
        error = 2.0**-9 if d.dtype == np.float16 or self.loop.precision == "tf32" else 2.0**-18
        far = ~(off <= self.magnitude * error)
        assert not far.any(), (off.max(), np.argwhere(far)[:4])
