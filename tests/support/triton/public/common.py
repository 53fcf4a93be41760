"""What these forms share: places of tiles, the operands of a product, numbers of programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Array, Call, Draw, Sizes, wide

MODEL = Sizes(4096, 4096, 4096, 128, 128, 64)
"""A product of a model."""

SMALL = Sizes(40, 56, 144, 32, 32, 64)
"""Tails in every dimension."""


@triton.jit
def place_in_group(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    """The row and the column of a tile, GROUP rows of tiles in turn: counted inside the group."""
    in_group = GROUP * tiles_n
    first = tile // in_group * GROUP
    rows = min(tiles_m - first, GROUP)
    return first + tile % in_group % rows, tile % in_group // rows


@triton.jit
def place_by_rest(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    """The same, with the row counted from the first tile of all."""
    in_group = GROUP * tiles_n
    first = tile // in_group * GROUP
    rows = min(tiles_m - first, GROUP)
    return first + tile % rows, tile % in_group // rows


def programs(s: Sizes, few: int = 3) -> int:
    """Of a persistent kernel: an H200's SMs, or so few that each takes several tiles."""
    return 132 if s.m * s.n > 2**20 else few


def sigmoid(value: Array) -> Array:
    return 1 / (1 + np.exp(-value))


def silu(value: Array) -> Array:
    return value * sigmoid(value)


def swapped(array: Array) -> Array:
    """The last two axes swapped in memory."""
    return np.ascontiguousarray(array.swapaxes(-1, -2))


STRIDES = ("stride_xm", "stride_xk", "stride_wk", "stride_wn", "stride_ym", "stride_yn")


def strides_of(s: Sizes, *, columns: bool = False) -> dict[str, int]:
    """`STRIDES` of x [M, K], w [N, K] and y [M, N]. columns: w is [K, N]."""
    of_w = (s.n, 1) if columns else (1, s.k)
    return dict(zip(STRIDES, (s.k, 1, *of_w, s.n, 1), strict=True))


def product(
    draw: Draw,
    s: Sizes,
    *,
    columns: bool = False,
    element: str = "f16",
    out: type = np.float16,
    after: Callable[[Array], Array] | None = None,
    grid: Callable[[Sizes], tuple[int, ...]] | None = None,
    strides: Sequence[str] = STRIDES,
    zeroed: bool = False,
    **more: Any,
) -> Call:
    """y [M, N] = x [M, K] by w [N, K]. columns: w is [K, N], pruned along K. after: what the kernel does to the product.

    strides: those that the kernel takes. more: other arguments, or functions of the sizes that make them.
    """
    x, rows = draw.dense(s.m, s.k, element=element), draw.pruned(s.n, s.k, element=element)
    more = {name: value(s) if callable(value) else value for name, value in more.items()}
    known = strides_of(s, columns=columns)
    more |= {name: known[name] for name in strides}

    def expected() -> dict[str, Array]:
        made = wide(x) @ wide(rows).T
        return {"y": made if after is None else after(made)}

    def library(given: Any) -> Any:
        return given["x"] @ (given["w"] if columns else given["w"].T)

    return Call(
        {"x": x, "w": swapped(rows) if columns else rows, "y": np.empty((s.m, s.n), out), **more},
        expected,
        axes={"w": -2} if columns else {},
        grid=() if grid is None else grid(s),
        zeroed=zeroed,
        library=library,
    )
