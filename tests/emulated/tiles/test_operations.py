"""Operations on elements and on memory, each compiled and interpreted, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from louver.compile.pipeline import compile_tiles
from louver.emulator import Seeded
from louver.frontend.ttir import read_ttir
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel
from louver.ir.refusal import UnsupportedKernelError
from louver.ptx.assembler import assemble
from support.emulate_tiles import emulate_tiles
from support.tile_operations import ATOMIC, ATOMICS, DOT, DTYPES, ELEMENTWISE, KEEP, SIZE, UNIT, changed


def both(text: str, arguments: Callable[[], dict[str, Any]], name: str) -> list[np.ndarray]:
    """The contents that the emulator and the interpreter leave in an argument."""
    compiled, interpreted = arguments(), arguments()
    kernel = compile_tiles(parse_ir(text))
    assert assemble(kernel.ptx).clean
    emulate_tiles(kernel, (1,), compiled, order=Seeded(1))
    run_kernel(parse_ir(text), (1,), interpreted)
    return [compiled[name], interpreted[name]]


ONE = {
    "math.sin %a": np.sin, "math.cos %a": np.cos, "math.sqrt %p": np.sqrt, "math.rsqrt %p": lambda x: 1 / np.sqrt(x),
    "math.log %p": np.log, "math.log2 %p": np.log2, "math.floor %a": np.floor, "math.ceil %a": np.ceil, "math.trunc %a": np.trunc,
    "math.absf %a": np.abs, "math.erf %a": None, "math.exp2 %a": np.exp2, "math.tanh %a": np.tanh, "arith.divf %a, %b": np.divide,
    "arith.maximumf %a, %b": np.maximum, "arith.minimumf %a, %b": np.minimum, "arith.maxnumf %a, %b": np.fmax,
    "arith.minnumf %a, %b": np.fmin, "math.copysign %a, %b": np.copysign, "arith.remf %a, %b": np.fmod,
}  # fmt: skip


@pytest.mark.parametrize("element", UNIT)
@pytest.mark.parametrize("op", ONE)
def test_floats(rng: np.random.Generator, op: str, element: str) -> None:
    dtype = DTYPES[element]
    x, y = (rng.standard_normal((2, SIZE)) * 4).astype(dtype)
    positive = "%p" in op
    x = np.abs(x) if positive else x
    y[np.abs(y) < 0.25] = 1
    if "max" in op or "min" in op:
        x[:8], y[4:12] = np.nan, np.nan
    found = both(
        ELEMENTWISE.format(t=element, op=op.replace("%p", "%a")),
        lambda: {"out": np.full(SIZE, np.nan, dtype), "x": x, "y": y},
        "out",
    )
    if op == "math.erf %a":
        from math import erf

        wanted = np.vectorize(erf)(x.astype(np.float64))
    else:
        operands = [x, y][: op.count("%")]
        wanted = ONE[op](*(each.astype(np.float64) for each in operands))  # type: ignore[misc]
    loose = 2.0**-10 if "tanh" in op else 0.0
    for each in found:
        got = each.astype(np.float64)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
        off = np.abs(got - wanted)[~np.isnan(wanted)]
        assert (off <= (UNIT[element] + loose) * np.maximum(np.abs(wanted[~np.isnan(wanted)]), 1)).all(), off.max()


WHOLE = {
    "arith.divsi %a, %b": lambda a, b: np.trunc(a / b), "arith.remsi %a, %b": np.fmod, "arith.floordivsi %a, %b": np.floor_divide,
    "arith.divui %a, %b": lambda a, b: (a % 2**32) // (b % 2**32), "arith.remui %a, %b": lambda a, b: (a % 2**32) % (b % 2**32),
    "arith.ceildivsi %a, %b": lambda a, b: -((-a) // b),
}  # fmt: skip


@pytest.mark.parametrize("op", WHOLE)
def test_integers_are_divided(rng: np.random.Generator, op: str) -> None:
    x = rng.integers(-(1 << 31) + 1, 1 << 31, SIZE).astype(np.int32)
    y = rng.integers(-50, 50, SIZE).astype(np.int32) * 2 + 1
    found = both(ELEMENTWISE.format(t="i32", op=op), lambda: {"out": np.zeros(SIZE, np.int32), "x": x, "y": y}, "out")
    wanted = WHOLE[op](x.astype(np.int64), y.astype(np.int64)).astype(np.int64).astype(np.int32)
    for each in found:
        np.testing.assert_array_equal(each, wanted)


LONG = {
    "arith.divsi %a, %b": lambda a, b: (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1),
    "arith.remsi %a, %b": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
    "arith.divui %a, %b": lambda a, b: a % 2**64 // (b % 2**64),
    "arith.remui %a, %b": lambda a, b: a % 2**64 % (b % 2**64),
}


@pytest.mark.parametrize("op", LONG)
def test_long_integers_are_divided(rng: np.random.Generator, op: str) -> None:
    edges = [1, 2, 3, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63 - 1]
    edges += [-each for each in edges]
    drawn = [int(each) for each in rng.integers(1, 1 << 62, 2 * SIZE) >> rng.integers(0, 62, 2 * SIZE)]
    x = [0, -(2**63), *edges * 13, *drawn][:SIZE]
    y = [*(other for each in edges for other in [each] * 12), *drawn[::-1]][:SIZE]
    y = [each or 1 for each in y]
    a, b = (np.array(each, np.int64) for each in (x, y))
    wanted = [(LONG[op](one, by) + 2**63) % 2**64 - 2**63 for one, by in zip(x, y, strict=True)]
    for each in both(
        ELEMENTWISE.format(t="i64", op=op), lambda: {"out": np.zeros(SIZE, np.int64), "x": a, "y": b}, "out"
    ):
        np.testing.assert_array_equal(each, np.array(wanted))


@pytest.mark.parametrize("bins", [5, 256])
@pytest.mark.parametrize(("kind", "element"), ATOMICS)
def test_atomics(rng: np.random.Generator, kind: str, element: str, bins: int) -> None:
    """Into five elements, whose last values depend on the order for exchanges alone; into one each, where the old one returns."""
    if kind == "exch" and bins < SIZE:
        pytest.skip("which exchange is the last one is left open")
    dtype = DTYPES[element]
    floating = kind == "fadd" or element == "f32"
    x = rng.integers(-8, 9, SIZE).astype(dtype) if floating else rng.integers(-(1 << 31), 1 << 31, SIZE).astype(dtype)
    start = rng.integers(-8, 9, bins).astype(dtype)
    text = ATOMIC.format(t=element, kind=kind, bins=bins, store=KEEP.format(element) if bins == SIZE else "")
    wanted = changed(kind, start, x)

    def arguments() -> dict[str, Any]:
        return {"out": start.copy(), "x": x, "old": np.zeros(SIZE, dtype)}

    for each in both(text, arguments, "out"):
        np.testing.assert_array_equal(each, wanted)
    if bins == SIZE:
        before = np.where(np.arange(SIZE) < 250, start, np.zeros((), dtype))
        for each in both(text, arguments, "old"):
            np.testing.assert_array_equal(each, before)


@pytest.mark.parametrize(("element", "k"), [("ui8", 32), ("ui8", 64), ("i8", 32), ("f16", 8), ("bf16", 8), ("f32", 4)])
def test_small_and_unsigned_dots(rng: np.random.Generator, element: str, k: int) -> None:
    integer = element.endswith("8")
    dtype: Any = {"ui8": np.uint8, "i8": np.int8, **DTYPES}[element]
    out, zero = ("i32", "0") if integer else ("f32", "0.0")
    precision = ", inputPrecision = tf32" if element == "f32" else ""
    text = DOT.format(t=element, out=out, k=k, zero=zero, precision=precision)

    def draw(*shape: int) -> np.ndarray:
        low, high = {"ui8": (0, 256), "i8": (-128, 128)}.get(element, (-8, 9))
        return rng.integers(low, high, shape).astype(dtype)

    a, b = draw(16, k), draw(k, 16)
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    for each in both(text, lambda: {"d": np.zeros((16, 16), DTYPES[out]), "a": a, "b": b}, "d"):
        np.testing.assert_array_equal(each, wanted)


@pytest.mark.parametrize(("precision", "error"), [("tf32x3", 2.0**-19), ("ieee", 2.0**-22)])
def test_exact_dots_of_f32(rng: np.random.Generator, precision: str, error: float) -> None:
    """By three and by six products of tf32; infinity comes through."""
    text = DOT.format(t="f32", out="f32", k=8, zero="0.0", precision=f", inputPrecision = {precision}")
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, 8), (8, 16)))
    a[0, 0], b[0] = np.inf, np.abs(b[0])
    wanted, size = (x.astype(np.float64) @ y.astype(np.float64) for x, y in ((a, b), (np.abs(a), np.abs(b))))
    for each in both(text, lambda: {"d": np.zeros((16, 16), np.float32), "a": a, "b": b}, "d"):
        assert (each[0] == np.inf).all()
        assert (np.abs(each - wanted)[1:] <= error * size[1:]).all()


CAS = ATOMIC.replace("tt.atomic_rmw {kind}, acq_rel, gpu, %qo, %v, %m : (", "tt.atomic_cas acq_rel, gpu, %qo, %e, %v : (").replace(
    "tensor<256x{t}>, tensor<256xi1>)", "tensor<256x{t}>, tensor<256x{t}>)"
).replace("  %b = ", "  %e = tt.load %qo : tensor<256x!tt.ptr<{t}>>\n  %b = ")  # fmt: skip


@pytest.mark.parametrize("element", ["i32", "i64", "f32", "f16", "bf16"])
def test_compare_and_swap(rng: np.random.Generator, element: str) -> None:
    dtype = DTYPES[element]
    x, start = (rng.integers(-8, 9, SIZE).astype(dtype) for _ in range(2))
    text = CAS.format(t=element, bins=SIZE, store=KEEP.format(element))
    for name, wanted in (("out", x), ("old", start)):
        for each in both(text, lambda: {"out": start.copy(), "x": x, "old": np.zeros(SIZE, dtype)}, name):
            np.testing.assert_array_equal(each, wanted)


def test_short_integers_are_not_swapped() -> None:
    with pytest.raises(UnsupportedKernelError, match="f16, bf16, f32 and integers of 32 and 64 bits, not i16"):
        compile_tiles(parse_ir(CAS.format(t="i16", bins=SIZE, store="")))


WIDE = """tt.func public @k(%out: !tt.ptr<{to}>, %x: !tt.ptr<{t}>) {{
  %r = tt.make_range {{start = 0 : i32, end = 256 : i32}} : tensor<256xi32>
  %px = tt.splat %x : !tt.ptr<{t}> -> tensor<256x!tt.ptr<{t}>>
  %po = tt.splat %out : !tt.ptr<{to}> -> tensor<256x!tt.ptr<{to}>>
  %qx = tt.addptr %px, %r : tensor<256x!tt.ptr<{t}>>, tensor<256xi32>
  %qo = tt.addptr %po, %r : tensor<256x!tt.ptr<{to}>>, tensor<256xi32>
  %a = tt.load %qx : tensor<256x!tt.ptr<{t}>>
  %v = arith.{op} %a : tensor<256x{t}> to tensor<256x{to}>
  tt.store %qo, %v : tensor<256x!tt.ptr<{to}>>
  tt.return
}}"""


@pytest.mark.parametrize(
    ("op", "t", "to"),
    [
        ("sitofp", "i64", "f32"),
        ("uitofp", "i64", "f32"),
        ("sitofp", "i64", "f16"),
        ("fptosi", "f32", "i64"),
        ("fptoui", "f32", "i64"),
    ],
)
def test_integers_of_64_bits_and_floats(rng: np.random.Generator, op: str, t: str, to: str) -> None:
    dtype, result = DTYPES[t], DTYPES[to]
    scale = 2.0 ** rng.uniform(0, 15 if to == "f16" else 62, SIZE)
    x = (scale * (1 if op == "fptoui" else rng.choice([-1, 1], SIZE))).astype(dtype)
    x[0] = -1 if t == "i64" else 2.0**70
    if op == "uitofp":
        wanted = x.view(np.uint64).astype(result)
    elif to == "i64":
        kind = np.int64 if op == "fptosi" else np.uint64
        limit = kind(np.iinfo(kind).max)
        wanted = np.where(x >= float(limit), limit, np.minimum(x, 2.0**62).astype(kind)).view(np.int64)
    else:
        wanted = x.astype(result)
    for each in both(WIDE.format(t=t, to=to, op=op), lambda: {"out": np.zeros(SIZE, result), "x": x}, "out"):
        np.testing.assert_array_equal(each, wanted)


ROUNDED = """tt.func @kernel(%out: !tt.ptr<f32>, %kept: !tt.ptr<bf16>, %x: !tt.ptr<f32>) {
  %i = tt.make_range {end = 256 : i32, start = 0 : i32} : tensor<256xi32>
  %s = tt.splat %x : !tt.ptr<f32> -> tensor<256x!tt.ptr<f32>>
  %p = tt.addptr %s, %i : tensor<256x!tt.ptr<f32>>, tensor<256xi32>
  %o = tt.splat %out : !tt.ptr<f32> -> tensor<256x!tt.ptr<f32>>
  %q = tt.addptr %o, %i : tensor<256x!tt.ptr<f32>>, tensor<256xi32>
  %k = tt.splat %kept : !tt.ptr<bf16> -> tensor<256x!tt.ptr<bf16>>
  %r = tt.addptr %k, %i : tensor<256x!tt.ptr<bf16>>, tensor<256xi32>
  %a = tt.load %p : tensor<256x!tt.ptr<f32>>
  %b = arith.truncf %a : tensor<256xf32> to tensor<256xbf16>
  %c = arith.extf %b : tensor<256xbf16> to tensor<256xf32>
  tt.store %q, %c : tensor<256x!tt.ptr<f32>>
  tt.store %r, %b : tensor<256x!tt.ptr<bf16>>
  tt.return
}"""


def test_f32_is_rounded_to_bf16_by_pairs(rng: np.random.Generator) -> None:
    """A single number is rounded at a quarter of the rate."""
    assert "cvt.f32.bf16" not in compile_tiles(parse_ir(ROUNDED)).ptx
    x = rng.integers(0, 1 << 32, SIZE).astype(np.uint32).view(np.float32)
    wanted = x.astype(ml_dtypes.bfloat16)
    for name, dtype in (("out", np.float32), ("kept", ml_dtypes.bfloat16)):
        given = {"out": np.zeros(SIZE, np.float32), "kept": np.zeros(SIZE, ml_dtypes.bfloat16), "x": x}
        for each in both(ROUNDED, lambda given=given: {key: value.copy() for key, value in given.items()}, name):
            np.testing.assert_array_equal(each, wanted.astype(dtype))


REFUSED = {
    ATOMIC.format(t="i32", kind="add", bins=5, store="").replace("gpu", "sys"): ("tt.atomic_rmw", "the scope of an atomic operation must be 'gpu' or 'cta'"),
    DOT.format(t="i8", out="i32", k=16, zero="0", precision=""): ("tt.dot", "at least 32 elements of K, not 16"),
    ATOMIC.format(t="f32", kind="max", bins=5, store=""): ("tt.atomic_rmw", "not max on f32"),
    ELEMENTWISE.format(t="f32", op="math.tan %a"): ("math.tan", "math.tan is not computed"),
    ELEMENTWISE.format(t="i64", op="math.absf %a").replace("math.absf %a : tensor<256xi64>", "math.ctpop %a : tensor<256xi64>"): (
        "math.ctpop", "math.ctpop is not computed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: REFUSED[text][1])
def test_refusals_name_operation_and_line(text: str) -> None:
    operation, reason = REFUSED[text]
    lines = [f'{line} loc("user.py":31:5)' if f" {operation} " in line else line for line in text.splitlines()]
    with pytest.raises(UnsupportedKernelError, match=reason) as caught:
        compile_tiles(read_ttir("\n".join(lines)))
    assert operation in caught.value.operation
    assert "user.py:31" in str(caught.value)
