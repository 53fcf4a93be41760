"""Products with the transpose of a sparse weight, for gradients of x.

A weight that keeps 2:4 along K keeps no pattern along its rows in general, so its transpose is dense. Some masks keep
the pattern along both axes, such as those of `louver.prune(w, "2:4", transposable=True)`. Their transpose is sparse too:
it is compressed from the dense weight, without waiting for a GPU, and multiplied by the kernels of the forward pass.
"""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import torch
from torch import Tensor

import louver
from louver.formats.coverage import has_kernels
from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.formats.tensor import SparseTensor
from louver.torch.columns import expanded
from louver.torch.core import core_of


class Turned:
    """Whether the mask of a tensor keeps its pattern along the rows too. Its indices never change."""

    __slots__ = ("keeps",)

    def __init__(self) -> None:
        self.keeps: bool | None = None

    def refresh(self, s: SparseTensor) -> None:
        """Values do not change a mask."""


def is_transposable(values: Tensor, indices: Tensor, pattern: str, size: int) -> bool:
    """Whether the kept places of a weight [rows, size] keep the pattern along the rows too.

    The first call for a weight reads its mask, and waits for a GPU.
    """
    found = core_of(values, indices, pattern, size).derived.of(Turned)
    if found.keeps is None:
        mask = expanded(torch.ones_like(values), indices, Pattern.parse(pattern), size)
        found.keeps = louver.check(mask, pattern, axis=0).ok
    return found.keeps


def times_weight(g: Tensor, values: Tensor, indices: Tensor, pattern: str, size: int) -> Tensor:
    """g [tokens, rows] times a weight [rows, size], in the type of g: [tokens, size]."""
    dense = expanded(values, indices, Pattern.parse(pattern), size).to(g.dtype)
    # A tensor made during a capture has no metadata yet for its kernels, so a captured product is dense.
    runs = not g.is_cuda or (
        has_kernels("products", pattern, element_type(g.dtype).name) and not torch.cuda.is_current_stream_capturing()
    )
    if not (runs and is_transposable(values, indices, pattern, size)):
        return g @ dense
    # At most N of M places along the rows are not 0, so their magnitudes choose them all.
    right = louver.compress(dense, pattern, axis=0, method="magnitude")
    return louver.matmul(g, right)
