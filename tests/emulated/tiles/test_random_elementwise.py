"""Kernels made at random, of elementwise operations, shapes and loops: the emulator gives what the interpreter does."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from louver.compile.pipeline import compile_tiles
from louver.emulator import Seeded
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel
from support.emulate_tiles import emulate_tiles

ROWS, COLUMNS = 8, 32
SHAPE = f"{ROWS}x{COLUMNS}"
INTEGERS = ("addi", "subi", "muli", "andi", "ori", "xori", "minsi", "maxsi", "minui", "maxui")
DIVISIONS = ("divsi", "remsi", "divui", "remui", "floordivsi", "ceildivsi")
FLOATS = ("addf", "subf", "mulf", "maximumf", "minimumf", "maxnumf", "minnumf")
WHOLE = ("i8", "i16", "i32", "i64")
REAL = ("f32", "f16", "bf16")


@dataclass
class Writer:
    """Writes a kernel line by line. values: names by element type."""

    rng: np.random.Generator
    lines: list[str] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)
    count: int = 0

    def add(self, element: str, text: str) -> str:
        name = f"%v{self.count}"
        self.count += 1
        self.lines.append(f"{name} = {text}")
        self.values.setdefault(element, []).append(name)
        return name

    def any(self, element: str) -> str:
        return str(self.rng.choice(self.values[element]))

    def pick(self, names: tuple[str, ...]) -> str:
        return str(self.rng.choice(names))

    def step(self) -> None:
        """One more operation on what there is."""
        whole, real = self.pick(WHOLE), self.pick(REAL)
        kind = f"tensor<{SHAPE}x{whole}>"
        match int(self.rng.integers(11)):
            case 0 | 1:
                self.add(whole, f"arith.{self.pick(INTEGERS)} {self.any(whole)}, {self.any(whole)} : {kind}")
            case 2:
                # Divisors are odd, and so are other numbers than 0; the least integer is divided by nothing here.
                odd = self.add(whole, f"arith.ori {self.any(whole)}, %one_{whole} : {kind}")
                less = self.add(whole, f"arith.shrsi {self.any(whole)}, %one_{whole} : {kind}")
                self.add(whole, f"arith.{self.pick(DIVISIONS)} {less}, {odd} : {kind}")
            case 3:
                amount = self.add(whole, f"arith.andi {self.any(whole)}, %few_{whole} : {kind}")
                self.add(whole, f"arith.{self.pick(('shli', 'shrsi', 'shrui'))} {self.any(whole)}, {amount} : {kind}")
            case 4 | 5:
                self.add(real, f"arith.{self.pick(FLOATS)} {self.any(real)}, {self.any(real)} : tensor<{SHAPE}x{real}>")
            case 6:
                predicate = self.pick(("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"))
                self.add("i1", f"arith.cmpi {predicate}, {self.any(whole)}, {self.any(whole)} : {kind}")
            case 7:
                predicate = self.pick(
                    ("oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno")
                )
                self.add("i1", f"arith.cmpf {predicate}, {self.any(real)}, {self.any(real)} : tensor<{SHAPE}x{real}>")
            case 8:
                element = self.pick((*WHOLE, *REAL, "i1"))
                type_ = f"tensor<{SHAPE}x{element}>"
                self.add(
                    element,
                    f"arith.select {self.any('i1')}, {self.any(element)}, {self.any(element)} : tensor<{SHAPE}xi1>, {type_}",
                )
            case 9:
                self.convert()
            case _:
                self.add(
                    "i1",
                    f"arith.{self.pick(('andi', 'ori', 'xori'))} {self.any('i1')}, {self.any('i1')} : tensor<{SHAPE}xi1>",
                )

    def convert(self) -> None:
        names = {
            ("i8", "i32"): "extsi", ("i16", "i64"): "extui", ("i32", "i64"): "extsi", ("i1", "i32"): "extui", ("i1", "i16"): "extsi",
            ("i64", "i32"): "trunci", ("i32", "i8"): "trunci", ("i32", "i1"): "trunci", ("f16", "f32"): "extf", ("f32", "bf16"): "truncf",
            ("f32", "f16"): "truncf", ("i32", "f32"): "sitofp", ("i16", "f16"): "sitofp", ("i8", "bf16"): "uitofp",
            ("f32", "i32"): "fptosi", ("f16", "i16"): "fptosi", ("f32", "i8"): "fptosi", ("i32", "f32 "): "bitcast",
        }  # fmt: skip
        pairs = list(names)
        source, to = pairs[int(self.rng.integers(len(pairs)))]
        name, to = names[source, to], to.strip()
        if name == "bitcast":
            # Bits of any number: what is no number has no definite bits.
            return
        self.add(to, f"arith.{name} {self.any(source)} : tensor<{SHAPE}x{source}> to tensor<{SHAPE}x{to}>")


def kernel(rng: np.random.Generator, steps: int) -> str:
    """A kernel that loads x and y, computes, and stores an integer and a float of each element; half of it in a loop."""
    writer = Writer(rng)
    writer.values = {"i32": ["%x"], "f32": ["%y"]}
    constants: list[str] = []
    for element in WHOLE:
        constants.append(f"%one_{element} = arith.constant dense<1> : tensor<{SHAPE}x{element}>")
        constants.append(f"%few_{element} = arith.constant dense<7> : tensor<{SHAPE}x{element}>")
        writer.values.setdefault(element, []).append(f"%few_{element}")
    for element in REAL:
        constants.append(f"%c_{element} = arith.constant dense<-1.5> : tensor<{SHAPE}x{element}>")
        writer.values.setdefault(element, []).append(f"%c_{element}")
    writer.add("i1", f"arith.cmpi slt, %x, %one_i32 : tensor<{SHAPE}xi32>")
    writer.add("i8", f"arith.trunci %x : tensor<{SHAPE}xi32> to tensor<{SHAPE}xi8>")
    writer.add("f16", f"arith.truncf %y : tensor<{SHAPE}xf32> to tensor<{SHAPE}xf16>")
    for _ in range(steps):
        writer.step()
    before, outer = list(writer.lines), {element: list(names) for element, names in writer.values.items()}
    writer.lines = []
    start = {element: writer.any(element) for element in ("i32", "f32")}
    writer.values["i32"].append("%ci")
    writer.values["f32"].append("%cf")
    for _ in range(steps):
        writer.step()
    following = [str(writer.values[element][-1]) for element in ("i32", "f32")]
    del outer
    types = f"tensor<{SHAPE}xi32>, tensor<{SHAPE}xf32>"
    line = "\n  "
    return f"""tt.func public @k(%px: !tt.ptr<i32>, %py: !tt.ptr<f32>, %pi: !tt.ptr<i32>, %pf: !tt.ptr<f32>, %n: i32) {{
  %rows = tt.make_range {{start = 0 : i32, end = {ROWS} : i32}} : tensor<{ROWS}xi32>
  %columns = tt.make_range {{start = 0 : i32, end = {COLUMNS} : i32}} : tensor<{COLUMNS}xi32>
  %r1 = tt.expand_dims %rows {{axis = 1 : i32}} : tensor<{ROWS}xi32> -> tensor<{ROWS}x1xi32>
  %c1 = tt.expand_dims %columns {{axis = 0 : i32}} : tensor<{COLUMNS}xi32> -> tensor<1x{COLUMNS}xi32>
  %pitch = arith.constant dense<{COLUMNS}> : tensor<{ROWS}x1xi32>
  %r2 = arith.muli %r1, %pitch : tensor<{ROWS}x1xi32>
  %r3 = tt.broadcast %r2 : tensor<{ROWS}x1xi32> -> tensor<{SHAPE}xi32>
  %c3 = tt.broadcast %c1 : tensor<1x{COLUMNS}xi32> -> tensor<{SHAPE}xi32>
  %at = arith.addi %r3, %c3 : tensor<{SHAPE}xi32>
  %c0 = arith.constant 0 : i32
  %s1 = arith.constant 1 : i32
  {line.join(constants)}
  {
        line.join(
            f"%s{p} = tt.splat %{p} : !tt.ptr<{e}> -> tensor<{SHAPE}x!tt.ptr<{e}>>{line}"
            f"%a{p} = tt.addptr %s{p}, %at : tensor<{SHAPE}x!tt.ptr<{e}>>, tensor<{SHAPE}xi32>"
            for p, e in (("px", "i32"), ("py", "f32"), ("pi", "i32"), ("pf", "f32"))
        )
    }
  %x = tt.load %apx : tensor<{SHAPE}x!tt.ptr<i32>>
  %y = tt.load %apy : tensor<{SHAPE}x!tt.ptr<f32>>
  {line.join(before)}
  %oi, %of = scf.for %step = %c0 to %n step %s1 iter_args(%ci = {start["i32"]}, %cf = {start["f32"]}) -> ({
        types
    }) : i32 {{
  {line.join(writer.lines)}
  scf.yield {following[0]}, {following[1]} : {types}
  }}
  tt.store %api, %oi : tensor<{SHAPE}x!tt.ptr<i32>>
  tt.store %apf, %of : tensor<{SHAPE}x!tt.ptr<f32>>
  tt.return
}}"""


@pytest.mark.parametrize("seed", range(48))
def test_random_kernels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    text = kernel(rng, 20)
    x = rng.integers(-(1 << 31), 1 << 31, (ROWS, COLUMNS)).astype(np.int32)
    x[0, :8] = 0, 1, -1, 127, -128, 255, np.iinfo(np.int32).max, np.iinfo(np.int32).min
    y = (rng.standard_normal((ROWS, COLUMNS)) * 10.0 ** rng.integers(-3, 4, (ROWS, COLUMNS))).astype(np.float32)
    y[1, :6] = 0.0, -0.0, 0.5, -2.5, 65504.0, 1e30

    def arguments() -> dict[str, object]:
        return {"px": x, "py": y, "pi": np.full_like(x, -7), "pf": np.full_like(y, np.nan), "n": 3}

    found, wanted = arguments(), arguments()
    emulate_tiles(compile_tiles(parse_ir(text)), (1,), found, order=Seeded(seed), uninitialised=("pi", "pf"))  # type: ignore[arg-type]
    run_kernel(parse_ir(text), (1,), wanted)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found["pi"], wanted["pi"])
    np.testing.assert_array_equal(found["pf"], wanted["pf"])
