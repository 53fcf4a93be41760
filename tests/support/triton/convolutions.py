"""Convolutions as products: a row is a place of the image, a column is a place of the filter."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def channels_first(x, w, y, C, H, W, OUT, OH, OW, KH, KW, sc, sh, sw, so, si, skh, skw, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """y[p, o] = sum over c, h, w of x[c, p // OW + h, p % OW + w] · w[o, c, h, w], with all strides as arguments."""
    place = tl.program_id(0) * BM + tl.arange(0, BM)
    out = tl.program_id(1) * BN + tl.arange(0, BN)
    row, column = place // OW, place % OW
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, C * KH * KW, BK):
        k = first + tl.arange(0, BK)
        c, rest = k // (KH * KW), k % (KH * KW)
        h, v = rest // KW, rest % KW
        inside = (place < OH * OW)[:, None] & (k < C * KH * KW)[None, :]
        at = c[None, :] * sc + (row[:, None] + h[None, :]) * sh + (column[:, None] + v[None, :]) * sw
        image = tl.load(x + at, inside, 0.0)
        weights = w + out[None, :] * so + c[:, None] * si + h[:, None] * skh + v[:, None] * skw
        filters = tl.load(weights, (k < C * KH * KW)[:, None] & (out < OUT)[None, :], 0.0)
        acc += tl.dot(image, filters)
    tl.store(y + place[:, None] * OUT + out[None, :], acc, (place < OH * OW)[:, None] & (out < OUT)[None, :])


@triton.jit
def channels_last(x, w, y, C, H, W, OUT, OH, OW, so, KH: tl.constexpr, KW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """The same of x[h, w, c] with a border of zeros and w[o, h, w, c], one tap of the filter at a time."""
    place = tl.program_id(0) * BM + tl.arange(0, BM)
    out = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for h in range(KH):
        for v in range(KW):
            row, column = place // OW + h - 1, place % OW + v - 1
            inside = (place < OH * OW) & (row >= 0) & (row < H) & (column >= 0) & (column < W)
            for first in range(0, C, BK):
                c = first + tl.arange(0, BK)
                at = (row[:, None] * W + column[:, None]) * C + c[None, :]
                image = tl.load(x + at, inside[:, None] & (c < C)[None, :], 0.0)
                weights = w + out[None, :] * so + (h * KW + v) * C + c[:, None]
                filters = tl.load(weights, (c < C)[:, None] & (out < OUT)[None, :], 0.0)
                acc += tl.dot(image, filters)
    tl.store(y + place[:, None] * OUT + out[None, :], acc, (place < OH * OW)[:, None] & (out < OUT)[None, :])


@triton.jit
def by_digits(x, w, y, C, W, OUT, OH, OW, KH, KW, sc, si, skh, LEFT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """The same as `channels_first`, with filters that wrap, masked by channel, row and column. The last LEFT columns are left out."""
    place = tl.program_id(0) * BM + tl.arange(0, BM)
    out = tl.program_id(1) * BN + tl.arange(0, BN)
    row, column = place // OW, place % OW
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(C * KH * KW, BK)):
        k = step * BK + tl.arange(0, BK)
        c, h, v = k // (KH * KW), (k // KW) % KH, k % KW
        inside = (c < C) & (h < KH) & (v < KW - LEFT)
        at = c[None, :] * sc + (row[:, None] + h[None, :]) * W + column[:, None] + v[None, :]
        image = tl.load(x + at, (place < OH * OW)[:, None] & inside[None, :], 0.0)
        weights = (out % OUT)[None, :] * (C * KH * KW) + (c * si + h * skh + v)[:, None]
        acc += tl.dot(image, tl.load(w + weights, inside[:, None], 0.0))
    tl.store(y + place[:, None] * OUT + out[None, :], acc, (place < OH * OW)[:, None] & (out < OUT)[None, :])


@triton.jit
def in_two_arms(x, w, y, C, H, W, OUT, first, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y[p, o] = sum over c of x[p, c] · w[o, c] on the border of an image. Odd programs subtract, and begin at another channel."""
    place = tl.program_id(0) * BM + tl.arange(0, BM)
    out = tl.arange(0, BN)
    row, column = place // W, place % W
    border = (row < 1) | (row > H - 2) | (column < 1) | (column > W - 2)
    acc = tl.zeros((BM, BN), tl.float32)
    if tl.program_id(0) % 2 == 0:
        for c in range(0, C, BK):
            k = c + tl.arange(0, BK)
            image = tl.load(x + place[:, None] * C + k[None, :], border[:, None] & (k < C)[None, :], 0.0)
            acc += tl.dot(
                image, tl.load(w + out[None, :] * C + k[:, None], (k < C)[:, None] & (out < OUT)[None, :], 0.0)
            )
    else:
        for c in range(first, C, BK):
            k = c + tl.arange(0, BK)
            image = tl.load(x + place[:, None] * C + k[None, :], border[:, None] & (k < C)[None, :], 0.0)
            acc -= tl.dot(
                image, tl.load(w + out[None, :] * C + k[:, None], (k < C)[:, None] & (out < OUT)[None, :], 0.0)
            )
    tl.store(y + place[:, None] * OUT + out[None, :], acc, (place < H * W)[:, None] & (out < OUT)[None, :])


@triton.jit
def by_taps(x, w, y, C, L, OUT, TAPS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y[p, o] = sum over t, c of x[p + t, c] · w[o, c, t], along one axis. Channels follow one another in the sum, not in memory."""
    place = tl.program_id(0) * BM + tl.arange(0, BM)
    out = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, C * TAPS, BK):
        k = first + tl.arange(0, BK)
        c, t = k % C, k // C
        inside = (place[:, None] + t[None, :] < L) & (k < C * TAPS)[None, :]
        image = tl.load(x + (place[:, None] + t[None, :]) * C + c[None, :], inside, 0.0)
        weights = w + (out[None, :] * C + c[:, None]) * TAPS + t[:, None]
        filters = tl.load(weights, (k < C * TAPS)[:, None] & (out < OUT)[None, :], 0.0)
        acc += tl.dot(image, filters)
    tl.store(y + place[:, None] * OUT + out[None, :], acc, (place <= L - TAPS)[:, None] & (out < OUT)[None, :])
