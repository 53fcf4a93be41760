"""The warpgroup products that the hardware is asked about: assembled on any machine, run where there is a GPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import numpy as np

from louver.isa.wgmma import ACCUMULATORS, Wgmma
from support.warpgroup import Product, make_product

SIZES = (8, 24, 64, 128, 256)
"""Values of n: the least, an odd multiple of 8, and those that kernels use."""

KINDS = [
    (a, b, d, sparse, source)
    for (a, b), accumulators in ACCUMULATORS.items()
    for d in accumulators
    for sparse in (True, False)
    for source in ("shared", "registers")
]
FLAGS = list(itertools.product((False, True), repeat=2))

Make = Callable[[np.random.Generator], Product]


def of_kind(a: str, b: str, d: str, sparse: bool, source: str) -> list[Make]:
    """One kind of product, every size; steps alternate the selectors where there are two."""
    return [partial(make_product, Wgmma(n, a, b, d, sparse, source)) for n in SIZES]


def of_layouts(name: str, sparse: bool) -> list[Make]:
    """16-bit operands of both majors, all swizzles: N-major B among them, as the product kernels read it."""
    return [
        partial(
            make_product,
            Wgmma(n, name, name, "f32", sparse, transpose_a=ta, transpose_b=tb),
            swizzle_a=sa,
            swizzle_b=sb,
        )
        for n in (64, 128, 256)
        for ta, tb in FLAGS
        for sa, sb in ((128, 128), (64, 128), (64, 64), (32, 128), (0, 0), (128, 0), (0, 64), (32, 32))
        # A sparse product reads 64 bytes along K of a K-major B.
        if not (sparse and not tb and sb == 32)
    ]


def of_narrow_types() -> list[Make]:
    """8-bit types and tf32, K-major, all swizzles."""
    return [
        partial(make_product, Wgmma(n, name, name, d, sparse), swizzle_a=sa, swizzle_b=sb)
        for name, d in (("e4m3", "f32"), ("tf32", "f32"), ("s8", "s32"))
        for sparse in (True, False)
        for n in (16, 192)
        for sa, sb in ((128, 64), (64, 128), (32, 64), (0, 0))
    ]


def of_signs() -> list[Make]:
    """Negated operands, from both sources."""
    return [
        partial(make_product, Wgmma(48, name, name, "f32", sparse, source, na, nb))
        for name in ("f16", "bf16", "tf32", "e5m2")
        for sparse in (True, False)
        for source in ("shared", "registers")
        for na, nb in FLAGS[1:]
    ]


def of_saturation() -> list[Make]:
    """Integer products that run over, wrapping and saturating."""
    return [
        partial(make_product, Wgmma(32, a, b, "s32", sparse, source, satfinite=saturate))
        for a in ("s8", "u8")
        for b in ("s8", "u8")
        for sparse in (True, False)
        for source in ("shared", "registers")
        for saturate in (False, True)
    ]
