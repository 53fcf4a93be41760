"""Products with the transpose of a sparse weight, for gradients of x.

A weight that keeps 2:4 along K keeps no pattern along its rows in general, so its transpose is dense. Some masks keep
the pattern along both axes, such as those of `louver.prune(w, "2:4", transposable=True)`. Their transpose is sparse too:
its indices never change, and are kept; its values are those of the weight in another order. Each product makes them anew,
by one kernel, so that they follow every write to the weight. Nothing waits for a GPU but the first product.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import functools
import threading

import torch
from torch import Tensor

import louver
from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern, has_kernels
from louver.formats.select import PATTERN as TRANSPOSABLE
from louver.library.forms import Values
from louver.library.state import TensorState
from louver.library.streaming.launches import Stored, turn_into
from louver.runtime.arrays import view
from louver.torch.accuracy.masks import keep, keeps
from louver.torch.columns import empty_values, expanded, has_kernel, natural, taken
from louver.torch.core import Turned, borrowed, compressed, cores


def is_transposable(values: Tensor, indices: Tensor, pattern: str, size: int) -> bool:
    """Whether the kept places of a weight [rows, size] keep the pattern along the rows too.

    The first call for a weight reads its mask, and waits for a GPU.
    """
    found = _seen(values, indices, pattern, size)
    return found.indices is not None


def times_weight(g: Tensor, values: Tensor, indices: Tensor, pattern: str, size: int) -> Tensor:
    """g [tokens, rows] times a weight [rows, size], in the type of g: [tokens, size]."""
    found, capturing = None, g.is_cuda and torch.cuda.is_current_stream_capturing()
    # The reference path takes all types.
    if not g.is_cuda or has_kernels("products", pattern, element_type(g.dtype).name):
        # A capture cannot wait, so without an earlier product a captured one is dense.
        seen = (
            cores().core(values, indices, pattern, size).turned if capturing else _seen(values, indices, pattern, size)
        )
        found = None if seen.dense or seen.indices is None else seen
    if found is None:
        return g @ expanded(values, indices, Pattern.parse(pattern), size).to(g.dtype)
    rows = values.shape[0]
    if not g.is_cuda or capturing or g.dtype != values.dtype:
        found.captured |= capturing
        made = empty_values(size, rows, Pattern.parse(pattern), values)
        return _multiplied(g, _turn(values, indices, found, pattern, made).to(g.dtype), found, pattern)
    with Room.of(g.device) as room:
        return _multiplied(
            g, _turn(values, indices, found, pattern, room.values(size, rows, pattern, g)), found, pattern
        )


def _turn(values: Tensor, indices: Tensor, found: Turned, pattern: str, out: Tensor) -> Tensor:
    """Write the values [size, kept] of the transpose to `out`."""
    assert found.indices is not None
    size, rows, parsed = out.shape[0], values.shape[0], Pattern.parse(pattern)
    indices = natural(indices, rows, size)
    if parsed != TRANSPOSABLE or not (values.is_cuda and has_kernel(values, indices, parsed)):
        return taken(expanded(values, indices, parsed, size).t(), found.indices, parsed, out)
    stored = Stored(values.data_ptr(), values.stride(0) * values.itemsize, indices.data_ptr())
    turned = Stored(out.data_ptr(), out.stride(0) * out.itemsize, found.indices.data_ptr())
    place = view(out)
    turn_into(stored, (rows, size), place.element, turned).send(place.device or 0, place.stream or 0)
    return out


def _multiplied(g: Tensor, turned: Tensor, found: Turned, pattern: str) -> Tensor:
    """g times the transpose of these values. They are in memory until the product is launched."""
    assert found.indices is not None
    place = turned.data_ptr(), turned.dtype
    last = found.last
    if last is None or last[1:] != place or not g.is_cuda:
        last = borrowed(turned, found.indices, pattern, g.shape[1]), *place
        state = last[0].derived.of(TensorState)
        found.forms.lend(state)
        if g.is_cuda:
            # The values themselves. A capture takes only forms that were made before.
            state.form(last[0], Values(), g.get_device())
    y = louver.linear(g, last[0])
    state = last[0].derived.of(TensorState)
    state.lend(found.forms)
    # The host makes such a copy, and waits, and the next product must not read it.
    found.last, found.dense = last, state.copies_values
    return y


class Room:
    """Memory of one stream of a GPU for transposed values, as large as those of its largest weight. A product reads them
    before the next kernel of the stream writes others. A tensor of these values is then at one address, and its launches
    are known. Captured graphs have memory of their own: they run on any stream.
    """

    def __init__(self) -> None:
        self._memory: Tensor | None = None
        # Held from the kernel that writes values to the product that reads them.
        self._lock = threading.Lock()

    @staticmethod
    def of(device: torch.device) -> Room:
        """That of the current stream."""
        return _rooms().setdefault((device, torch.cuda.current_stream(device).cuda_stream), Room())

    def __enter__(self) -> Room:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def values(self, rows: int, size: int, pattern: str, like: Tensor) -> Tensor:
        """As `empty_values`."""
        shape = empty_values(rows, size, Pattern.parse(pattern), like.new_empty(0, device="meta"))
        needed = shape.stride(0) * rows
        if self._memory is None or self._memory.nbytes < needed * like.itemsize:
            self._memory = torch.empty(needed * like.itemsize, dtype=torch.uint8, device=like.device)
        return self._memory[: needed * like.itemsize].view(like.dtype).view(rows, -1)[:, : shape.shape[1]]


@functools.cache
def _rooms() -> dict[tuple[torch.device, int], Room]:
    """By device and stream."""
    return {}


def compressed_both_ways(w: Tensor, pattern: str) -> tuple[Tensor, Tensor, int] | None:
    """As `compressed`, for a matrix [rows, size] that keeps 2:4 along both axes with fewer non-zeros than places: those of
    its zeros make the mask transposable. None for any other array, where no such mask has all non-zeros, and where the last
    group of a row is filled.
    """
    whole = w.ndim == 2 and pattern == str(TRANSPOSABLE) and w.shape[1] % TRANSPOSABLE.m == 0
    # PyTorch compares no floats of 8 bits.
    if (
        not whole
        or w.itemsize == 1
        or _nonzeros(w) * 2 >= w.numel()
        or not all(keeps(w, TRANSPOSABLE, axis) for axis in (0, 1))
    ):
        return None
    # A mask with the largest number of non-zeros has all of them, but for blocks that no mask with two places in each row
    # and column has: a cycle of six, such as all but the diagonal of 3 × 3.
    mask = keep((w != 0).float(), TRANSPOSABLE, transposable=True)
    if bool((w[~mask] != 0).any()):
        return None
    indices = compressed(mask.to(w.dtype), pattern, prune=True)[1]
    lost = int((torch.signbit(w) & (w == 0) & ~mask).sum()) if w.is_floating_point() else 0
    return taken(w, indices, TRANSPOSABLE).contiguous(), indices, lost


def _nonzeros(w: Tensor) -> int:
    """The non-zeros of a matrix, a million elements at a time: PyTorch sums eight bytes for each."""
    return int(sum((part != 0).sum() for part in w.split(max(1, 2**20 // max(1, w.shape[1])))))


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
