"""The kept elements of a dense product, for gradients of a sparse weight's values.

The product itself is dense: a GPU multiplies 2:4 along the tokens only, which are no axis of the mask. Blocks of rows
bound the memory of the dense product, and a kernel writes the kept elements of each block where they belong. The
product's own epilogue could not store them in the order of a sparse tensor without exchanging lanes: the elements of a
group lie in two of them (PTX ISA, `wgmma` fragments of D).
"""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import itertools
from math import lcm
from typing import Final

from torch import Tensor

from louver.formats.pattern import Pattern
from louver.torch.columns import check_indices, empty_values, taken
from louver.torch.packed import natural

BLOCK_BYTES: Final = 1 << 27
"""Most bytes of the dense product of a block, unless `BLOCK_ROWS` or a window have more."""

BLOCK_ROWS: Final = 256
"""Rows of a block are multiples of a tile of a product."""


def check_sampled(g: Tensor, x: Tensor, indices: Tensor, pattern: Pattern) -> int:
    """The kept elements of a row. Raises ValueError unless g is [tokens, rows] and x is [tokens, size], of one type, and
    the indices are those of [rows, size].
    """
    if g.dim() != 2 or x.dim() != 2 or g.shape[0] != x.shape[0] or g.dtype != x.dtype:
        raise ValueError(
            f"g and x are [tokens, rows] and [tokens, size] of one type, got {g.dtype} {list(g.shape)} and {x.dtype} {list(x.shape)}"
        )
    check_indices(indices, pattern, g.shape[1], x.shape[1], g.dtype)
    return pattern.groups(x.shape[1]) * pattern.n


def kept_products(g: Tensor, x: Tensor, indices: Tensor, pattern: Pattern) -> Tensor:
    """The elements of gᵀ x at the kept places of a weight [rows, size], in the type of g: [rows, kept].

    g: [tokens, rows]. x: [tokens, size]. Nothing waits for a GPU. Raises as `check_sampled`.
    """
    check_sampled(g, x, indices, pattern)
    rows, size = g.shape[1], x.shape[1]
    indices = natural(indices, rows, size)
    unit = lcm(BLOCK_ROWS, pattern.length)
    blocks = max(1, -(-rows * size * g.itemsize // BLOCK_BYTES))
    step = max(1, -(-rows // (blocks * unit))) * unit
    out = empty_values(rows, size, pattern, g)
    # The layout of V:N:M is another one for less than a window.
    edges = [*range(0, max(1, rows - pattern.length + 1), step), rows]
    for start, stop in itertools.pairwise(edges):
        windows = slice(start // pattern.length, -(-stop // pattern.length))
        taken(g[:, start:stop].t() @ x, indices[windows], pattern, out[start:stop])
    return out.contiguous()
