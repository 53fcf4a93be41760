"""Random epilogues of `support.random_kernels`, and the writer of tile IR that they share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

BINARY = (
    "arith.addf",
    "arith.subf",
    "arith.mulf",
    "arith.maximumf",
    "arith.minimumf",
    "arith.maxnumf",
    "arith.minnumf",
)
COMPARISONS = ("oeq", "ogt", "oge", "olt", "ole", "une", "ult", "uge")


@dataclass
class Writer:
    """Lines of tile IR, with names that are not used twice."""

    rng: np.random.Generator
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def say(self, text: str) -> None:
        self.lines.append(text)

    def put(self, text: str, name: str = "v") -> str:
        """An operation with one result, and the result's name."""
        self.count += 1
        result = f"%{name}_{self.count}"
        self.say(f"{result} = {text}")
        return result

    def number(self, value: int) -> str:
        return self.put(f"arith.constant {value} : i32", "n")

    def pick(self, *among: Any) -> Any:
        return among[int(self.rng.integers(len(among)))]

    def binary(self, op: str, a: str, b: str, type_: str = "i32") -> str:
        """An operation that may be written either way round."""
        if op in ("addi", "muli", "andi") and self.pick(True, False):
            a, b = b, a
        return self.put(f"arith.{op} {a}, {b} : {type_}")


@dataclass
class RandomEpilogue:
    """Steps between the sums of products and the store, all of which IEEE arithmetic rounds one by one.

    w: where they are written. rows, columns: of the dot, the size's name and the elements of a tile. order: of the output. first: a
    tile's first element by size. read: arguments that the epilogue reads, and their types. shape: of the value so far.
    """

    w: Writer

    rows: tuple[str, int] = field(init=False)
    columns: tuple[str, int] = field(init=False)
    order: tuple[tuple[str, int], tuple[str, int]] = field(init=False)
    shape: tuple[tuple[str, int], tuple[str, int]] = field(init=False)
    first: dict[str, str] = field(init=False)
    read: dict[str, str] = field(init=False)
    one64: str = field(init=False)

    def _epilogue(self, sums: list[str]) -> str:
        w = self.w
        self.shape = (self.rows, self.columns)
        value = sums[0]
        if len(sums) == 2:
            value = self._step(w.pick(*BINARY), *sums)
        for _ in range(int(w.rng.integers(0, 6))):
            value = self._next(value)
        if self.shape != self.order:
            value = self._turn(value)
        return value

    def _type(self) -> str:
        return f"tensor<{self.shape[0][1]}x{self.shape[1][1]}xf32>"

    def _step(self, op: str, *operands: str) -> str:
        return self.w.put(f"{op} {', '.join(operands)} : {self._type()}")

    def _turn(self, value: str) -> str:
        before = self._type()
        self.shape = self.shape[::-1]
        return self.w.put(f"tt.trans {value} {{order = array<i32: 1, 0>}} : {before} -> {self._type()}")

    def _next(self, value: str) -> str:
        w = self.w
        match w.pick("vector", "constant", "number", "negate", "cast", "turn", "choose", "branch", "twice"):
            case "vector":
                return self._step(w.pick(*BINARY), *self._either(value, self._vector()))
            case "constant":
                return self._step(w.pick(*BINARY), *self._either(value, self._constant()))
            case "number":
                self.read["alpha"] = "f32"
                return self._step(
                    w.pick(*BINARY), *self._either(value, w.put(f"tt.splat %alpha : f32 -> {self._type()}"))
                )
            case "negate":
                return self._step("arith.negf", value)
            case "cast":
                narrow = self._type().replace("f32", w.pick("f16", "bf16"))
                small = w.put(f"arith.truncf {value} : {self._type()} to {narrow}")
                return w.put(f"arith.extf {small} : {narrow} to {self._type()}")
            case "turn":
                return self._turn(value)
            case "choose":
                return self._chosen(value)
            case "branch":
                return self._branch(value)
            case _:
                return self._step(w.pick(*BINARY), value, value)

    def _either(self, a: str, b: str) -> tuple[str, str]:
        return self.w.pick((a, b), (b, a))

    def _constant(self) -> str:
        return self.w.put(f"arith.constant dense<{self.w.pick(0.0, -0.0, 0.5, -2.0, 3.0)}> : {self._type()}")

    def _chosen(self, value: str) -> str:
        w, type_ = self.w, self._type()
        truth = w.put(f"arith.cmpf {w.pick(*COMPARISONS)}, {value}, {self._constant()} : {type_}")
        return w.put(
            f"arith.select {truth}, {', '.join(self._either(value, self._constant()))} : {type_.replace('f32', 'i1')}, {type_}"
        )

    def _branch(self, value: str) -> str:
        """By a number that is known when the kernel starts."""
        w, type_ = self.w, self._type()
        if w.pick(True, False):
            self.read["mode"] = "i32"
            predicate = w.pick("eq", "ne", "slt", "sle", "sgt", "sge")
            truth = w.put(f"arith.cmpi {predicate}, %mode, {w.number(1)} : i32")
        else:
            self.read["alpha"] = "f32"
            limit = w.put("arith.constant 0.0 : f32")
            truth = w.put(f"arith.cmpf {w.pick(*COMPARISONS)}, %alpha, {limit} : f32")
        result = f"%b_{w.count}"
        w.say(f"{result} = scf.if {truth} -> ({type_}) {{")
        inner = self._step(w.pick(*BINARY), value, self._constant())
        w.say(f"scf.yield {inner} : {type_}\n}} else {{\nscf.yield {value} : {type_}\n}}")
        return result

    def _vector(self) -> str:
        """A vector along either dimension, over the whole tile."""
        w = self.w
        dimension = w.pick(0, 1)
        name, tile = self.shape[dimension]
        argument = "along_m" if name == "M" else "along_n"
        self.read[argument] = "!tt.ptr<f32>"
        if w.pick(True, False):
            made = w.put(
                f"tt.make_tensor_descriptor %{argument}, [%{name}], [{self.one64}] : <f32>, <tensor<{tile}xf32>>"
            )
            lanes = w.put(
                f"tt.descriptor_load {made}[{self.first[name]}] : !tt.tensordesc<tensor<{tile}xf32>> -> tensor<{tile}xf32>"
            )
        else:
            index = self._range(tile, self.first[name])
            base = w.put(f"tt.splat %{argument} : !tt.ptr<f32> -> tensor<{tile}x!tt.ptr<f32>>")
            places = w.put(f"tt.addptr {base}, {index} : tensor<{tile}x!tt.ptr<f32>>, tensor<{tile}xi32>")
            limit = w.put(f"tt.splat %{name} : i32 -> tensor<{tile}xi32>")
            mask = w.put(f"arith.cmpi slt, {index}, {limit} : tensor<{tile}xi32>")
            fill = w.put(f"arith.constant dense<0.0> : tensor<{tile}xf32>")
            lanes = w.put(f"tt.load {places}, {mask}, {fill} : tensor<{tile}x!tt.ptr<f32>>")
        value, shape = self._spread(lanes, tile, dimension, "f32")
        return w.put(f"tt.broadcast {value} : tensor<{shape}xf32> -> {self._type()}")
