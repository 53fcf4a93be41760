"""Several dots in one kernel: chains of them, nested loops, sums that are rescaled, stores and hand-made pipelines in a loop."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Array, Call, Draw, Form, Sizes


@triton.jit
def projected_attention(
    out,
    x,
    wq,
    keys,
    values,
    T,
    D,
    SCALE: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    HEAD: tl.constexpr,
):
    """Softmax((x · wqᵀ) · keysᵀ) · values: x [T, D], wq [HEAD, D] sparse, keys and values [T, HEAD]."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    along, head = tl.arange(0, BK), tl.arange(0, HEAD)
    q = tl.zeros((BM, HEAD), dtype=tl.float32)
    for k in range(0, D, BK):
        inside = k + along < D
        tokens = tl.load(
            x + rows[:, None] * D + (k + along)[None, :], mask=(rows[:, None] < T) & inside[None, :], other=0.0
        )
        weight = tl.load(wq + head[:, None] * D + (k + along)[None, :], mask=inside[None, :], other=0.0)
        q += tl.dot(tokens, weight.T)
    query = (q * SCALE).to(tl.float16)
    highest = tl.full((BM,), float("-inf"), dtype=tl.float32)
    norm = tl.zeros((BM,), dtype=tl.float32)
    total = tl.zeros((BM, HEAD), dtype=tl.float32)
    for first in range(0, T, BN):
        places = first + tl.arange(0, BN)
        key = tl.load(keys + places[None, :] * HEAD + head[:, None], mask=places[None, :] < T, other=0.0)
        scores = tl.dot(query, key)
        scores = tl.where(places[None, :] < T, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(highest - higher)
        norm = norm * shrink + tl.sum(weights, 1)
        total = total * shrink[:, None]
        value = tl.load(values + places[:, None] * HEAD + head[None, :], mask=places[:, None] < T, other=0.0)
        total = tl.dot(weights.to(tl.float16), value, total)
        highest = higher
    tl.store(out + rows[:, None] * HEAD + head[None, :], total / norm[:, None], mask=rows[:, None] < T)


def _attention(draw: Draw, s: Sizes) -> Call:
    x, wq, keys, values = draw.dense(s.m, s.k), draw.pruned(64, s.k), draw.dense(s.m, 64), draw.dense(s.m, 64)
    scale = float(1.0 / np.sqrt(64.0 * s.k) * np.log2(np.e))

    def expected() -> dict[str, Array]:
        q = (x.astype(np.float64) @ wq.astype(np.float64).T * scale).astype(np.float16).astype(np.float64)
        scores = np.exp2(q @ keys.astype(np.float64).T)
        return {"out": scores @ values.astype(np.float64) / scores.sum(1, keepdims=True)}

    return Call(
        {
            "out": np.empty((s.m, 64), np.float32),
            "x": x,
            "wq": wq,
            "keys": keys,
            "values": values,
            "T": s.m,
            "D": s.k,
            "SCALE": scale,
            "HEAD": 64,
        },
        expected,
        outputs=("out",),
        sparse=("wq",),
        grid=(s.grid[0],),
        operations=2.0 * s.m * 64 * (s.k + 2 * s.m),
    )


@triton.jit
def low_rank(y, x, w, a, b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, RANK: tl.constexpr):
    """x · wᵀ + (x · aᵀ) · bᵀ: w [N, K] sparse, a [RANK, K], b [N, RANK]."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.program_id(1) * BN + tl.arange(0, BN)
    kk, rr = tl.arange(0, BK), tl.arange(0, RANK)
    px, pw, pa = x + row[:, None] * K + kk, w + col[:, None] * K + kk, a + rr[:, None] * K + kk
    full = tl.zeros((BM, BN), dtype=tl.float32)
    low = tl.zeros((BM, RANK), dtype=tl.float32)
    for i in range(tl.cdiv(K, BK)):
        rest = K - i * BK
        tx = tl.load(px, mask=(row[:, None] < M) & (kk[None, :] < rest), other=0.0)
        tw = tl.load(pw, mask=(col[:, None] < N) & (kk[None, :] < rest), other=0.0)
        ta = tl.load(pa, mask=kk[None, :] < rest, other=0.0)
        full += tl.dot(tx, tl.trans(tw))
        low += tl.dot(tx, tl.trans(ta))
        px += BK
        pw += BK
        pa += BK
    tb = tl.load(b + col[None, :] * RANK + rr[:, None], mask=col[None, :] < N, other=0.0)
    full = tl.dot(low.to(tl.float16), tb, full)
    tl.store(y + row[:, None] * N + col[None, :], full.to(tl.float16), mask=(row[:, None] < M) & (col[None, :] < N))


def _low_rank(draw: Draw, s: Sizes) -> Call:
    x, w, a, b = draw.dense(s.m, s.k), draw.pruned(s.n, s.k), draw.dense(32, s.k), draw.dense(s.n, 32)
    a = (a / np.sqrt(np.float16(s.k))).astype(np.float16)

    def expected() -> dict[str, Array]:
        wide = x.astype(np.float64)
        low = (wide @ a.astype(np.float64).T).astype(np.float16).astype(np.float64)
        return {"y": wide @ w.astype(np.float64).T + low @ b.astype(np.float64).T}

    return Call({"y": np.empty((s.m, s.n), np.float16), "x": x, "w": w, "a": a, "b": b, "RANK": 32}, expected)


@triton.jit
def two_layers(y, x, up, down, M, K, H, OUT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Relu(x · upᵀ) · downᵀ, BN hidden columns at a time: up [H, K] and down [OUT, H] sparse."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    o, kk = tl.arange(0, OUT), tl.arange(0, BK)
    result = tl.zeros((BM, OUT), dtype=tl.float32)
    for start in range(0, H, BN):
        h = start + tl.arange(0, BN)
        hidden = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            left = tl.load(
                x + m[:, None] * K + k + kk[None, :], mask=(m[:, None] < M) & (k + kk[None, :] < K), other=0.0
            )
            right = tl.load(
                up + h[:, None] * K + k + kk[None, :], mask=(h[:, None] < H) & (k + kk[None, :] < K), other=0.0
            )
            hidden = tl.dot(left, right.T, hidden)
        active = tl.maximum(hidden, 0.0).to(tl.float16)
        second = tl.load(down + o[:, None] * H + h[None, :], mask=h[None, :] < H, other=0.0)
        result = tl.dot(active, second.T, result)
    tl.store(y + m[:, None] * OUT + o[None, :], result, mask=m[:, None] < M)


def _two_layers(draw: Draw, s: Sizes) -> Call:
    x, up, down = draw.dense(s.m, s.k), draw.pruned(s.n, s.k), draw.pruned(64, s.n)
    up = (up / np.sqrt(np.float16(s.k))).astype(np.float16)

    def expected() -> dict[str, Array]:
        hidden = np.maximum(x.astype(np.float64) @ up.astype(np.float64).T, 0).astype(np.float16)
        return {"y": hidden.astype(np.float64) @ down.astype(np.float64).T}

    return Call(
        {"y": np.empty((s.m, 64), np.float32), "x": x, "up": up, "down": down, "H": s.n, "OUT": 64},
        expected,
        sparse=("up", "down"),
        grid=(s.grid[0],),
        operations=2.0 * s.m * s.n * (s.k + 64),
    )


@triton.jit
def gate_and_up(y, gate, up, x, z, M, N, K, z_stride, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Silu(gate · x) · (up · z): gate and up [M, K] sparse, x and z [K, N], rows of z `z_stride` elements apart."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    kk = tl.arange(0, BK)
    at = m[:, None] * K + kk[None, :]
    one = tl.zeros((BM, BN), dtype=tl.float32)
    two = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        keep = (m[:, None] < M) & (kk[None, :] < K - k)
        inside = (k + kk[:, None] < K) & (n[None, :] < N)
        first = tl.load(x + (k + kk)[:, None] * N + n[None, :], mask=inside, other=0.0)
        second = tl.load(z + (k + kk)[:, None] * z_stride + n[None, :], mask=inside, other=0.0)
        one += tl.dot(tl.load(gate + at + k, mask=keep, other=0.0), first)
        two += tl.dot(tl.load(up + at + k, mask=keep, other=0.0), second)
    both = one * tl.sigmoid(one) * two
    tl.store(y + m[:, None] * N + n[None, :], both.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


def _gate_and_up(draw: Draw, s: Sizes, odd: int = 0) -> Call:
    small = np.sqrt(np.float16(s.k))
    gate, up = ((draw.pruned(s.m, s.k) / small).astype(np.float16) for _ in range(2))
    x, z = draw.dense(s.k, s.n), draw.dense(s.k, s.n + odd)

    def expected() -> dict[str, Array]:
        one = gate.astype(np.float64) @ x.astype(np.float64)
        two = up.astype(np.float64) @ z[:, : s.n].astype(np.float64)
        return {"y": one / (1 + np.exp(-one)) * two}

    return Call(
        {"y": np.empty((s.m, s.n), np.float16), "gate": gate, "up": up, "x": x, "z": z, "z_stride": s.n + odd},
        expected,
        sparse=("gate", "up"),
        operations=4.0 * s.m * s.n * s.k,
    )


def _odd_rows(draw: Draw, s: Sizes) -> Call:
    return _gate_and_up(draw, s, odd=1)


@triton.jit
def running_scale(y, w, x, scales, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A product whose sum so far is scaled before each step: acc = acc · scales[i, m] + w_i · x_i."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(tl.cdiv(K, BK)):
        left = tl.load(
            w + m[:, None] * K + (i * BK + k)[None, :], mask=(m[:, None] < M) & (i * BK + k[None, :] < K), other=0.0
        )
        right = tl.load(
            x + (i * BK + k)[:, None] * N + n[None, :], mask=(i * BK + k[:, None] < K) & (n[None, :] < N), other=0.0
        )
        scale = tl.load(scales + i * M + m, mask=m < M, other=0.0)
        acc = acc * scale[:, None]
        acc = tl.dot(left, right, acc)
    tl.store(y + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


def _running_scale(draw: Draw, s: Sizes) -> Call:
    w, x = draw.pruned(s.m, s.k), draw.dense(s.k, s.n)
    scales = draw.dense(-(-s.k // s.BK), s.m, element="f32")

    def expected() -> dict[str, Array]:
        total = np.zeros((s.m, s.n))
        for i, k in enumerate(range(0, s.k, s.BK)):
            part = w[:, k : k + s.BK].astype(np.float64) @ x[k : k + s.BK].astype(np.float64)
            total = total * scales[i][:, None] + part
        return {"y": total}

    return Call({"y": np.empty((s.m, s.n), np.float32), "w": w, "x": x, "scales": scales}, expected)


@triton.jit
def store_in_loop(y, seen, w, x, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A product that also stores the sums of x over each step: seen [steps, N]."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(tl.cdiv(K, BK)):
        left = tl.load(
            w + m[:, None] * K + (i * BK + k)[None, :], mask=(m[:, None] < M) & (i * BK + k[None, :] < K), other=0.0
        )
        right = tl.load(
            x + (i * BK + k)[:, None] * N + n[None, :], mask=(i * BK + k[:, None] < K) & (n[None, :] < N), other=0.0
        )
        acc = tl.dot(left, right, acc)
        tl.store(seen + i * N + n, tl.sum(right.to(tl.float32), 0), mask=(n < N) & (tl.program_id(0) == 0))
    tl.store(y + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


def _store_in_loop(draw: Draw, s: Sizes) -> Call:
    w, x = draw.pruned(s.m, s.k), draw.dense(s.k, s.n)
    steps = -(-s.k // s.BK)

    def expected() -> dict[str, Array]:
        wide = x.astype(np.float64)
        sums = np.stack([wide[i * s.BK : (i + 1) * s.BK].sum(0) for i in range(steps)])
        return {"y": w.astype(np.float64) @ wide, "seen": sums}

    return Call(
        {"y": np.empty((s.m, s.n), np.float32), "seen": np.empty((steps, s.n), np.float32), "w": w, "x": x},
        expected,
        outputs=("y", "seen"),
    )


@triton.jit
def ahead_by_hand(y, w, x, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A product that loads the next step's operands before it multiplies this step's."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    pw, px = w + m[:, None] * K + k[None, :], x + k[:, None] * N + n[None, :]
    left = tl.load(pw, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
    right = tl.load(px, mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        pw += BK
        px += BK * N
        rest = K - first - BK
        next_left = tl.load(pw, mask=(m[:, None] < M) & (k[None, :] < rest), other=0.0)
        next_right = tl.load(px, mask=(k[:, None] < rest) & (n[None, :] < N), other=0.0)
        acc = tl.dot(left, right, acc)
        left = next_left
        right = next_right
    tl.store(y + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


def _product(draw: Draw, s: Sizes) -> Call:
    w, x = draw.pruned(s.m, s.k), draw.dense(s.k, s.n)
    return Call(
        {"y": np.empty((s.m, s.n), np.float32), "w": w, "x": x},
        lambda: {"y": w.astype(np.float64) @ x.astype(np.float64)},
    )


@triton.jit
def chunked_state(out, x, wq, keys, values, T, D, BM: tl.constexpr, BK: tl.constexpr, HEAD: tl.constexpr):
    """Linear attention, BM tokens at a time: q = x · wqᵀ, out = q · state + tril(q · keysᵀ) · values, state += keysᵀ · values."""
    head, along = tl.arange(0, HEAD), tl.arange(0, BK)
    step = tl.arange(0, BM)
    state = tl.zeros((HEAD, HEAD), dtype=tl.float32)
    for first in range(0, T, BM):
        rows = first + step
        q = tl.zeros((BM, HEAD), dtype=tl.float32)
        for k in range(0, D, BK):
            tokens = tl.load(
                x + rows[:, None] * D + (k + along)[None, :],
                mask=(rows[:, None] < T) & (k + along[None, :] < D),
                other=0.0,
            )
            weight = tl.load(wq + head[:, None] * D + (k + along)[None, :], mask=k + along[None, :] < D, other=0.0)
            q = tl.dot(tokens, weight.T, q)
        key = tl.load(keys + rows[:, None] * HEAD + head[None, :], mask=rows[:, None] < T, other=0.0)
        value = tl.load(values + rows[:, None] * HEAD + head[None, :], mask=rows[:, None] < T, other=0.0)
        query = q.to(tl.float16)
        scores = tl.where(step[:, None] >= step[None, :], tl.dot(query, key.T), 0.0)
        found = tl.dot(scores.to(tl.float16), value)
        found = tl.dot(query, state.to(tl.float16), found)
        state = tl.dot(key.T, value, state)
        tl.store(out + rows[:, None] * HEAD + head[None, :], found, mask=rows[:, None] < T)


def _chunked_state(draw: Draw, s: Sizes) -> Call:
    x, wq, keys, values = draw.dense(s.m, s.k), draw.pruned(64, s.k), draw.dense(s.m, 64), draw.dense(s.m, 64)
    wq, keys = (wq / np.sqrt(np.float16(s.k))).astype(np.float16), (keys / np.float16(8)).astype(np.float16)

    def expected() -> dict[str, Array]:
        q = (x.astype(np.float64) @ wq.astype(np.float64).T).astype(np.float16).astype(np.float64)
        return {"out": np.tril(q @ keys.astype(np.float64).T) @ values.astype(np.float64)}

    return Call(
        {
            "out": np.empty((s.m, 64), np.float32),
            "x": x,
            "wq": wq,
            "keys": keys,
            "values": values,
            "T": s.m,
            "D": s.k,
            "HEAD": 64,
        },
        expected,
        outputs=("out",),
        sparse=("wq",),
        grid=(1,),
        operations=2.0 * s.m * 64 * (s.k + 2 * s.BM + 128),
    )


LARGE = (Sizes(4096, 4096, 4096, 128, 128, 64),)
LONG = (Sizes(4096, 64, 4096, 128, 64, 64),)

FORMS = (
    Form(
        "attention of a projection",
        projected_attention,
        _attention,
        Sizes(144, 64, 272, 64, 64, 64),
        LONG,
        kind="attention",
    ),
    Form("low-rank addition", low_rank, _low_rank, Sizes(80, 144, 272, 64, 64, 64), LARGE),
    Form("two layers", two_layers, _two_layers, Sizes(80, 144, 272, 64, 64, 64), LONG),
    Form("gate and up", gate_and_up, _gate_and_up, Sizes(144, 80, 272, 64, 64, 64), LARGE),
    Form("gate and up, odd rows", gate_and_up, _odd_rows, Sizes(144, 80, 272, 64, 64, 64), LARGE),
    Form("gate and up, narrow steps", gate_and_up, _gate_and_up, Sizes(144, 80, 272, 64, 64, 32), LARGE),
    Form("running scale", running_scale, _running_scale, Sizes(144, 80, 272, 64, 64, 64), LARGE),
    Form("store in the loop", store_in_loop, _store_in_loop, Sizes(144, 80, 272, 64, 64, 64), LARGE),
    Form("ahead by hand", ahead_by_hand, _product, Sizes(144, 80, 272, 64, 64, 64), LARGE),
    Form("chunked state", chunked_state, _chunked_state, Sizes(144, 64, 272, 64, 64, 64), LONG, kind="attention"),
)
