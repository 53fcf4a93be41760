"""Products with the transpose of a sparse weight, for gradients of x.

A weight that keeps 2:4 along K keeps no pattern along its rows in general, so its transpose is dense. Some masks keep
the pattern along both axes, such as those of `louver.prune(w, "2:4", transposable=True)`. Their transpose is sparse too:
its indices never change, and are kept; its values are those of the weight in another order. Each product makes them anew
and drops them, so that they follow every write to the weight. Nothing waits for a GPU but the first product.
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
from louver.formats.transposable import PATTERN as TRANSPOSABLE
from louver.library.state import TensorState
from louver.torch.accuracy.masks import keep, keeps
from louver.torch.columns import expanded, taken
from louver.torch.core import Turned, borrowed, compressed, cores


def is_transposable(values: Tensor, indices: Tensor, pattern: str, size: int) -> bool:
    """Whether the kept places of a weight [rows, size] keep the pattern along the rows too.

    The first call for a weight reads its mask, and waits for a GPU.
    """
    found = _seen(values, indices, pattern, size)
    return found.indices is not None


def times_weight(g: Tensor, values: Tensor, indices: Tensor, pattern: str, size: int) -> Tensor:
    """g [tokens, rows] times a weight [rows, size], in the type of g: [tokens, size]."""
    dense = expanded(values, indices, Pattern.parse(pattern), size).to(g.dtype)
    # The reference path takes all types.
    if g.is_cuda and not has_kernels("products", pattern, element_type(g.dtype).name):
        return g @ dense
    capturing = g.is_cuda and torch.cuda.is_current_stream_capturing()
    # A capture cannot wait, so without an earlier product a captured one is dense.
    found = cores().core(values, indices, pattern, size).turned if capturing else _seen(values, indices, pattern, size)
    if found.dense or found.indices is None:
        return g @ dense
    right = borrowed(taken(dense.t(), found.indices, Pattern.parse(pattern)), found.indices, pattern, values.shape[0])
    state = right.derived.of(TensorState)
    found.forms.lend(state)
    y = louver.linear(g, right)
    state.lend(found.forms)
    # The host makes such a copy, and waits.
    found.dense, found.captured = state.copies_values, found.captured or capturing
    return y


def compressed_both_ways(w: Tensor, pattern: str) -> tuple[Tensor, Tensor, int] | None:
    """As `compressed`, for a matrix [rows, size] that keeps 2:4 along both axes with fewer non-zeros than places: those of
    its zeros make the mask transposable. None for any other array, and where the last group of a row is filled.
    """
    whole = w.ndim == 2 and pattern == str(TRANSPOSABLE) and w.shape[1] % TRANSPOSABLE.m == 0
    if not whole or int((w != 0).sum()) * 2 >= w.numel() or not all(keeps(w, TRANSPOSABLE, axis) for axis in (0, 1)):
        return None
    # All masks with the largest number of non-zeros have all of them.
    mask = keep((w != 0).float(), TRANSPOSABLE, transposable=True)
    indices = compressed(mask.to(w.dtype), pattern, prune=True)[1]
    lost = int((torch.signbit(w) & (w == 0) & ~mask).sum()) if w.is_floating_point() else 0
    return taken(w, indices, TRANSPOSABLE).contiguous(), indices, lost


def _seen(values: Tensor, indices: Tensor, pattern: str, size: int) -> Turned:
    """What a mask says, read at the first call."""
    found = cores().core(values, indices, pattern, size).turned
    if found.dense is None:
        mask = expanded(torch.ones_like(values), indices, Pattern.parse(pattern), size)
        if louver.check(mask, pattern, axis=0).ok:
            # At most N of M places along the rows are not 0, so their magnitudes choose them all.
            found.indices = compressed(mask.t(), pattern, prune=True)[1]
        found.dense = found.indices is None
    return found
