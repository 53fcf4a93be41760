"""`tl.dot_scaled` with a sparse operand, against float64: formats, scales of blocks, tails and each byte of a scale."""

from __future__ import annotations

import importlib.util
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl

Array = NDArray[Any]

TYPES = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "bf16": ml_dtypes.bfloat16,
    "fp16": np.float16,
}
MOST = 2.0**-20
"""Rounding of sums in f32, as a part of the sum of magnitudes. Scaled operands have no rounding here."""


@triton.jit
def scaled_rows(
    y, x, xs, w, ws, M, N, K, FX: tl.constexpr, FW: tl.constexpr, SCALED_X: tl.constexpr, SCALED_W: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y [M, N] = x [M, K] times w [N, K] transposed, with scales [rows, K/32] of each."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    blocks = tl.cdiv(K, 32)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        block = first // 32 + tl.arange(0, BK // 32)
        a = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        b = tl.load(w + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
        of_a, of_b = None, None
        if SCALED_X:
            inside = (m < M)[:, None] & (block < blocks)[None, :]
            of_a = tl.load(xs + m[:, None] * blocks + block[None, :], mask=inside, other=127)
        if SCALED_W:
            inside = (n < N)[:, None] & (block < blocks)[None, :]
            of_b = tl.load(ws + n[:, None] * blocks + block[None, :], mask=inside, other=127)
        total = tl.dot_scaled(a, of_a, FX, b.T, of_b, FW, total, fast_math=SCALED_X)
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def scaled_columns(
    y, x, w, ws, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y [M, N] = x [M, K] times w [K, N] of e5m2, whose scales are [N, K/32]."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        block = first // 32 + tl.arange(0, BK // 32)
        a = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        b = tl.load(w + k[:, None] * N + n[None, :], mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        inside = (n < N)[:, None] & (block < K // 32)[None, :]
        scale = tl.load(ws + n[:, None] * (K // 32) + block[None, :], mask=inside, other=0)
        total += tl.dot_scaled(a, None, "bf16", b, scale, "e5m2")
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def pairs_beside_sparse(
    y, x, xs, w, M, N, K, FW: tl.constexpr, ALONG_K: tl.constexpr, GROUP: tl.constexpr, LEFT: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y [M, N] = x [M, K] times w [N, K] transposed. Bytes of x hold two of e2m1, along K or of two rows. LEFT: x is the left operand."""
    rows: tl.constexpr = 1 if ALONG_K else 2
    columns: tl.constexpr = 2 if ALONG_K else 1
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    pair = tl.program_id(0) * (BM // rows) + tl.arange(0, BM // rows)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (m < M)[:, None] & (n < N)[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        byte = first // columns + tl.arange(0, BK // columns)
        block = first // GROUP + tl.arange(0, BK // GROUP)
        a = tl.load(
            x + pair[:, None] * (K // columns) + byte[None, :],
            mask=(pair < M // rows)[:, None] & (byte < K // columns)[None, :], other=0,
        )  # fmt: skip
        b = tl.load(w + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
        of_a = tl.load(
            xs + m[:, None] * (K // GROUP) + block[None, :], mask=(m < M)[:, None] & (block < K // GROUP)[None, :]
        )
        if LEFT:
            total = tl.dot_scaled(a, of_a, "e2m1", b.T, None, FW, total, lhs_k_pack=ALONG_K)
        else:
            total += tl.dot_scaled(b, None, FW, a.T, of_a, "e2m1", rhs_k_pack=ALONG_K).T
    tl.store(y + m[:, None] * N + n[None, :], total, mask=inside)


def powers(scales: Array) -> Array:
    """The numbers of bytes."""
    return np.where(scales == 255, np.nan, 2.0 ** (scales.astype(np.float64) - 127))


def widened(numbers: Array, scales: Array | None, group: int = 32) -> Array:
    """Numbers times their scales, in float64."""
    if scales is None:
        return numbers.astype(np.float64)
    factors = powers(scales) if scales.dtype == np.uint8 else scales.astype(np.float64)
    return numbers.astype(np.float64) * np.repeat(factors, group, axis=1)[:, : numbers.shape[1]]


def check(y: Array, x: Array, w: Array) -> None:
    expected, size = x @ w.T, np.abs(x) @ np.abs(w).T
    assert np.abs(expected).max() > 1
    assert (np.abs(y - expected) <= MOST * size).all()


def poisoned(m: int, n: int) -> Array:
    return np.full((m, n), np.nan, np.float32)


class Operands:
    """x [m, k] and w [n, k] with scales. sparse: the name of the pruned one."""

    def __init__(self, rng: np.random.Generator, formats: tuple[str, str], sparse: str, m: int, n: int, k: int) -> None:
        self.sizes = {"M": m, "N": n, "K": k}
        self.arrays = {
            name: rng.standard_normal((rows, k)).astype(TYPES[each])
            for name, rows, each in zip("xw", (m, n), formats, strict=True)
        }
        self.arrays[sparse] = louver.prune(self.arrays[sparse], "2:4")
        self.scales = {
            name: rng.integers(119, 134, (rows, -(-k // 32)), np.uint8) for name, rows in (("x", m), ("w", n))
        }
        self.given = self.arrays | {sparse: louver.compress(self.arrays[sparse], "2:4")}

    def call(self, formats: tuple[str, str], scaled: tuple[bool, bool], tile: tuple[int, int, int]) -> dict[str, Any]:
        return {
            **self.given, **self.sizes, "xs": self.scales["x"], "ws": self.scales["w"], "FX": formats[0], "FW": formats[1],
            "SCALED_X": scaled[0], "SCALED_W": scaled[1], **dict(zip(("BM", "BN", "BK"), tile, strict=True)),
        }  # fmt: skip

    def wide(self, scaled: tuple[bool, bool]) -> tuple[Array, ...]:
        return tuple(
            widened(self.arrays[each], self.scales[each] if has else None)
            for each, has in zip("xw", scaled, strict=True)
        )


CASES = [
    (("e5m2", "e4m3"), (True, True), "x"),
    (("e4m3", "e4m3"), (True, True), "w"),
    (("e5m2", "bf16"), (True, False), "w"),
    (("bf16", "e5m2"), (False, True), "w"),
    (("bf16", "e4m3"), (True, True), "x"),
    (("fp16", "e4m3"), (True, True), "w"),
    (("e4m3", "fp16"), (False, True), "x"),
    (("bf16", "fp16"), (False, False), "w"),
    (("e4m3", "e5m2"), (False, False), "x"),
    (("fp16", "fp16"), (True, True), "x"),
]
SHAPES = [((37, 50, 160), (32, 32, 64)), ((130, 70, 208), (64, 64, 128))]


@pytest.mark.parametrize(("sizes", "tile"), SHAPES, ids=str)
@pytest.mark.parametrize(("formats", "scaled", "sparse"), CASES, ids=str)
def test_formats_and_scales(
    rng: np.random.Generator, formats: tuple[str, str], scaled: tuple[bool, bool], sparse: str,
    sizes: tuple[int, int, int], tile: tuple[int, int, int],
) -> None:  # fmt: skip
    operands = Operands(rng, formats, sparse, *sizes)
    y, call = poisoned(*sizes[:2]), operands.call(formats, scaled, tile)
    grid = (-(-sizes[0] // tile[0]), -(-sizes[1] // tile[1]))
    louver.jit(scaled_rows).emulate[grid](y=y, **call)
    check(y, *operands.wide(scaled))
    louver.jit(scaled_rows)[grid](y=(shown := poisoned(*sizes[:2])), **call)
    check(shown, *operands.wide(scaled))


@pytest.mark.parametrize(
    ("formats", "sparse", "tile", "unit"),
    [
        (("e4m3", "e4m3"), "w", (64, 128, 128), "wgmma.sp of 64×128×128"),
        (("bf16", "e4m3"), "x", (128, 64, 64), "wgmma.sp of 128×64×64"),
        (("fp16", "e5m2"), "w", (32, 32, 64), "mma.sp of 32×32×64"),
    ],
)
def test_dots_stay_sparse(
    rng: np.random.Generator, formats: tuple[str, str], sparse: str, tile: tuple[int, int, int], unit: str
) -> None:
    """Scales act on the kept values alone, and metadata is that of 16-bit products."""
    operands = Operands(rng, formats, sparse, 128, 128, 256)
    call = operands.call(formats, (True, True), tile)
    said = louver.jit(scaled_rows).explain(y=poisoned(128, 128), **call)
    (dot,) = said.dots
    assert unit in dot and "test_dot_scaled.py:" in dot


@pytest.mark.parametrize("sparse", ["x", "w"])
@pytest.mark.parametrize("formats", [("bf16", "bf16"), ("fp16", "fp16")], ids=str)
def test_each_byte_of_a_scale(formats: tuple[str, str], sparse: str) -> None:
    """A row of x, or of w, for each byte: 2^-127 to 2^127, and NaN. With fp16 a scaled number is rounded once."""
    rng = np.random.default_rng(1)
    m, n = (256, 16) if sparse == "x" else (16, 256)
    operands = Operands(rng, formats, sparse, m, n, 64)
    bytes_ = np.arange(256, dtype=np.uint8)
    operands.scales[sparse] = np.stack([bytes_, np.full(256, 127, np.uint8)], axis=1)
    other = "w" if sparse == "x" else "x"
    # One number of each row of the other operand: sums are products.
    operands.arrays[other][:] = 0
    operands.arrays[other][:, 3] = 1.0
    # No other number of the block, which may become infinite, and NaN times zero.
    operands.arrays[sparse][:, :32] = 0
    operands.arrays[sparse][:, 3] = 1.5
    operands.given = operands.arrays | {sparse: louver.compress(operands.arrays[sparse], "2:4")}
    y = poisoned(m, n)
    scaled = (sparse == "x", sparse == "w")
    louver.jit(scaled_rows).emulate[(m // 16, n // 16)](y=y, **operands.call(formats, scaled, (16, 16, 64)))
    with np.errstate(over="ignore"):
        numbers = (1.5 * powers(bytes_)).astype(TYPES[formats[0]]).astype(np.float32)
    np.testing.assert_array_equal(y if sparse == "x" else y.T, np.repeat(numbers[:, None], 16, axis=1))


@pytest.mark.parametrize("width", [32, 64])
def test_a_weight_across_its_rows(rng: np.random.Generator, width: int) -> None:
    m, n, k = 40, 64, 192
    x, ws = rng.standard_normal((m, k)).astype(TYPES["bf16"]), rng.integers(119, 134, (n, k // 32), np.uint8)
    w = louver.prune(rng.standard_normal((n, k)).astype(TYPES["e5m2"]), "2:4")
    y, tile = poisoned(m, n), {"BM": 32, "BN": width, "BK": 64}
    given = {"x": x, "w": louver.compress(w, "2:4").T, "ws": ws, "M": m, "N": n, "K": k, **tile}
    louver.jit(scaled_columns).emulate[(2, n // width)](y=y, **given)
    check(y, widened(x, None), widened(w, ws))


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("group", [32, 16])
@pytest.mark.parametrize("along_k", [True, False])
@pytest.mark.parametrize("format_", ["e4m3", "bf16", "fp16"])
def test_pairs_of_four_bits(rng: np.random.Generator, format_: str, along_k: bool, group: int, left: bool) -> None:
    """Every code of e2m1, with bytes of powers of two for 32 columns, and e4m3 for 16."""
    m, n, k = 42, 48, 160
    codes = rng.integers(0, 16, (m, k), np.uint8)
    x = codes[:, 0::2] | codes[:, 1::2] << 4 if along_k else codes[0::2] | codes[1::2] << 4
    if group == 32:
        xs = rng.integers(119, 134, (m, k // group), np.uint8)
    else:
        xs = rng.integers(-8, 9, (m, k // group)).astype(TYPES["e4m3"])
    w = louver.prune(rng.standard_normal((n, k)).astype(TYPES[format_]), "2:4")
    given = {"x": np.ascontiguousarray(x), "xs": xs, "w": louver.compress(w, "2:4"), "M": m, "N": n, "K": k}
    y, how = poisoned(m, n), {"FW": format_, "ALONG_K": along_k, "GROUP": group, "LEFT": left}
    louver.jit(pairs_beside_sparse).emulate[(2, 2)](y=y, **given, **how, BM=32, BN=32, BK=64)
    check(y, widened(codes.view(ml_dtypes.float4_e2m1fn), xs, group), widened(w, None))


def test_bytes_of_floats(rng: np.random.Generator) -> None:
    """Operands as uint8: Triton takes them for the format."""
    formats = ("e5m2", "e4m3")
    operands = Operands(rng, formats, "w", 32, 32, 128)
    operands.given = {name: each.view(np.uint8) for name, each in operands.arrays.items()}
    operands.given["w"] = louver.compress(operands.given["w"], "2:4")
    y = poisoned(32, 32)
    call = operands.call(formats, (True, True), (32, 32, 64))
    (dot,) = louver.jit(scaled_rows).explain(y=y, **call).dots
    assert "mma.sp" in dot
    louver.jit(scaled_rows).emulate[(1, 1)](y=y, **call)
    check(y, *operands.wide((True, True)))


def test_sparse_bytes_of_pairs(rng: np.random.Generator) -> None:
    """Pairs of zeros: kept bytes give both numbers of each, and the dot is dense."""
    m, n, k = 48, 40, 256
    x, xs = (
        louver.prune(rng.integers(1, 256, (m, k // 2), np.uint8), "2:4"),
        rng.integers(119, 134, (m, k // 32), np.uint8),
    )
    w, y = rng.standard_normal((n, k)).astype(TYPES["bf16"]), poisoned(m, n)
    given = {"x": louver.compress(x, "2:4"), "xs": xs, "w": w, "M": m, "N": n, "K": k, "FW": "bf16", "ALONG_K": True}
    given |= {"GROUP": 32, "LEFT": True, "BM": 32, "BN": 32, "BK": 128}
    said = louver.jit(pairs_beside_sparse).explain(y=y, **given)
    assert "mma of" in said.dots[0] and "mma.sp" not in said.dots[0]
    louver.jit(pairs_beside_sparse).emulate[(2, 2)](y=y, **given)
    codes = np.stack([x & 15, x >> 4], axis=2).reshape(m, k)
    check(y, widened(codes.view(ml_dtypes.float4_e2m1fn), xs), widened(w, None))
