"""A case of each instruction of inline assembly: its text, and its meaning in float64 or on bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from louver.frontend.ttir.instructions import INSTRUCTIONS

N, B = 150, 256
"""Elements of a case's arrays, and of its tile."""

Array = NDArray[Any]
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5, -0.25], np.float32)
TYPES: dict[str, Any] = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    **{
        f"{kind}{bits}": np.dtype(f"{'u' if kind == 'u' else 'i'}{bits // 8}")
        for kind in "sub"
        for bits in (16, 32, 64)
    },
}
APPROXIMATE = 2.0**-18
TANH = 2.0**-10


@dataclass(frozen=True)
class Case:
    """reads: a PTX type of all sources. meaning: on float64, or on integers. error: relative, and absolute below 1."""

    text: str
    reads: str
    writes: str
    meaning: Callable[..., Any]
    error: float = 0.0


def plain(name: str, count: int, meaning: Callable[..., Any], error: float = 0.0, more: str = "") -> Case:
    instruction = INSTRUCTIONS[name]
    sources = "".join(f", ${number + 1}" for number in range(count))
    return Case(f"{name} $0{sources}{more};", instruction.reads[0], instruction.writes, meaning, error)


def predicate(name: str, meaning: Callable[..., Any], text: str = "", reads: str = "f32") -> Case:
    """A predicate as 1 or 0. text: what stands between the comparisons p = $1 < $2 and q = $2 < $3, and its use."""
    text = text or f"{name} p, $1, $2;"
    start = "{ .reg .pred p, q; setp.lt.f32 p, $1, $2; setp.lt.f32 q, $2, $3; " if "q" in text else "{ .reg .pred p; "
    return Case(f"{start}{text} selp.s32 $0, 1, 0, p; }}", reads, "s32", meaning)


def chosen(each: str) -> Case:
    """The greater of two unsigned numbers, or of floats."""
    compared = "f32" if each == "f32" else "u32"
    text = f"{{ .reg .pred p; setp.gt.{compared} p, $1, $2; selp.{each} $0, $1, $2, p; }}"
    unsigned = np.uint32 if compared == "u32" else np.float64
    return Case(text, each, each, lambda a, b, c: np.where(a.astype(unsigned) > b.astype(unsigned), a, b))


def with_signs(choose: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    return lambda a, b, c: choose(abs(a), abs(b)) * np.where(np.signbit(a) ^ np.signbit(b), -1.0, 1.0)


def saturated(rounding: Callable[[Array], Array], to: str) -> Callable[..., Array]:
    limits = np.iinfo(TYPES[to])
    return lambda a, b, c: np.clip(
        np.nan_to_num(rounding(a), nan=0.0, posinf=2.0**40, neginf=-(2.0**40)), limits.min, limits.max
    )


def tf32(a: Array, b: Array, c: Array) -> Array:
    wide = a.astype(np.float64)
    _, exponent = np.frexp(wide)
    unit = np.exp2(exponent - 11.0)
    whole = np.abs(wide) / unit
    near = np.copysign(np.floor(whole + 0.5) * unit, wide)
    return np.where(np.isfinite(wide), near, wide).astype(np.float32).view(np.int32)


def permuted(selector: int) -> Callable[..., Array]:
    def meaning(a: Array, b: Array, c: Array) -> Array:
        eight = np.stack([a, b], axis=1).view(np.uint8)
        picked = [selector >> 4 * place & 15 for place in range(4)]
        parts = [eight[:, each & 7].view(np.int8) >> 7 if each & 8 else eight[:, each & 7] for each in picked]
        return np.stack([part.view(np.uint8) for part in parts], axis=1).copy().view(np.int32)[:, 0]

    return meaning


def by_table(table: int) -> Callable[..., Array]:
    def meaning(a: Array, b: Array, c: Array) -> Array:
        bits = [np.unpackbits(each.view(np.uint8)) for each in (a, b, c)]
        number = bits[0] << 2 | bits[1] << 1 | bits[2]
        return np.packbits((table >> number & 1).astype(np.uint8)).view(np.int32)

    return meaning


def shift(a: Array, b: Array) -> Array:
    """Shifted without a limit: a is wider."""
    return a >> np.minimum(b.astype(np.uint32), 63).astype(np.int64)


FLOATS: dict[str, tuple[int, Callable[..., Any], float]] = {
    "ex2.approx": (1, np.exp2, APPROXIMATE),
    "lg2.approx": (1, np.log2, APPROXIMATE),
    "rcp.approx": (1, np.reciprocal, APPROXIMATE),
    "rcp.rn": (1, np.reciprocal, 0.0),
    "rsqrt.approx": (1, lambda a: 1.0 / np.sqrt(a), APPROXIMATE),
    "sqrt.approx": (1, np.sqrt, APPROXIMATE),
    "sqrt.rn": (1, np.sqrt, 0.0),
    "sin.approx": (1, np.sin, APPROXIMATE),
    "cos.approx": (1, np.cos, APPROXIMATE),
    "tanh.approx": (1, np.tanh, TANH),
    "neg": (1, np.negative, 0.0),
    "abs": (1, np.abs, 0.0),
    "div.approx": (2, np.divide, APPROXIMATE),
    "div.full": (2, np.divide, APPROXIMATE),
    "div.rn": (2, np.divide, 0.0),
    **{
        f"{name}{mode}": (2, meaning, 0.0)
        for name, meaning in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply))
        for mode in ("", ".rn")
    },
    "max": (2, np.fmax, 0.0),
    "max.NaN": (2, np.maximum, 0.0),
    "min": (2, np.fmin, 0.0),
    "min.NaN": (2, np.minimum, 0.0),
    "fma.rn": (3, lambda a, b, c: a * b + c, 0.0),
}
ROUNDED = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
INTEGERS: dict[str, tuple[int, Callable[..., Any]]] = {
    "add": (2, np.add),
    "sub": (2, np.subtract),
    "mul.lo": (2, np.multiply),
    "mad.lo": (3, lambda a, b, c: a * b + c),
    "min": (2, np.minimum),
    "max": (2, np.maximum),
}
LOGIC = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def unordered(a: Array, b: Array) -> Array:
    return np.isnan(a) | np.isnan(b)


def first(meaning: Callable[..., Any], count: int) -> Callable[..., Any]:
    return lambda *sources: meaning(*sources[:count])


CASES: dict[str, Case] = {
    **{
        f"{name}.f32": plain(f"{name}.f32", count, first(meaning, count), error)
        for name, (count, meaning, error) in FLOATS.items()
    },
    **{
        f"{name}.xorsign.abs.f32": plain(f"{name}.xorsign.abs.f32", 2, with_signs(FLOATS[name][1]))
        for name in ("max", "min", "max.NaN", "min.NaN")
    },
    **{
        f"{name}.{each}": plain(f"{name}.{each}", count, first(meaning, count))
        for name, (count, meaning) in INTEGERS.items()
        for each in ("s32", "u32")
    },
    **{f"{name}.b32": plain(f"{name}.b32", 2, first(meaning, 2)) for name, meaning in LOGIC.items()},
    "not.b32": plain("not.b32", 1, lambda a, b, c: ~a),
    "shl.b32": plain("shl.b32", 2, lambda a, b, c: np.where(b.view(np.uint32) > 31, 0, a << (b & 31))),
    "shr.s32": plain("shr.s32", 2, lambda a, b, c: shift(a.astype(np.int64), b)),
    **{
        f"shr.{each}": plain(f"shr.{each}", 2, lambda a, b, c: shift(a.view(np.uint32).astype(np.int64), b))
        for each in ("u32", "b32")
    },
    "lop3.b32": plain("lop3.b32", 3, by_table(0xE8), more=", 0xE8"),
    "prmt.b32": plain("prmt.b32", 2, permuted(0xF351), more=", 0xF351"),
    **{f"mov.{each}": plain(f"mov.{each}", 1, first(np.asarray, 1)) for each in TYPES if each not in ("f16", "bf16")},
    **{f"selp.{each}": chosen(each) for each in ("f32", "b32", "s32", "u32")},
    **{
        f"setp.{name}.f32": predicate(f"setp.{name}.f32", lambda a, b, c, m=meaning: m(a, b) & ~unordered(a, b))
        for name, meaning in ORDERS.items()
    },
    **{
        f"setp.{name}u.f32": predicate(f"setp.{name}u.f32", lambda a, b, c, m=meaning: m(a, b) | unordered(a, b))
        for name, meaning in ORDERS.items()
    },
    "setp.nan.f32": predicate("setp.nan.f32", lambda a, b, c: unordered(a, b)),
    "setp.num.f32": predicate("setp.num.f32", lambda a, b, c: ~unordered(a, b)),
    **{
        f"setp.{name}.{each}": predicate(f"setp.{name}.{each}", first(meaning, 2), reads=each)
        for name, meaning in ORDERS.items()
        for each in ("s32", "u32", "b32")
        if each != "b32" or name in ("eq", "ne")
    },
    **{
        f"{name}.pred": predicate(name, lambda a, b, c, m=meaning: m(a < b, b < c), f"{name}.pred p, p, q;")
        for name, meaning in LOGIC.items()
    },
    "not.pred": predicate("not.pred", lambda a, b, c: ~(b < c), "not.pred p, q;"),
    **{f"cvt.{name}.f32.f32": plain(f"cvt.{name}.f32.f32", 1, first(meaning, 1)) for name, meaning in ROUNDED.items()},
    **{
        f"cvt.{name}.{each}.f32": plain(f"cvt.{name}.{each}.f32", 1, saturated(meaning, each))
        for name, meaning in ROUNDED.items()
        for each in ("s32", "u32")
    },
    **{f"cvt.rn.f32.{each}": plain(f"cvt.rn.f32.{each}", 1, first(np.asarray, 1)) for each in ("s32", "u32")},
    **{f"cvt.rn.{each}.f32": plain(f"cvt.rn.{each}.f32", 1, first(np.asarray, 1)) for each in ("f16", "bf16")},
    **{f"cvt.f32.{each}": plain(f"cvt.f32.{each}", 1, first(np.asarray, 1)) for each in ("f16", "bf16")},
    "cvt.rna.tf32.f32": plain("cvt.rna.tf32.f32", 1, tf32),
}


def drawn(rng: np.random.Generator, type_: str) -> list[Array]:
    """Three operands: all pairs of special numbers, then random ones."""
    to = np.dtype(TYPES[type_])
    if to.kind in "iu":
        limits = np.iinfo(to)
        edges = np.array([0, 1, limits.max, limits.min, 3, 31, 32, 40], to)
        more = rng.integers(limits.min, limits.max, (3, N - 64), dtype=to, endpoint=True)
    else:
        edges, more = SPECIAL, (rng.standard_normal((3, N - 64)) * 3)
    pairs = [np.repeat(edges, 8), np.tile(edges, 8), np.roll(np.tile(edges, 8), 3)]
    return [np.concatenate([pair, each]).astype(to) for pair, each in zip(pairs, more, strict=True)]


def constraint(type_: str) -> str:
    return {2: "h", 4: "f" if type_ == "f32" else "r", 8: "l"}[np.dtype(TYPES[type_]).itemsize]


def arguments(rng: np.random.Generator, case: Case) -> dict[str, Any]:
    """Those of `support.triton.assembly.assembled`, with a poisoned output."""
    to = np.dtype(TYPES[case.writes])
    out = np.full(N, 77 if to.kind in "iu" else np.nan, to)
    marks = ",".join([f"={constraint(case.writes)}", *[constraint(case.reads)] * 3])
    sources = dict(zip("xyz", drawn(rng, case.reads), strict=True))
    return {"out": out, **sources, "n": N, "ASM": case.text, "CONSTRAINTS": marks, "B": B}


def check(case: Case, known: dict[str, Any]) -> None:
    """Compare the output with what the instruction means."""
    out = known["out"]
    wide = [each if each.dtype.kind in "iu" else each.astype(np.float64) for each in (known[name] for name in "xyz")]
    with np.errstate(all="ignore"):
        wanted = np.asarray(case.meaning(*wide))
        rounded = wanted.astype(out.dtype)
    if case.error == 0.0:
        # NumPy does not take two NaN of bf16 as equal.
        exact = out.dtype if out.dtype.kind in "iu" else np.dtype(np.float64)
        np.testing.assert_array_equal(out.astype(exact), rounded.astype(exact))
    else:
        np.testing.assert_allclose(out.astype(np.float64), wanted, rtol=case.error, atol=case.error)
