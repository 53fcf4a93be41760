"""Single operations, interpreted, against what NumPy or Python's integers say."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from louver.formats.dtypes import element_type
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel

Array = NDArray[Any]

COUNT = 64

TYPES = {"f16": "f16", "bf16": "bf16", "f32": "f32", "e4m3": "f8E4M3FN", "e5m2": "f8E5M2", "s8": "i8", "s32": "i32"}


def applied(body: str, out: Array, *inputs: Array) -> Array:
    """`out` after `body` has made %r, a tensor of its type and shape, of %x0, %x1 and so on, tensors loaded from the inputs."""
    arguments, lines = [], []
    for name, array in [*((f"x{i}", x) for i, x in enumerate(inputs)), ("r", out)]:
        element, shape = TYPES[element_type(array.dtype).name], "x".join(map(str, array.shape))
        arguments.append(f"%{name}_p: !tt.ptr<{element}>")
        sizes, steps = list(array.shape), [int(s) // array.itemsize for s in array.strides]
        pointer = (
            f"%{name}_b = tt.make_tensor_ptr %{name}_p, {sizes}, {steps}, {[0] * array.ndim}"
            f" : <tensor<{shape}x{element}>>"
        )
        load = f"%{name} = tt.load %{name}_b : !tt.ptr<tensor<{shape}x{element}>>"
        lines += [pointer, load] if name != "r" else [body, pointer]
        last = f"tt.store %r_b, %r : !tt.ptr<tensor<{shape}x{element}>>"
    text = f"tt.func public @one({', '.join(arguments)}) {{\n" + "\n".join([*lines, last, "tt.return"]) + "\n}"
    named = {f"x{i}_p": x for i, x in enumerate(inputs)} | {"r_p": out}
    run_kernel(parse_ir(text), (1,), named)
    return out


def whole(rng: np.random.Generator, dtype: type = np.int32) -> Array:
    limits = np.iinfo(dtype)
    found = rng.integers(limits.min, limits.max, COUNT, dtype, endpoint=True)
    found[:4] = [limits.min, limits.max, 1, -1]
    return found


def low_bits(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def towards_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGERS = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "divsi": towards_zero,
    "floordivsi": lambda a, b: a // b,
    "ceildivsi": lambda a, b: -(-a // b),
    "remsi": lambda a, b: a - towards_zero(a, b) * b,
    "divui": lambda a, b: (a % 2**32) // (b % 2**32),
    "ceildivui": lambda a, b: -(-(a % 2**32) // (b % 2**32)),
    "remui": lambda a, b: (a % 2**32) % (b % 2**32),
    "minsi": min,
    "maxsi": max,
    "minui": lambda a, b: min(a % 2**32, b % 2**32),
    "maxui": lambda a, b: max(a % 2**32, b % 2**32),
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "xori": lambda a, b: a ^ b,
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_wrap_and_divide_as_mlir_says(rng: np.random.Generator, name: str) -> None:
    a, b = whole(rng), whole(rng)
    a[0], b[b == 0] = 5, 1
    found = applied(f"%r = arith.{name} %x0, %x1 : tensor<{COUNT}xi32>", np.zeros_like(a), a, b)
    assert found.tolist() == [low_bits(INTEGERS[name](int(x), int(y))) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("shli", lambda a, b: a << b),
        ("shrsi", lambda a, b: a >> b),
        ("shrui", lambda a, b: (a % 2**32) >> b),
    ],
)
def test_shifts(rng: np.random.Generator, name: str, meaning: Any) -> None:
    a, b = whole(rng), rng.integers(0, 32, COUNT).astype(np.int32)
    found = applied(f"%r = arith.{name} %x0, %x1 : tensor<{COUNT}xi32>", np.zeros_like(a), a, b)
    assert found.tolist() == [low_bits(meaning(int(x), int(y))) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("predicate", ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"])
def test_comparisons_of_integers(rng: np.random.Generator, predicate: str) -> None:
    a, b = whole(rng, np.int8), whole(rng, np.int8)
    b[10:20] = a[10:20]
    body = f"%c = arith.cmpi {predicate}, %x0, %x1 : tensor<{COUNT}xi8>\n%r = arith.extui %c : tensor<{COUNT}xi1> to tensor<{COUNT}xi8>"
    one, other = (x.view(np.uint8) if predicate.startswith("u") else x for x in (a, b))
    name = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
    expected = getattr(np, name[predicate[-2:]])(one, other)
    np.testing.assert_array_equal(applied(body, np.full(COUNT, 9, np.int8), a, b), expected)


@pytest.mark.parametrize(
    "predicate", ["oeq", "ogt", "olt", "one", "ord", "ueq", "uge", "ule", "une", "uno", "true", "false"]
)
def test_comparisons_of_floats(rng: np.random.Generator, predicate: str) -> None:
    a, b = (rng.standard_normal(COUNT).astype(np.float16) for _ in range(2))
    b[:8], a[4:12], b[10:14] = a[:8], np.nan, np.nan
    body = f"%c = arith.cmpf {predicate}, %x0, %x1 : tensor<{COUNT}xf16>\n%r = arith.extui %c : tensor<{COUNT}xi1> to tensor<{COUNT}xi8>"
    signs = {"eq": "==", "gt": ">", "lt": "<", "ne": "!=", "ge": ">=", "le": "<="}

    def holds(x: float, y: float) -> bool:
        nan = x != x or y != y
        match predicate:
            case "true" | "false":
                return predicate == "true"
            case "ord" | "uno":
                return nan == (predicate == "uno")
            case _:
                return predicate[0] == "u" if nan else eval(f"{x} {signs[predicate[1:]]} {y}")

    expected = [holds(float(x), float(y)) for x, y in zip(a, b, strict=True)]
    assert applied(body, np.full(COUNT, 9, np.int8), a, b).astype(bool).tolist() == expected


@pytest.mark.parametrize("name", ["f16", "bf16", "e4m3", "e5m2"])
def test_narrower_floats_are_rounded_once(rng: np.random.Generator, name: str) -> None:
    x = (rng.standard_normal(COUNT) * 10.0 ** rng.integers(-6, 4, COUNT)).astype(np.float32)
    x[:3] = np.inf, -1e30, np.nan
    dtype = element_type(name).numpy
    found = applied(
        f"%r = arith.truncf %x0 : tensor<{COUNT}xf32> to tensor<{COUNT}x{TYPES[name]}>", np.zeros(COUNT, dtype), x
    )
    limit = float(ml_dtypes.finfo(dtype).max) if name.startswith("e") else np.inf
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(
            found.astype(np.float32), np.clip(x, -limit, limit).astype(dtype).astype(np.float32)
        )


@pytest.mark.parametrize("name", ["f16", "e4m3", "e5m2"])
def test_rounding_towards_zero(rng: np.random.Generator, name: str) -> None:
    dtype = element_type(name).numpy
    x = (rng.standard_normal(COUNT) * 10).astype(np.float32)
    body = f"%r = tt.fp_to_fp %x0, rounding = rtz : tensor<{COUNT}xf32> -> tensor<{COUNT}x{TYPES[name]}>"
    found = applied(body, np.zeros(COUNT, dtype), x).astype(np.float64)
    step = np.maximum(np.abs(x) * float(ml_dtypes.finfo(dtype).eps), float(ml_dtypes.finfo(dtype).smallest_subnormal))
    assert (np.abs(found) <= np.abs(x)).all()
    assert (np.abs(found - x) < step).all()


def test_floats_as_integers_saturate() -> None:
    x = np.array([1.9, -1.9, 1e9, -1e9, np.inf, -np.inf, np.nan, 127.5], np.float32)
    found = applied("%r = arith.fptosi %x0 : tensor<8xf32> to tensor<8xi8>", np.full(8, 99, np.int8), x)
    assert found.tolist() == [1, -1, 127, -128, 127, -128, 0, 127]


@pytest.mark.parametrize(("name", "expected"), [("none", [-1, 1, 0.5, -1]), ("all", [-1, 1, 0.5, np.nan])])
def test_clamps(name: str, expected: list[float]) -> None:
    x = np.array([-5, 5, 0.5, np.nan], np.float32)
    body = (
        "%low = arith.constant dense<-1.0> : tensor<4xf32>\n%high = arith.constant dense<1.0> : tensor<4xf32>\n"
        f"%r = tt.clampf %x0, %low, %high, propagateNan = {name} : tensor<4xf32>"
    )
    np.testing.assert_array_equal(applied(body, np.zeros(4, np.float32), x), expected)


MATHS = {
    "absf": np.abs,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "log2": np.log2,
    "floor": np.floor,
    "ceil": np.ceil,
    "sin": np.sin,
    "exp": np.exp,
    "round": lambda x: np.floor(x + 0.5),
    "roundeven": np.rint,
}


@pytest.mark.parametrize("name", MATHS)
def test_functions_are_rounded_once(rng: np.random.Generator, name: str) -> None:
    x = rng.uniform(0.1, 9, COUNT).astype(np.float32)
    x[:2] = 2.5, 3.5
    found = applied(f"%r = math.{name} %x0 : tensor<{COUNT}xf32>", np.zeros_like(x), x)
    np.testing.assert_array_equal(found, MATHS[name](x.astype(np.float64)).astype(np.float32))


def test_shapes(rng: np.random.Generator) -> None:
    x = rng.integers(-99, 99, (2, 6, 4)).astype(np.int32)
    body = """
        %t = tt.trans %x0 {order = array<i32: 2, 0, 1>} : tensor<2x6x4xi32> -> tensor<4x2x6xi32>
        %s = tt.reshape %t : tensor<4x2x6xi32> -> tensor<24x2xi32>
        %a, %b = tt.split %s : tensor<24x2xi32> -> tensor<24xi32>
        %e = tt.expand_dims %a {axis = 1 : i32} : tensor<24xi32> -> tensor<24x1xi32>
        %f = tt.broadcast %e : tensor<24x1xi32> -> tensor<24x3xi32>
        %g = tt.expand_dims %b {axis = 1 : i32} : tensor<24xi32> -> tensor<24x1xi32>
        %h = tt.broadcast %g : tensor<24x1xi32> -> tensor<24x3xi32>
        %r = arith.subi %f, %h : tensor<24x3xi32>"""
    pairs = x.transpose(2, 0, 1).reshape(24, 2)
    expected = np.repeat((pairs[:, 0] - pairs[:, 1])[:, None], 3, axis=1)
    np.testing.assert_array_equal(applied(body, np.zeros((24, 3), np.int32), x), expected)


def test_reductions_along_an_axis(rng: np.random.Generator) -> None:
    x = rng.standard_normal((5, 9)).astype(np.float32)
    body = """
        %r = "tt.reduce"(%x0) <{axis = 1 : i32}> ({
        ^bb0(%one: f32, %other: f32):
          %most = arith.maxnumf %one, %other : f32
          tt.reduce.return %most : f32
        }) : (tensor<5x9xf32>) -> tensor<5xf32>"""
    np.testing.assert_array_equal(applied(body, np.zeros(5, np.float32), x), x.max(axis=1))


def test_loops_and_branches() -> None:
    """The steps that 27 takes to reach 1, halved when even, else tripled and one more."""
    text = """
    tt.func public @count(%d: !tt.ptr<i32>) {
      %zero = arith.constant 0 : i32
      %one = arith.constant 1 : i32
      %two = arith.constant 2 : i32
      %three = arith.constant 3 : i32
      %n = arith.constant 27 : i32
      %end, %steps = scf.while (%x = %n, %s = %zero) : (i32, i32) -> (i32, i32) {
        %more = arith.cmpi sgt, %x, %one : i32
        scf.condition(%more) %x, %s : i32, i32
      } do {
      ^bb0(%x: i32, %s: i32):
        %rest = arith.remsi %x, %two : i32
        %even = arith.cmpi eq, %rest, %zero : i32
        %next = scf.if %even -> (i32) {
          %half = arith.divsi %x, %two : i32
          scf.yield %half : i32
        } else {
          %triple = arith.muli %x, %three : i32
          %up = arith.addi %triple, %one : i32
          scf.yield %up : i32
        }
        %t = arith.addi %s, %one : i32
        scf.yield %next, %t : i32, i32
      }
      %p = tt.get_program_id y : i32
      %q = tt.get_num_programs y : i32
      %place = tt.addptr %d, %p : !tt.ptr<i32>, i32
      %all = arith.addi %steps, %q : i32
      tt.store %place, %all : !tt.ptr<i32>
      tt.return
    }"""
    d = np.full(3, -1, np.int32)
    run_kernel(parse_ir(text), (1, 3), {"d": d})
    assert d.tolist() == [114, 114, 114]


def test_dots_of_f32_read_tf32(rng: np.random.Generator) -> None:
    a, b = (rng.standard_normal((8, 8)).astype(np.float32) for _ in range(2))
    c = np.zeros((8, 8), np.float32)
    body = """
        %c = arith.constant dense<0.0> : tensor<8x8xf32>
        %r = tt.dot %x0, %x1, %c : tensor<8x8xf32> * tensor<8x8xf32> -> tensor<8x8xf32>"""
    cut = [(x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64) for x in (a, b)]
    np.testing.assert_array_equal(applied(body, c, a, b), (cut[0] @ cut[1]).astype(np.float32))


def test_what_a_mask_leaves_out_is_the_fill_value_or_zero() -> None:
    text = """
    tt.func public @masked(%x: !tt.ptr<f32>, %d: !tt.ptr<f32>, %size: i32) {
      %i = tt.make_range {start = 0 : i32, end = 8 : i32} : tensor<8xi32>
      %n = tt.splat %size : i32 -> tensor<8xi32>
      %m = arith.cmpi slt, %i, %n : tensor<8xi32>
      %p = tt.splat %x : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
      %q = tt.addptr %p, %i : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
      %o = arith.constant dense<7.0> : tensor<8xf32>
      %one = tt.load %q, %m, %o : tensor<8x!tt.ptr<f32>>
      %other = tt.load %q, %m : tensor<8x!tt.ptr<f32>>
      %e = tt.splat %d : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
      %f = tt.addptr %e, %i : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
      tt.store %f, %one : tensor<8x!tt.ptr<f32>>
      %eight = arith.constant dense<8> : tensor<8xi32>
      %g = tt.addptr %f, %eight : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
      tt.store %g, %other : tensor<8x!tt.ptr<f32>>
      tt.return
    }"""
    x, d = np.arange(1, 6, dtype=np.float32), np.zeros(16, np.float32)
    with pytest.warns(
        UserWarning,
        match="in masked, tt.store depends on elements that a load leaves out; .*, got: .*: give the load other=0",
    ):
        run_kernel(parse_ir(text), (1,), {"x": x, "d": d, "size": 5})
    np.testing.assert_array_equal(d, [1, 2, 3, 4, 5, 7, 7, 7, 1, 2, 3, 4, 5, 0, 0, 0])


def test_block_pointers_check_the_dimensions_that_they_name() -> None:
    """Rows go on into the next one unless their end is checked; what is checked reads zeros or NaN."""
    text = """
    tt.func public @blocks(%x: !tt.ptr<f32>, %d: !tt.ptr<f32>) {
      %p = tt.make_tensor_ptr %x, [2, 3], [4, 1], [0, 0] : <tensor<2x2xf32>>
      %q = tt.advance %p, [1, 2] : <tensor<2x2xf32>>
      %zeros = tt.load %q {boundaryCheck = array<i32: 0, 1>, padding = 1 : i32} : !tt.ptr<tensor<2x2xf32>>
      %nans = tt.load %q {boundaryCheck = array<i32: 0>, padding = 2 : i32} : !tt.ptr<tensor<2x2xf32>>
      %e = tt.make_tensor_ptr %d, [2, 2], [2, 1], [0, 0] : <tensor<2x2xf32>>
      tt.store %e, %zeros : !tt.ptr<tensor<2x2xf32>>
      %f = tt.make_tensor_ptr %d, [5, 2], [2, 1], [2, 0] : <tensor<2x2xf32>>
      tt.store %f, %nans : !tt.ptr<tensor<2x2xf32>>
      %g = tt.make_tensor_ptr %d, [5, 2], [2, 1], [4, 1] : <tensor<2x2xf32>>
      tt.store %g, %zeros {boundaryCheck = array<i32: 0, 1>} : !tt.ptr<tensor<2x2xf32>>
      tt.return
    }"""
    x, d = np.arange(8, dtype=np.float32), np.full(10, 99, np.float32)
    run_kernel(parse_ir(text), (1,), {"x": x, "d": d})
    np.testing.assert_array_equal(d, [6, 0, 0, 0, 6, 7, np.nan, np.nan, 99, 6])
