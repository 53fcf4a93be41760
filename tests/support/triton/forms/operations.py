"""A product with a family of operations in its epilogue, one form for each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import triton
import triton.language as tl
from triton.language.extra import libdevice

from louver.measure.forms import Array, Call, Draw, Form, Sizes


@triton.jit
def twice_and(a, b):
    return a + a + b


@triton.jit(noinline=True)
def place_of(row, pitch):
    return row * pitch


@triton.jit
def greater(a, i, b, j):
    first = (a > b) | ((a == b) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def then(a, b, c, d):
    """x·a + b, and then x·c + d."""
    return a * c, b * c + d


@triton.jit
def finished_product(
    y,
    w,
    x,
    bias,
    lock,
    M,
    N,
    K,
    FINISH: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """y [M, N] = w [M, K] times x [K, N], changed as FINISH says, in each tile on its own."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(tl.program_id(2) * BK, K, BK * tl.num_programs(2)):
        at_k = first + k
        left = tl.load(w + m[:, None] * K + at_k[None, :], mask=(m[:, None] < M) & (at_k[None, :] < K), other=0.0)
        right = tl.load(x + at_k[:, None] * N + n[None, :], mask=(at_k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    at = y + place_of(tl.program_id(0) * BM, N) + tl.arange(0, BM)[:, None] * N + n[None, :]
    inside = (m[:, None] < M) & (n[None, :] < N)
    if FINISH == "libdevice":
        small = libdevice.tanh(total * 0.25)
        total = libdevice.pow(libdevice.exp(small), 1.5) + libdevice.log1p(tl.abs(total))
    elif FINISH == "null":
        if bias:
            total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
    elif FINISH == "bits":
        total = (total.to(tl.int32, bitcast=True) & 0x7FFFFFFF).to(tl.float32, bitcast=True)
    elif FINISH == "pairs":
        even, odd = tl.split(tl.reshape(total, (BM, BN // 2, 2)))
        total = tl.interleave(odd, even * 2.0)
    elif FINISH == "scan":
        total = tl.cumsum(total, 1) + tl.cumsum(total, 0, reverse=True)
    elif FINISH == "recurrence":
        decay = tl.full((BM, BN), 0.5, tl.float32)
        _, total = tl.associative_scan((decay, total), 1, then)
    elif FINISH == "gather":
        total = tl.gather(total, tl.broadcast_to(((tl.arange(0, BN) * 5 + 3) % BN)[None, :], (BM, BN)), 1)
    elif FINISH == "whole":
        total = total / tl.max(tl.abs(total)) + tl.sum(total)
    elif FINISH == "greatest":
        columns = tl.broadcast_to(tl.arange(0, BN)[None, :], (BM, BN))
        most, column = tl.reduce((total, columns), 1, greater)
        total = total - most[:, None] + (column + tl.argmin(total, 1))[:, None] / 256
    elif FINISH == "quotient":
        total = tl.math.div_rn(total, tl.math.sqrt_rn(3.0 + total * total)) + total % 1024.0
    elif FINISH == "flip":
        total = tl.flip(total, 1)
    elif FINISH == "calls":
        tl.debug_barrier()
        total = twice_and(total, 1.0)
    if FINISH == "lock":
        mine = lock + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
        while tl.atomic_cas(mine, 0, 1) == 1:
            pass
        total += tl.load(at, mask=inside, other=0.0)
        tl.store(at, total, mask=inside)
        tl.debug_barrier()
        tl.atomic_xchg(mine, 0)
    else:
        tl.store(at, total, mask=inside)


def _recurrence(t: Array) -> Array:
    found = t.copy()
    for column in range(1, t.shape[-1]):
        found[..., column] = found[..., column - 1] * 0.5 + t[..., column]
    return found


def _pairs(t: Array) -> Array:
    return np.stack([t[..., 1::2], t[..., ::2] * 2.0], axis=-1).reshape(t.shape)


def _greatest(t: Array) -> Array:
    places = t.argmax(-1, keepdims=True) + t.argmin(-1, keepdims=True)
    return t - t.max(-1, keepdims=True) + places / 256


FINISHES: dict[str, Callable[[Array], Array]] = {
    "libdevice": lambda t: np.exp(np.tanh(t * 0.25)) ** 1.5 + np.log1p(np.abs(t)),
    "null": lambda t: t,
    "bits": np.abs,
    "pairs": _pairs,
    "scan": lambda t: np.cumsum(t, -1) + np.cumsum(t[..., ::-1, :], -2)[..., ::-1, :],
    "recurrence": _recurrence,
    "gather": lambda t: t[..., (np.arange(t.shape[-1]) * 5 + 3) % t.shape[-1]],
    "whole": lambda t: t / np.abs(t).max((-2, -1), keepdims=True) + t.sum((-2, -1), keepdims=True),
    "greatest": _greatest,
    "quotient": lambda t: t / np.sqrt(3.0 + t * t) + np.fmod(t, 1024.0),
    "flip": lambda t: t[..., ::-1],
    "calls": lambda t: 2.0 * t + 1.0,
    "lock": lambda t: t,
}
"""The result of each on tiles, the last two axes."""


def _product(finish: str, element: str = "f16", precision: str = "tf32") -> Callable[[Draw, Sizes], Call]:
    def build(draw: Draw, s: Sizes) -> Call:
        w, x = draw.pruned(s.m, s.k, element=element), draw.dense(s.k, s.n, element=element)
        bias = draw.dense(s.n, element="f32")
        rows, columns = s.grid

        def expected() -> dict[str, Array]:
            tiles = np.zeros((rows * s.BM, columns * s.BN))
            tiles[: s.m, : s.n] = w.astype(np.float64) @ x.astype(np.float64) + (bias if finish == "null" else 0.0)
            tiles = tiles.reshape(rows, s.BM, columns, s.BN).swapaxes(1, 2)
            found = FINISHES[finish](tiles).swapaxes(1, 2).reshape(rows * s.BM, columns * s.BN)
            return {"y": found[: s.m, : s.n]}

        arrays = {"y": np.empty((s.m, s.n), np.float32), "w": w, "x": x, "bias": bias}
        numbers = {"FINISH": finish, "PRECISION": precision}
        return Call(
            {**arrays, "lock": np.zeros(rows * columns, np.int32), **numbers},
            expected,
            grid=(rows, columns, 2 if finish == "lock" else 1),
            zeroed=finish == "lock",
        )

    return build


SMALL = Sizes(75, 40, 72, 64, 32, 64)

LARGE = (Sizes(4096, 4096, 4096, 128, 128, 64),)

FORMS = (
    *(
        Form(f"product finished by {finish}", finished_product, _product(finish), SMALL, LARGE, "other")
        for finish in FINISHES
    ),
    *(
        Form(
            f"f32 product in {precision}",
            finished_product,
            _product("calls", "f32", precision),
            SMALL,
            LARGE,
            "other",
            tolerance=2.0**-18,
        )
        for precision in ("tf32x3", "ieee")
    ),
)
