"""Where a sparse tile may go: cast, scaled, masked, summed, stored, and in several dots."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl

from louver.bench.forms import Array, Call, Draw, Form, Sizes


@triton.jit
def changed_tile(
    y, w, x, factors, sums, M, N, K, HOW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """y [M, N] = what `HOW` makes of w [M, K], times x [K, N]; sums: of w's rows."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    beside = tl.zeros((BM,), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        tile = tl.load(w + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(x + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        if HOW == "cast":
            tile = tile.to(right.dtype)
        elif HOW == "scaled":
            tile = (tile.to(tl.float32) * 0.5).to(right.dtype)
        elif HOW == "rows":
            tile = tile.to(right.dtype) * tl.load(factors + m, mask=m < M, other=0.0)[:, None]
        elif HOW == "columns":
            tile = tile.to(right.dtype) * tl.load(factors + k, mask=k < K, other=0.0)[None, :]
        elif HOW == "masked":
            tile = tl.where((m % 2 == 0)[:, None], tile, 0.0)
        elif HOW == "masked along K":
            tile = tl.where((k % 3 == 0)[None, :], tile, 0.0)
        elif HOW == "leaky":
            tile = tl.where(tile >= 0, tile, tile * 0.25)
        elif HOW == "exponential":
            tile = tl.exp(tile.to(tl.float32)).to(right.dtype)
        elif HOW == "added":
            tile = tile + 1.0
        elif HOW == "negated":
            tile = -tile
        elif HOW == "summed":
            beside += tl.sum(tile.to(tl.float32), 1)
        total = tl.dot(tile.to(right.dtype), right, total)
    if HOW == "summed":
        tl.store(sums + m, beside, mask=(m < M) & (tl.program_id(1) == 0))
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


def _changes(w: Array, f: Array, how: str) -> Array:
    w = w.astype(np.float64)
    columns, rows = np.arange(w.shape[1]), np.arange(w.shape[0])[:, None]
    return {
        "cast": w,
        "scaled": w / 2,
        "rows": w * f[: len(w), None],
        "columns": w * f[: w.shape[1]],
        "masked": np.where(rows % 2 == 0, w, 0.0),
        "masked along K": np.where(columns % 3 == 0, w, 0.0),
        "leaky": np.where(w >= 0, w, w / 4),
        "exponential": np.exp(w),
        "added": w + 1,
        "negated": -w,
        "summed": w,
    }[how]


def _changed(how: str, element: str = "f16", to: str = "f16") -> Any:
    def build(draw: Draw, s: Sizes) -> Call:
        w, x = draw.pruned(s.m, s.k, element=element), draw.dense(s.k, s.n, element=to)
        factors = draw.dense(max(s.m, s.k), element=to)
        arguments: dict[str, Any] = {
            "y": np.empty((s.m, s.n), np.float32), "w": w, "x": x, "factors": factors, "sums": np.empty(s.m, np.float32),
            "M": s.m, "N": s.n, "K": s.k, "HOW": how,
        }  # fmt: skip

        def expected() -> dict[str, Array]:
            made = {"y": _changes(w, factors.astype(np.float64), how) @ x.astype(np.float64)}
            return made | ({"sums": w.astype(np.float64).sum(1)} if how == "summed" else {})

        outputs = ("y", "sums") if how == "summed" else ("y",)
        return Call(s.grid, arguments, ("w",), outputs, expected, 2.0 * s.m * s.n * s.k)

    return build


SMALL = Sizes(72, 40, 200, 64, 32, 64)
LARGE = (Sizes(4096, 4096, 4096, 128, 128, 64),)

_CHANGES = [
    *((f"sparse tile {how}", how, "f16", "f16") for how in (
        "scaled", "rows", "columns", "masked", "masked along K", "leaky", "exponential", "added", "negated", "summed")),
    ("sparse s8 cast to f16", "cast", "s8", "f16"),
    ("sparse e4m3 cast to f16", "cast", "e4m3", "f16"),
    ("sparse f16 cast to bf16", "cast", "f16", "bf16"),
    ("sparse f16 cast to f32", "cast", "f16", "f32"),
    ("sparse s8 scaled by rows", "rows", "s8", "bf16"),
]  # fmt: skip

FORMS = tuple(
    Form(name, changed_tile, _changed(how, element, to), SMALL, LARGE if element == "f16" else (), kind="other")
    for name, how, element, to in _CHANGES
)
