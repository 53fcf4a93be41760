"""Small kernels of one operation each, on vectors of n numbers in a tile of B. Triton must be installed to import these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray
from triton.language.extra import libdevice


@triton.jit
def product_of(a, b):
    return a * b


@triton.jit(noinline=True)
def inner(a, b):
    return a * 2 + b


@triton.jit(noinline=True)
def outer(a):
    return inner(a, 3), a


@triton.jit
def operation(out, x, y, n, OPERATION: tl.constexpr, B: tl.constexpr):
    r = tl.arange(0, B)
    a = tl.load(x + r, mask=r < n, other=0.0)
    b = tl.load(y + r, mask=r < n, other=1.0)
    rows = tl.reshape(a, (B // 16, 16))
    i = (a * 1000.0).to(tl.int32)
    v = a
    if OPERATION == "cumprod":
        v = tl.cumprod(b, 0, reverse=True)
    elif OPERATION == "cumsum of columns":
        v = tl.ravel(tl.cumsum(rows, 0, reverse=True))
    elif OPERATION == "scan of integers":
        v = tl.cumsum(i.to(tl.int64), 0).to(tl.float32)
    elif OPERATION == "gather of rows":
        places = tl.broadcast_to(((tl.arange(0, 4) * 3 + 1) % (B // 16))[:, None], (4, 16))
        v = a + tl.sum(tl.gather(rows, places, 0) * tl.gather(rows, places.to(tl.int64), 0))
    elif OPERATION == "cat":
        v = tl.cat(a, b, can_reorder=True)
        v = a * tl.sum(v, 0)
    elif OPERATION == "histogram":
        counts = tl.histogram(r % 5, 8)
        v = a * tl.sum(counts * tl.arange(0, 8) * tl.arange(0, 8), 0)
    elif OPERATION == "sort":
        v = tl.sort(a)
    elif OPERATION == "topk":
        v = b * tl.sum(tl.topk(a, 4), 0)
    elif OPERATION == "xor":
        v = b * (tl.xor_sum(i, 0) & 0xFF)
    elif OPERATION == "reduction by a product":
        v = b * tl.reduce(tl.reshape(b, (B // 16, 16)), None, product_of)
    elif OPERATION == "tests":
        odd = tl.where(r % 3 == 0, float("inf"), tl.where(r % 3 == 1, float("nan"), a))
        v = (libdevice.isnan(odd).to(tl.int32) * 4 + libdevice.isinf(odd).to(tl.int32) * 2).to(tl.float32)
        v += libdevice.finitef(odd).to(tl.float32) + 8.0 * libdevice.signbit(a).to(tl.float32)
    elif OPERATION == "rounding":
        v = libdevice.round(a) + 16.0 * libdevice.rint(b) + 256.0 * libdevice.float2int_rd(a) + libdevice.trunc(b)
    elif OPERATION == "angles":
        v = libdevice.atan2(a, b) + libdevice.hypot(a, 2.0 * b) + libdevice.asinh(a)
        v += libdevice.acos(libdevice.saturatef(a)) + libdevice.atanh(0.25 * tl.sin(a))
    elif OPERATION == "powers":
        v = (
            libdevice.fast_powf(tl.abs(a) + 0.5, b)
            + libdevice.pow(b, 5)
            + libdevice.float2uint_rn(tl.abs(a)).to(tl.float32)
        )
    elif OPERATION == "small powers":
        v = libdevice.pow(a, 2) + libdevice.pow(a, 3) + libdevice.pow(b, 4.0)
    elif OPERATION == "upper half":
        v = tl.umulhi(i.to(tl.uint32, bitcast=True), 0x9E3779B9).to(tl.float32) + libdevice.mulhi(i, i * 65536)
    elif OPERATION == "pointers":
        v = tl.load(tl.where(r % 2 == 0, x, y) + r, mask=r < n, other=0.0)
    elif OPERATION == "bits through a pointer":
        v = tl.load(x.to(tl.pointer_type(tl.int32), bitcast=True) + r, mask=r < n, other=0).to(tl.float32, bitcast=True)
    elif OPERATION == "distance":
        v = ((x + r).to(tl.int64) - x.to(tl.int64)).to(tl.float32)
    elif OPERATION == "calls":
        twice, same = outer(n)
        v = a * twice + same
    elif OPERATION == "random":
        v = tl.rand(7, r)
    tl.store(out + r, v, mask=r < n)


Array = NDArray[Any]


def _uniform(seed: int, count: int) -> Array:
    """Philox 4×32 of ten rounds, its first number as Triton makes one in [0, 1) of it."""
    words = np.zeros((4, count), np.uint64)
    words[0] = np.arange(count)
    low = np.uint64(0xFFFFFFFF)
    key = [seed, 0]
    for _ in range(10):
        first, third = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        shift = np.uint64(32)
        words = np.stack(
            [
                third >> shift ^ words[1] ^ np.uint64(key[0]),
                third & low,
                first >> shift ^ words[3] ^ np.uint64(key[1]),
                first & low,
            ]
        )
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    signed = words[0].astype(np.uint32).view(np.int32).astype(np.int64)
    return np.where(signed < 0, -signed - 1, signed) * 4.6566127342e-10


def _rows(x: Array) -> Array:
    return x.reshape(-1, 16)


def _codes(x: Array, y: Array) -> Array:
    kind = np.arange(x.size) % 3
    return np.select([kind == 0, kind == 1], [2.0, 4.0], 1.0) + 8.0 * np.signbit(x)


def _halves(x: Array, y: Array) -> Array:
    i = _whole(x)
    signed = i.astype(np.int64) * (i.astype(np.int64) * 65536 % 2**32).astype(np.uint32).view(np.int32) >> 32
    return ((i.view(np.uint32).astype(np.uint64) * 0x9E3779B9) >> 32).astype(np.float64) + signed


def _whole(x: Array) -> Array:
    return np.trunc(x.astype(np.float32) * np.float32(1000)).astype(np.int32)


def _gathered(x: Array, y: Array) -> Array:
    taken = _rows(x)[(np.arange(4) * 3 + 1) % (x.size // 16)]
    return x + (taken * taken).sum()


def _rounded(x: Array, y: Array) -> Array:
    away = np.trunc(x) + np.where(np.abs(x - np.trunc(x)) >= 0.5, np.sign(x), 0)
    return away + 16 * np.rint(y) + 256 * np.floor(x) + np.trunc(y)


OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "cumprod": lambda x, y: np.cumprod(y[::-1])[::-1],
    "cumsum of columns": lambda x, y: np.cumsum(_rows(x)[::-1], 0)[::-1].ravel(),
    "scan of integers": lambda x, y: np.cumsum(_whole(x).astype(np.int64)).astype(np.float64),
    "gather of rows": _gathered,
    "cat": lambda x, y: x * (x.sum() + y.sum()),
    "histogram": lambda x, y: x * sum((np.arange(x.size) % 5 == k).sum() * k * k for k in range(5)),
    "sort": lambda x, y: np.sort(x),
    "topk": lambda x, y: y * np.sort(x)[-4:].sum(),
    "xor": lambda x, y: y * (np.bitwise_xor.reduce(_whole(x)) & 0xFF),
    "reduction by a product": lambda x, y: y * y.prod(),
    "tests": _codes,
    "rounding": _rounded,
    "angles": lambda x, y: (
        np.arctan2(x, y) + np.hypot(x, 2 * y) + np.arcsinh(x) + np.arccos(np.clip(x, 0, 1)) + np.arctanh(np.sin(x) / 4)
    ),
    "powers": lambda x, y: (np.abs(x) + 0.5) ** y + y**5 + np.rint(np.abs(x)),
    "small powers": lambda x, y: x**2 + x**3 + y**4,
    "upper half": _halves,
    "pointers": lambda x, y: np.where(np.arange(x.size) % 2 == 0, x, y),
    "bits through a pointer": lambda x, y: x,
    "distance": lambda x, y: 4.0 * np.arange(x.size),
    "calls": lambda x, y: x * (2 * 100 + 3) + 100,
    "random": lambda x, y: _uniform(7, x.size),
}
"""The result of each on both vectors in float64, behind their ends as the masks say."""


@triton.jit
def relay(locks, out, n, FORWARDS: tl.constexpr, B: tl.constexpr):
    """Each program adds 1 to what its neighbour has left, by the flag that the neighbour sets."""
    p = tl.program_id(0) if FORWARDS else tl.num_programs(0) - 1 - tl.program_id(0)
    r = tl.arange(0, B)
    v = tl.zeros((B,), tl.float32)
    if p > 0:
        while tl.atomic_add(locks + p - 1, 0) != 1:
            pass
        v = tl.load(out + (p - 1) * n + r, mask=r < n, other=0.0)
    tl.store(out + p * n + r, v + 1.0, mask=r < n)
    tl.debug_barrier()
    tl.atomic_xchg(locks + p, 1)


@triton.jit
def flags(locks, out, n, CACHED: tl.constexpr, B: tl.constexpr):
    """Each program adds 1 to what the one before has left, by the flag that it stores. It stores before it waits, too."""
    p, r = tl.program_id(0), tl.arange(0, B)
    v = tl.zeros((B,), tl.float32)
    tl.store(out + p * n + r, -1.0, mask=r < n)
    if p > 0:
        while tl.load(locks + p - 1, volatile=True) != 1:
            pass
        v = tl.load(out + (p - 1) * n + r, mask=r < n, other=0.0, cache_modifier=CACHED)
    tl.store(out + p * n + r, v + 1.0, mask=r < n)
    tl.debug_barrier()
    tl.store(locks + p, 1)


@triton.jit
def unordered(locks, out, n, B: tl.constexpr):
    """The second program may read before the first one has stored: their atomics do not order anything."""
    r = tl.arange(0, B)
    if tl.program_id(0) == 0:
        tl.store(out + r, 1.0, mask=r < n)
        tl.atomic_xchg(locks, 1, sem="relaxed")
    else:
        while tl.atomic_add(locks, 0, sem="relaxed") != 1:
            pass
        tl.store(out + n + r, tl.load(out + r, mask=r < n, other=0.0), mask=r < n)


@triton.jit
def waits(locks, out):
    while tl.atomic_cas(locks, 1, 2) != 1:
        pass
    tl.store(out + tl.program_id(0), 1.0)


@triton.jit
def reports(flag, out, steps):
    """Most updates change nothing, and nothing reads what they return: no program waits for another one."""
    for step in range(steps):
        tl.atomic_or(flag, step & 3)
    tl.store(out + tl.program_id(0), 1.0)


@triton.jit
def prints(out, x):
    tl.device_print("x", tl.load(x))
    tl.store(out, tl.load(x))


@triton.jit
def table(out, x):
    tl.store(out, tl.load(tl.load(x).to(tl.pointer_type(tl.float32))))


@triton.jit
def bessel(out, x):
    tl.store(out, libdevice.j0(tl.load(x)))


@triton.jit
def quadrupled(out, x):
    tl.store(out, libdevice.ldexp(tl.load(x), 2))


@triton.jit
def calls_itself(out, x):
    tl.store(out, recursive(tl.load(x)))


@triton.jit(noinline=True)
def recursive(a):
    if a > 0.0:
        return a
    return a + 1.0
