"""The kernels of register tiles with arguments, and what they must give: random data, odd sizes, references in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver
from louver.formats.dtypes import element_type
from support.triton.tile_cases import TILE_CASES

Array = NDArray[Any]

POISON_INTEGER = -(1 << 30)


@dataclass(frozen=True)
class Expected:
    """value: in float64, or integers. bound: how far off an element may be; 0 for exact ones."""

    value: Array
    bound: Array | float

    def check(self, found: Array) -> None:
        assert found.shape == self.value.shape, (found.shape, self.value.shape)
        # NaN and infinities of a wrong kernel do not compare.
        off = np.abs(found.astype(np.float64) - self.value)
        wrong = ~(off <= self.bound)
        assert not wrong.any(), (int(wrong.sum()), np.argwhere(wrong)[:4], off.max())


@dataclass(frozen=True)
class Run:
    """A kernel's arguments by name, outputs among them poisoned, and what the outputs must be. read_first: outputs that it reads."""

    grid: tuple[int, ...]
    arguments: dict[str, Any]
    expected: dict[str, Expected]
    read_first: tuple[str, ...] = ()

    def check(self) -> None:
        for name, expected in self.expected.items():
            expected.check(self.arguments[name])


def poisoned(shape: tuple[int, ...], element: str) -> Array:
    dtype = element_type(element).numpy
    return np.full(shape, POISON_INTEGER if element == "s32" else np.nan, dtype)


def draw(rng: np.random.Generator, element: str, *shape: int) -> Array:
    if element in ("s8", "u8"):
        return rng.integers(*((-128, 128) if element == "s8" else (0, 256)), shape).astype(element_type(element).numpy)
    return rng.standard_normal(shape, np.float32).astype(element_type(element).numpy)


def wide(array: Array) -> Array:
    """As float64; f32 as tensor cores read it."""
    if array.dtype == np.float32:
        array = (np.ascontiguousarray(array).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return array.astype(np.float64)


def product(a: Array, b: Array, out: str) -> Expected:
    """a · b, rounded to `out`, within the project's bound for sums in f32."""
    left, right = wide(a), wide(b)
    total, magnitude = left @ right, np.abs(left) @ np.abs(right)
    unit = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8, "s32": 0.0}[out]
    if out == "s32":
        return Expected(total, 0.0)
    return Expected(total, unit * np.abs(total) + 2.0**-24 * (2 + a.shape[1] / 4) * magnitude + 1e-30)


def tiles(size: int, block: int) -> int:
    return -(-size // block)


ELEMENTS = {"fp16": "f16", "bf16": "bf16", "fp32": "f32", "fp8e4nv": "e4m3", "fp8e5": "e5m2", "i8": "s8", "i32": "s32"}


def _operands(rng: np.random.Generator, name: str, m: int, n: int, k: int) -> tuple[Array, Array, Any]:
    case = TILE_CASES[name]
    left, right = (ELEMENTS[case.signature[each].removeprefix("*")] for each in "ab")
    a, b = draw(rng, left, m, k), draw(rng, right, k, n)
    pattern = case.sparse.get("a")
    if pattern is None:
        return a, b, a
    a = louver.prune(a, pattern)
    return a, b, louver.compress(a, pattern)


def _grid(name: str, m: int, n: int) -> tuple[int, int]:
    tile = TILE_CASES[name].constexprs
    return tiles(m, tile["BM"]), tiles(n, tile["BN"])


def _any_dot(rng: np.random.Generator, name: str, m: int = 50, n: int = 37, k: int = 148) -> Run:
    a, b, given = _operands(rng, name, m, n, k)
    out = ELEMENTS[TILE_CASES[name].signature["d"].removeprefix("*")]
    expected = product(a, b, out)
    if name == "dense_f16_sum":
        # Each step of K rounds its sum to f16.
        magnitude = np.abs(wide(a)) @ np.abs(wide(b))
        expected = Expected(expected.value, 2.0**-11 * (1 + tiles(k, 32)) * magnitude)
    arguments = {"d": poisoned((m, n), out), "a": given, "b": b, "M": m, "N": n, "K": k}
    return Run(_grid(name, m, n), arguments, {"d": expected})


def _small_dot(rng: np.random.Generator, name: str) -> Run:
    a, b, given = _operands(rng, name, 32, 16, 64)
    return Run((1,), {"d": poisoned((32, 16), "f16"), "a": given, "b": b}, {"d": product(a, b, "f16")})


def _right_sparse(rng: np.random.Generator, name: str, m: int = 21, n: int = 70, k: int = 132) -> Run:
    x, w = draw(rng, "f16", m, k), louver.prune(draw(rng, "f16", n, k), "2:4")
    arguments = {"d": poisoned((m, n), "f16"), "x": x, "w": louver.compress(w, "2:4"), "M": m, "N": n, "K": k}
    return Run(_grid(name, m, n), arguments, {"d": product(x, np.ascontiguousarray(w.T), "f16")})


def _scaled_operand(rng: np.random.Generator, name: str) -> Run:
    m, n, k = 45, 19, 140
    a, b, given = _operands(rng, name, m, n, k)
    scale = rng.standard_normal(k, np.float32)
    scaled = (b.astype(np.float32) * scale[:, None]).astype(np.float16)
    arguments = {"d": poisoned((m, n), "f32"), "a": given, "b": b, "scale": scale, "M": m, "N": n, "K": k}
    return Run(_grid(name, m, n), arguments, {"d": product(a, scaled, "f32")})


def _two_dots(flag: int) -> Callable[[np.random.Generator, str], Run]:
    def make(rng: np.random.Generator, name: str) -> Run:
        m, n, k = 77, 29, 60
        a, b, given = _operands(rng, name, m, n, k)
        c, bias = draw(rng, "f16", n, n), rng.standard_normal(n, np.float32)
        first = product(a, b, "f32")
        middle = first.value + bias if flag else first.value
        second = Expected(middle @ wide(c), 2.0**-10 * (np.abs(middle) @ np.abs(wide(c))))
        arguments = {
            "d": poisoned((m, n), "f32"),
            "e": poisoned((n, m), "f32"),
            "a": given,
            "b": b,
            "c": c,
            "bias": bias,
            "flag": flag,
            "M": m,
            "N": n,
            "K": k,
        }
        return Run((tiles(m, 64),), arguments, {"d": second, "e": Expected(first.value.T, np.asarray(first.bound).T)})

    return make


def _softmax_dot(rng: np.random.Generator, name: str) -> Run:
    m, n, k = 43, 51, 100
    a, b, given = _operands(rng, name, m, n, k)
    total = wide(a) @ wide(b)
    power = np.exp(total - total.max(axis=1, keepdims=True))
    share = power / power.sum(axis=1, keepdims=True)
    arguments = {"d": poisoned((m, n), "f32"), "top": poisoned((m,), "s32"), "a": given, "b": b, "M": m, "N": n, "K": k}
    expected = {"d": Expected(share, 1e-4 * share + 1e-6), "top": Expected(total.argmax(axis=1), 0.0)}
    return Run((tiles(m, 32),), arguments, expected)


def _split_sums(rng: np.random.Generator, name: str) -> Run:
    m, n, k, split = 40, 20, 276, 3
    a, b, given = _operands(rng, name, m, n, k)
    arguments = {"d": np.zeros((m, n), np.float32), "a": given, "b": b, "M": m, "N": n, "K": k, "SPLIT": split}
    return Run((*_grid(name, m, n), split), arguments, {"d": product(a, b, "f32")}, ("d",))


def _persistent(rng: np.random.Generator, name: str) -> Run:
    m, n, k = 100, 40, 72
    a, b, given = _operands(rng, name, m, n, k)
    arguments = {"d": poisoned((m, n), "f16"), "a": given, "b": b, "M": m, "N": n, "K": k}
    return Run((5,), arguments, {"d": product(a, b, "f16")})


def _counted_dots(rng: np.random.Generator, name: str) -> Run:
    m, n, k = 50, 21, 148
    a, b, given = _operands(rng, name, m, n, k)
    reached = poisoned(_grid(name, m, n), "s32")
    arguments = {"d": poisoned((m, n), "f32"), "reached": reached, "a": given, "b": b, "M": m, "N": n, "K": k}
    expected = {"d": product(a, b, "f32"), "reached": Expected(np.full(reached.shape, 192), 0.0)}
    return Run(_grid(name, m, n), arguments, expected)


def _attention(rng: np.random.Generator, name: str) -> Run:
    length, width, scale = 71, 64, 0.125
    q, k, v = (draw(rng, "f16", length, width) for _ in range(3))
    score = wide(q) @ wide(k).T * scale
    power = np.exp(score - score.max(axis=1, keepdims=True))
    share = power / power.sum(axis=1, keepdims=True)
    arguments = {"out": poisoned((length, width), "f32"), "q": q, "k": k, "v": v, "scale": scale, "LENGTH": length}
    expected = Expected(share @ wide(v), 2.0**-9 * (share @ np.abs(wide(v))))
    return Run((tiles(length, 32),), arguments, {"out": expected})


def _column_sums(rng: np.random.Generator, name: str) -> Run:
    m, n = 53, 29
    x = rng.standard_normal((m, n), np.float32)
    tile = np.zeros((64, 32))
    tile[:m, :n] = x
    least = np.append(tile.min(axis=0)[:n], tile.max())
    arguments = {"out": poisoned((n,), "f32"), "least": poisoned((n + 1,), "f32"), "x": x, "M": m, "N": n}
    sums = Expected(x.astype(np.float64).sum(axis=0), 2.0**-24 * 8 * np.abs(x).sum(axis=0))
    return Run((1,), arguments, {"out": sums, "least": Expected(least, 0.0)})


def _elementwise(rng: np.random.Generator, name: str) -> Run:
    size = 1000
    x, y = draw(rng, "bf16", size), rng.integers(-(1 << 20), 1 << 20, size).astype(np.int32)
    a = x.astype(np.float64)
    # Remainders and quotients of Triton's integers are towards zero.
    rest = np.fmod(y.astype(np.int64), 3)
    c = np.where(rest == 0, 2 * a, np.exp(a)) - np.minimum(a, y)
    size_of_c = np.where(rest == 0, np.abs(2 * a), np.exp(a)) + np.abs(np.minimum(a, y))
    value = c * a + 1.5 + np.abs(a)
    quotient = np.trunc(y.astype(np.int64) / 5).astype(np.int64).astype(np.int8).astype(np.int32)
    bits = (y << 2) ^ (y >> 1) | quotient
    arguments = {"out": poisoned((size,), "f16"), "bits": poisoned((size,), "s32"), "x": x, "y": y, "SIZE": size}
    too_large = np.abs(value) > 65000
    bound = 2.0**-11 * np.abs(value) + 2.0**-18 * size_of_c * np.abs(a) + 1e-5
    expected = {
        "out": Expected(np.where(too_large, 0, value), np.where(too_large, np.inf, bound)),
        "bits": Expected(bits, 0.0),
    }
    return Run((tiles(size, 256),), arguments, expected)


def _work_queue(rng: np.random.Generator, name: str) -> Run:
    count = 7
    at = np.arange(count * 64)
    arguments = {"out": poisoned((count * 64,), "s32"), "next_tile": np.zeros(1, np.int32), "TILES": count}
    # Each of three programs asks once more than it gets tiles.
    expected = {"out": Expected(at * 3 + at // 64, 0.0), "next_tile": Expected(np.asarray([count + 3]), 0.0)}
    return Run((3,), arguments, expected, ("next_tile",))


def _pointer_loop(rng: np.random.Generator, name: str) -> Run:
    steps, row = 5, 131
    x = rng.standard_normal((steps, row), np.float32)
    one, other = np.zeros(128), np.ones(128)
    for step in range(steps):
        one, other = other + x[step, :128], one
        if step % 2 == 0:
            one = one * 0.5
    arguments = {"out": poisoned((256,), "f32"), "x": x, "STEPS": steps, "ROW": row}
    expected = Expected(np.concatenate([one, one[::-1] + other]), 1e-5)
    return Run((1,), arguments, {"out": expected})


RUNS: dict[str, Callable[..., Run]] = {
    **{name: _any_dot for name, case in TILE_CASES.items() if case.kernel == "any_dot"},
    "small_dot": _small_dot,
    "right_sparse": _right_sparse,
    "scaled_operand": _scaled_operand,
    "two_dots": _two_dots(1),
    "softmax_dot": _softmax_dot,
    "split_sums": _split_sums,
    "persistent": _persistent,
    "counted_dots": _counted_dots,
    "attention": _attention,
    "column_sums": _column_sums,
    "elementwise": _elementwise,
    "work_queue": _work_queue,
    "pointer_loop": _pointer_loop,
}
"""By name of the case."""


def without_flag(rng: np.random.Generator) -> Run:
    """`two_dots` with its branch not taken."""
    return _two_dots(0)(rng, "two_dots")
