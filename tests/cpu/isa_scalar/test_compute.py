"""Results of instructions, against exact arithmetic on Python integers and fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from louver.isa.bits import TRUTH, CountOnes, ExtractField, Logic3, PermuteBytes
from louver.isa.convert import (
    ConvertInteger,
    F32ToInteger,
    Fp8PairFromF32,
    FromF32,
    HalfPairFromFp8,
    IntegerToF32,
    IntegerToHalf,
    PairFromF32,
    RoundToEven,
    ToF32,
)
from louver.isa.floating import APPROXIMATION_ERROR, Approximate, Fma, Sign
from louver.isa.instruction import Pure
from louver.isa.move import Bitcast, Move, Pack, Select, Unpack
from louver.isa.packed import PackedBinary
from louver.isa.scalar import Binary, Compare, MultiplyAdd, MultiplyWide
from support.scalar import WIDTH, integers, lanes, random_floats, random_integers, rounded, signed

INTEGER_TYPES = ("s32", "u32", "s64", "u64")
Random = np.random.Generator

EXACT: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": min,
    "max": max,
    "div": lambda a, b: -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "rem": lambda a, b: a if b == 0 else int(math.copysign(1, a)) * (abs(a) % abs(b)),
}


@pytest.mark.parametrize("kind", INTEGER_TYPES)
@pytest.mark.parametrize("op", EXACT)
def test_integers_wrap(op: str, kind: str, rng: Random) -> None:
    for _ in range(8):
        a, b = random_integers(rng, kind), random_integers(rng, kind)
        (result,) = Binary(op, kind).compute(a, b)
        expected = [EXACT[op](x, y) for x, y in zip(integers(a, kind), integers(b, kind), strict=True)]
        np.testing.assert_array_equal(result, lanes(expected, kind))


@pytest.mark.parametrize("kind", ["b16", "b32", "b64", "pred"])
@pytest.mark.parametrize("op", ["and", "or", "xor"])
def test_logic(op: str, kind: str, rng: Random) -> None:
    a, b = random_integers(rng, kind), random_integers(rng, kind)
    function = {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}[op]
    expected = [function(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    np.testing.assert_array_equal(Binary(op, kind).compute(a, b)[0], lanes(expected, kind))


@pytest.mark.parametrize("op,kind", [("shl", "b32"), ("shl", "b64"), *(("shr", kind) for kind in INTEGER_TYPES)])
def test_shift_amounts_clamp_at_the_width(op: str, kind: str, rng: Random) -> None:
    width = WIDTH[kind]
    a = random_integers(rng, kind)
    amounts = np.array([0, 1, width - 1, width, width + 1, 2 * width, 1 << 31, (1 << 32) - 1] * 4, np.uint32)
    (result,) = Binary(op, kind).compute(a, amounts)
    for value, amount, got in zip(integers(a, kind), amounts.tolist(), result, strict=True):
        far = min(amount, 200)
        expected = value << far if op == "shl" else value >> far
        assert int(got) == expected & ((1 << width) - 1)


@pytest.mark.parametrize("kind", [*INTEGER_TYPES, "f32"])
@pytest.mark.parametrize("compare", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons_are_false_for_nan(compare: str, kind: str, rng: Random) -> None:
    a, b = (random_floats(rng) if kind == "f32" else random_integers(rng, kind) for _ in range(2))
    b = np.where(np.arange(32) % 3 == 0, a, b)
    first, second = (x.view(np.float32).tolist() if kind == "f32" else integers(x, kind) for x in (a, b))
    (result,) = Compare(compare, kind).compute(a, b)
    for x, y, got in zip(first, second, result, strict=True):
        ordered = not (math.isnan(x) or math.isnan(y))
        assert bool(got) == (ordered and getattr(x, f"__{compare}__")(y))


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_wide_products(kind: str, rng: Random) -> None:
    a, b, c = random_integers(rng, kind), random_integers(rng, kind), random_integers(rng, "u64")
    products = [x * y for x, y in zip(integers(a, kind), integers(b, kind), strict=True)]
    np.testing.assert_array_equal(MultiplyWide(kind).compute(a, b)[0], lanes(products, "u64"))
    sums = [p + int(z) for p, z in zip(products, c, strict=True)]
    np.testing.assert_array_equal(MultiplyWide(kind, add=True).compute(a, b, c)[0], lanes(sums, "u64"))


@pytest.mark.parametrize("kind", INTEGER_TYPES)
def test_multiply_add_keeps_the_low_half(kind: str, rng: Random) -> None:
    a, b, c = (random_integers(rng, kind) for _ in range(3))
    expected = [int(x) * int(y) + int(z) for x, y, z in zip(a, b, c, strict=True)]
    np.testing.assert_array_equal(MultiplyAdd(kind).compute(a, b, c)[0], lanes(expected, kind))


@pytest.mark.parametrize("kind", ["b16", "b32", "b64"])
def test_select_and_move(kind: str, rng: Random) -> None:
    a, b = random_integers(rng, kind), random_integers(rng, kind)
    p = rng.integers(0, 2, 32).astype(np.bool_)
    expected = [x if t else y for x, y, t in zip(a, b, p, strict=True)]
    np.testing.assert_array_equal(Select(kind).compute(a, b, p)[0], np.array(expected))
    np.testing.assert_array_equal(Move(kind).compute(a)[0], a)


@pytest.mark.parametrize("kind,half", [("b32", "b16"), ("b64", "b32")])
def test_packing_puts_the_first_register_low(kind: str, half: str, rng: Random) -> None:
    low, high = random_integers(rng, half), random_integers(rng, half)
    (packed,) = Pack(kind).compute(np.stack([low, high]))
    assert [int(x) for x in packed] == [int(x) | int(y) << WIDTH[half] for x, y in zip(low, high, strict=True)]
    np.testing.assert_array_equal(Unpack(kind).compute(packed)[0], np.stack([low, high]))


def test_bitcast_keeps_bits(rng: Random) -> None:
    bits = random_floats(rng)
    np.testing.assert_array_equal(Bitcast("b32").compute(bits)[0], bits)


@pytest.mark.parametrize("kind", ["s32", "s64"])
def test_signs_of_integers(kind: str, rng: Random) -> None:
    a = random_integers(rng, kind)
    np.testing.assert_array_equal(Sign("neg", kind).compute(a)[0], lanes([-x for x in integers(a, kind)], kind))
    np.testing.assert_array_equal(Sign("abs", kind).compute(a)[0], lanes([abs(x) for x in integers(a, kind)], kind))


def test_signs_of_floats(rng: Random) -> None:
    a = random_floats(rng)
    np.testing.assert_array_equal(Sign("neg", "f32").compute(a)[0], a ^ np.uint32(1 << 31))
    np.testing.assert_array_equal(Sign("abs", "f32").compute(a)[0], a & np.uint32((1 << 31) - 1))


# --- floats: one rounding of the exact result ----------------------------------------------------------------------


@pytest.mark.parametrize("op", ["add", "sub", "mul"])
def test_f32_arithmetic_rounds_once(op: str, rng: Random) -> None:
    for _ in range(16):
        a, b = random_floats(rng), random_floats(rng)
        (result,) = Binary(op, "f32").compute(a, b)
        _check_floats(result, [_exact(op, x, y) for x, y in _pairs(np.float32, a, b)], "f32")


def test_f32_fma_rounds_once(rng: Random) -> None:
    for _ in range(32):
        a, b, c = (random_floats(rng) for _ in range(3))
        (result,) = Fma().compute(a, b, c)
        exact = [_exact("fma", *values) for values in _pairs(np.float32, a, b, c)]
        _check_floats(result, exact, "f32")


def test_f32_fma_does_not_round_twice() -> None:
    # a · b is 1 + 2^-24: half way between two floats. The tiny c decides, and is lost when the sum is rounded to 53 bits.
    a = np.full(32, 1 + 2.0**-12, np.float32)
    b = np.full(32, (1 + 2.0**-12), np.float32)
    base = Fraction(float(a[0])) * Fraction(float(b[0]))
    for tiny in (2.0**-80, -(2.0**-80)):
        c = np.full(32, tiny, np.float32)
        (result,) = Fma().compute(a.view(np.uint32), b.view(np.uint32), c.view(np.uint32))
        assert int(result[0]) == rounded(base + Fraction(tiny), "f32")


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("op", ["add", "sub", "mul"])
def test_packed_arithmetic_rounds_once(op: str, kind: str, rng: Random) -> None:
    instruction = PackedBinary(op, kind)
    dtype = np.float16 if kind == "f16" else ml_dtypes.bfloat16
    for _ in range(64):
        operands = [random_integers(rng, "b32") for _ in range(2)]
        (result,) = instruction.compute(*operands)
        exact = [_exact(op, *values) for values in _pairs(dtype, *operands)]
        _check_floats(result.view(np.uint16), exact, kind)


@pytest.mark.parametrize("instruction", [Binary, PackedBinary], ids=["f32", "f16"])
def test_extremes_prefer_numbers_to_nan_and_order_zeros(instruction: type) -> None:
    nan, zero, one = 0x7FC00001, 0x00000000, 0x3F800000
    minus_zero = 1 << 31
    if instruction is PackedBinary:
        nan, one, minus_zero = 0x7E01, 0x3C00, 1 << 15
    cases = [(nan, one, one, one), (one, nan, one, one), (zero, minus_zero, minus_zero, zero)]
    cases += [(minus_zero, zero, minus_zero, zero), (one, zero, zero, one), (minus_zero, one, minus_zero, one)]
    kind = "f32" if instruction is Binary else "f16"
    canonical = 0x7FFFFFFF if instruction is Binary else 0x7FFF
    for a, b, least, greatest in [*cases, (nan, nan, canonical, canonical)]:
        first, second = np.full(32, a, np.uint32), np.full(32, b, np.uint32)
        mask = 0xFFFFFFFF if instruction is Binary else 0xFFFF
        assert int(instruction("min", kind).compute(first, second)[0][0]) & mask == least
        assert int(instruction("max", kind).compute(first, second)[0][0]) & mask == greatest
        spread = (canonical, canonical) if nan in (a, b) else (least, greatest)
        for op, expected in zip(("min.NaN", "max.NaN"), spread, strict=True):
            assert int(instruction(op, kind).compute(first, second)[0][0]) & mask == expected


@pytest.mark.parametrize("op", ["ex2", "rcp", "tanh"])
def test_approximations_are_the_exact_functions(op: str, rng: Random) -> None:
    x = rng.uniform(-8, 8, 32).astype(np.float32)
    function = {"ex2": lambda v: 2.0**v, "rcp": lambda v: 1 / v, "tanh": math.tanh}[op]
    result = Approximate(op).compute(x.view(np.uint32))[0].view(np.float32)
    expected = np.array([function(float(v)) for v in x])
    assert (np.abs(result - expected) <= APPROXIMATION_ERROR[op] * np.abs(expected)).all()


def test_approximations_at_the_edges() -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf] * 8, np.float32).view(np.uint32)
    assert Approximate("rcp").compute(x)[0].view(np.float32)[:4].tolist() == [np.inf, -np.inf, 0.0, 0.0]
    assert Approximate("ex2").compute(x)[0].view(np.float32)[:4].tolist() == [1.0, 1.0, np.inf, 0.0]
    assert Approximate("tanh").compute(x)[0].view(np.float32)[:4].tolist() == [0.0, 0.0, 1.0, -1.0]
    assert Approximate("sqrt").compute(x)[0].view(np.float32)[:3].tolist() == [0.0, -0.0, np.inf]


def test_subnormal_numbers_are_flushed_where_asked() -> None:
    x = np.array([-126.0, -126.5, -149.0, -151.0] * 8, np.float32).view(np.uint32)
    kept, flushed = (Approximate("ex2", flush=flush).compute(x)[0].view(np.float32)[:4] for flush in (False, True))
    assert kept.tolist() == [2.0**-126, np.float32(2.0**-126.5), 2.0**-149, 0.0]
    assert flushed.tolist() == [2.0**-126, 0.0, 0.0, 0.0]
    tiny = np.array([2.0**-130, -(2.0**-130)] * 16, np.float32).view(np.uint32)
    assert Approximate("rcp", flush=True).compute(tiny)[0].view(np.float32)[:2].tolist() == [np.inf, -np.inf]
    assert Approximate("ex2", flush=True).mnemonic == "ex2.approx.ftz.f32"


# --- conversions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_narrowing_rounds_to_nearest_even(kind: str, rng: Random) -> None:
    for _ in range(16):
        a, b = random_floats(rng, near=kind), random_floats(rng, near=kind)
        exact = [_exact("add", x, 0.0) if x else x for (x,) in _pairs(np.float32, a)]
        (result,) = FromF32(kind).compute(a)
        _check_floats(result, exact, kind)
        (pair,) = PairFromF32(kind).compute(b, a)
        np.testing.assert_array_equal(pair & 0xFFFF, result)
        np.testing.assert_array_equal(pair >> 16, FromF32(kind).compute(b)[0])


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_widening_is_exact_for_every_value(kind: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    (result,) = ToF32(kind).compute(every)
    for bits, got in zip(
        every.tolist()[:: 7 if kind == "f16" else 5], result[:: 7 if kind == "f16" else 5], strict=True
    ):
        value = _value(bits, kind)
        assert int(got) == (0x7FFFFFFF if math.isnan(value) else int(np.float32(value).view(np.uint32)))


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_fp8_saturates(kind: str, rng: Random) -> None:
    dtype = ml_dtypes.float8_e4m3fn if kind == "e4m3" else ml_dtypes.float8_e5m2
    greatest = 448.0 if kind == "e4m3" else 57344.0
    a, b = random_floats(rng, near=kind), random_floats(rng, near=kind)
    edges = np.array([greatest, greatest * 1.2, -1e30, np.inf, -np.inf, np.nan, 0.0, -0.0], np.float32)
    a[: len(edges)] = edges.view(np.uint32)
    (pair,) = Fp8PairFromF32(kind).compute(b, a)
    for bits, source in ((pair & 0xFF, a), (pair >> 8, b)):
        for code, x in zip(bits.astype(np.uint8), source.view(np.float32).tolist(), strict=True):
            got = float(code.view(dtype))
            if math.isnan(x):
                assert int(code) == 0x7F
            elif abs(x) >= greatest:
                assert got == math.copysign(greatest, x)
            else:
                every = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
                finite = every[np.isfinite(every)]
                assert abs(got - x) == np.abs(finite - x).min()
                assert math.copysign(1, got) == math.copysign(1, x)


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_fp8_widens_exactly(kind: str) -> None:
    dtype = ml_dtypes.float8_e4m3fn if kind == "e4m3" else ml_dtypes.float8_e5m2
    every = np.arange(256, dtype=np.uint8)
    (result,) = HalfPairFromFp8(kind).compute(every.view(np.uint16))
    expected = every.view(dtype).astype(np.float64)
    halves = result.view(np.float16).astype(np.float64)
    np.testing.assert_array_equal(np.isnan(halves), np.isnan(expected))
    np.testing.assert_array_equal(halves[~np.isnan(halves)], expected[~np.isnan(expected)])


@pytest.mark.parametrize("kind", ["s32", "u32"])
def test_integers_to_floats_and_back(kind: str, rng: Random) -> None:
    a = random_integers(rng, kind)
    (result,) = IntegerToF32(kind).compute(a)
    _check_floats(result, [Fraction(x) if x else 0.0 for x in integers(a, kind)], "f32")
    (cut,) = IntegerToF32(kind, "rz").compute(a)
    for value, got in zip(integers(a, kind), cut.view(np.float32).tolist(), strict=True):
        shift = max(abs(value).bit_length() - 24, 0)
        assert int(got) == (abs(value) >> shift << shift) * (-1 if value < 0 else 1)
    x = rng.normal(size=32).astype(np.float32) * np.float32(2.0) ** rng.integers(0, 36, 32).astype(np.float32)
    x[:6] = [0.5, 1.5, -2.5, np.nan, np.inf, -np.inf]
    low, high = (-(1 << 31), (1 << 31) - 1) if kind == "s32" else (0, (1 << 32) - 1)
    for rounding, function in (("rni", round), ("rzi", math.trunc)):
        (whole,) = F32ToInteger(kind, rounding).compute(x.view(np.uint32))
        for value, got in zip(x.tolist(), integers(whole, kind), strict=True):
            expected = 0 if math.isnan(value) else value if math.isinf(value) else function(value)
            assert got == min(max(expected, low), high)


@pytest.mark.parametrize("kind", ["s32", "u32"])
@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_integers_to_halves_round_once(to: str, kind: str, rng: Random) -> None:
    # 2^24 + 2^16 + 1 is just above a tie of bf16; by way of f32 it would land on it.
    near_tie = lanes([(1 << 24) + (1 << 16) + 1] * 4, kind)
    a = np.concatenate([near_tie, random_integers(rng, kind)[4:]])
    (result,) = IntegerToHalf(to, kind).compute(a)
    _check_floats(result, [Fraction(x) if x else 0.0 for x in integers(a, kind)], to)


@pytest.mark.parametrize(
    "to,source", [("u64", "u32"), ("s64", "s32"), ("u32", "u64"), ("u32", "u16"), ("s32", "s16"), ("u16", "u32")]
)
def test_integer_conversions(to: str, source: str, rng: Random) -> None:
    a = random_integers(rng, source)
    (result,) = ConvertInteger(to, source).compute(a)
    np.testing.assert_array_equal(result, lanes(integers(a, source), to))


# --- bits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_extracting_fields(kind: str, rng: Random) -> None:
    for _ in range(32):
        a, position, length = random_integers(rng, "u32"), _places(rng), _places(rng)
        (result,) = ExtractField(kind).compute(a, position, length)
        for value, first, count, got in zip(
            a.tolist(), position.tolist(), length.tolist(), result.tolist(), strict=True
        ):
            first, count = first & 0xFF, count & 0xFF
            sign = 0
            if kind == "s32" and count:
                sign = value >> min(first + count - 1, 31) & 1
            bits = [value >> i & 1 if i <= 31 else sign for i in range(first, first + min(count, 32))]
            bits += [sign] * (32 - len(bits))
            assert got == sum(bit << i for i, bit in enumerate(bits))


def test_every_function_of_three_bits(rng: Random) -> None:
    a, b, c = (random_integers(rng, "u32") for _ in range(3))
    rows = sum((bits >> 31 & 1) << place for bits, place in ((a, 2), (b, 1), (c, 0)))
    for table in range(256):
        (result,) = Logic3(table).compute(a, b, c)
        np.testing.assert_array_equal(result >> 31, table >> rows & 1)
    first, second, third = TRUTH
    (chosen,) = Logic3(first & second | ~first & third & 0xFF).compute(a, b, c)
    np.testing.assert_array_equal(chosen, a & b | ~a & c)
    with pytest.raises(ValueError, match="8 bits, got 0x100"):
        Logic3(0x100)


def test_counting_ones(rng: Random) -> None:
    a = random_integers(rng, "u32")
    (result,) = CountOnes().compute(a)
    assert result.tolist() == [value.bit_count() for value in a.tolist()]


def test_permuting_bytes(rng: Random) -> None:
    a, b, selector = (random_integers(rng, "u32") for _ in range(3))
    (result,) = PermuteBytes().compute(a, b, selector)
    for index, got in enumerate(result.tolist()):
        pool = int(a[index]).to_bytes(4, "little") + int(b[index]).to_bytes(4, "little")
        expected = 0
        for i in range(4):
            nibble = int(selector[index]) >> 4 * i & 0xF
            byte = pool[nibble & 7]
            expected |= (byte if nibble < 8 else 0xFF * (byte >> 7)) << 8 * i
        assert got == expected


# --- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make,rule",
    [
        (lambda: Binary("div", "f32"), "f32 has the operations"),
        (lambda: Binary("shl", "pred"), "pred has the operations and, or, xor, got 'shl'"),
        (lambda: Binary("add", "f64"), "scalar types are"),
        (lambda: Compare("lo", "u32"), "a comparison is one of"),
        (lambda: Approximate("sin"), "the approximations are"),
        (lambda: ConvertInteger("s64", "u32"), "integer conversions are"),
        (lambda: PackedBinary("div", "f16"), "packed floats have the operations"),
    ],
)
def test_unknown_forms_are_refused(make: Callable[[], Pure], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        make()


def _places(rng: Random) -> np.ndarray:
    """Positions and lengths: mostly small, some beyond the width, and bits above the low byte, which do not count."""
    return (rng.integers(0, 40, 32) + rng.choice([0, 0, 0, 120, 0x300], 32)).astype(np.uint32)


def _pairs(dtype: type, *operands: np.ndarray) -> list[tuple[float, ...]]:
    with np.errstate(invalid="ignore"):
        wide = [np.ascontiguousarray(operand).view(dtype).astype(np.float64).tolist() for operand in operands]
    return list(zip(*wide, strict=True))


def _exact(op: str, a: float, b: float, c: float = 0.0) -> Fraction | float:
    """The exact result; a float where it is zero, infinite or NaN, and then what IEEE 754 says."""
    if all(math.isfinite(v) for v in (a, b, c)):
        x, y, z = Fraction(a), Fraction(b), Fraction(c)
        value = {"add": x + y, "sub": x - y, "mul": x * y, "fma": x * y + z}[op]
        if value:
            return value
    with np.errstate(all="ignore"):
        a64, b64, c64 = np.float64(a), np.float64(b), np.float64(c)
        return float({"add": a64 + b64, "sub": a64 - b64, "mul": a64 * b64, "fma": a64 * b64 + c64}[op])


def _value(bits: int, kind: str) -> float:
    dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind]
    return float(np.array([bits], np.uint16).view(dtype)[0])


def _check_floats(bits: np.ndarray, exact: list[Fraction | float], kind: str) -> None:
    assert len(bits) == len(exact)
    for got, value in zip(bits.tolist(), exact, strict=True):
        assert got == rounded(value, kind), f"{got:#x} against {value}"


def test_signed_reads_twos_complement() -> None:
    assert [signed(x, 8) for x in (0, 127, 128, 255)] == [0, 127, -128, -1]


def test_extremes_that_spread_nan() -> None:
    nan, one, zero, minus_zero = 0x7FC00001, 0x3F800000, 0, 1 << 31
    canonical = 0x7FFFFFFF
    cases = [(nan, one, canonical, canonical), (one, nan, canonical, canonical), (zero, minus_zero, minus_zero, zero)]
    for a, b, least, greatest in [*cases, (one, zero, zero, one), (minus_zero, one, minus_zero, one)]:
        first, second = np.full(32, a, np.uint32), np.full(32, b, np.uint32)
        assert int(Binary("min.NaN", "f32").compute(first, second)[0][0]) == least
        assert int(Binary("max.NaN", "f32").compute(first, second)[0][0]) == greatest


def test_rounding_to_whole_numbers() -> None:
    x = np.array([0.5, 1.5, -2.5, 2.4999998, -0.2, 3e9, np.inf, np.nan] * 4, np.float32)
    (result,) = RoundToEven().compute(x.view(np.uint32))
    assert result.view(np.float32)[:7].tolist() == [0, 2, -2, 2, 0, 3e9, np.inf] and int(result[7]) == 0x7FFFFFFF
