"""Changed weights in a checkpoint's own types: what is stored for them, and the numbers that it stands for."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from louver.formats.container import DTYPES
from louver.models.scaled import Factors


@dataclass(frozen=True, slots=True)
class Rounded:
    """A weight as stored. scales: for the blocks of `Factors`, None without.

    loss: ‖stored − new‖ / ‖new‖, as numbers in the type of `new`; 0 for elements that did not change.
    """

    stored: Tensor
    scales: NDArray[Any] | None
    loss: float


def rounded(new: Tensor, dense: Tensor, stored: Tensor, factors: Factors | None) -> Rounded:
    """What is stored for `new`, in the type of `stored`.

    new, dense: a weight as pruned and as it was, of one type and on one device. stored: the checkpoint's elements of
    `dense`, there too. factors: its scales. An element that did not change keeps its bits, and zeros are +0. A scale
    stays, unless its block has a number beyond the type's largest: then it grows until that fits, and its block is
    rounded anew.
    """
    if factors is None:
        made = _chosen(new == 0, torch.zeros_like(stored), _chosen(new == dense, stored, _nearest(new, stored.dtype)))
        return Rounded(made, None, _loss(new, made.float()))
    wide, block, shape = new.float(), factors.block, tuple(new.shape)
    largest = _blocks(wide.abs(), block).amax(tuple(range(1, 2 * new.dim(), 2))).cpu().numpy()
    needed = largest / torch.finfo(stored.dtype).max
    before = factors.scales.astype(np.float32)
    grown = needed > np.abs(before)
    if factors.scales.dtype == DTYPES["F8_E8M0"]:
        needed = np.exp2(np.ceil(np.log2(np.where(grown, needed, 1))))
    scales = np.where(grown, needed, before).astype(factors.scales.dtype)
    factor = _spread(torch.from_numpy(scales.astype(np.float32)).to(new.device), block, shape)
    same = (new == dense) & ~_spread(torch.from_numpy(grown).to(new.device), block, shape)
    made = _chosen(same, stored, _nearest((wide / factor).nan_to_num(nan=0.0), stored.dtype))
    made = _chosen(new == 0, torch.zeros_like(stored), made)
    return Rounded(made, scales, _loss(new, made.float() * factor))


def _nearest(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The nearest finite element of a type."""
    limit = torch.finfo(dtype).max
    return x.float().clamp(-limit, limit).to(dtype) if dtype != torch.float64 else x.to(dtype)


def _chosen(where: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """`torch.where` by bits: it lacks 8-bit types."""
    if one.itemsize > 1:
        return torch.where(where, one, other)
    return torch.where(where, one.view(torch.uint8), other.view(torch.uint8)).view(one.dtype)


def _loss(new: Tensor, made: Tensor) -> float:
    wide = new.float()
    norm = float(wide.norm())
    return float((made.to(new.dtype).float() - wide).norm()) / norm if norm > 0 else 0.0


def _blocks(x: Tensor, block: tuple[int, ...]) -> Tensor:
    """A tensor as [blocks, elements] along each axis; zeros fill the last blocks."""
    shape: list[int] = []
    for axis, size in enumerate(block):
        count = -(-x.shape[axis] // size)
        fill = list(x.shape)
        fill[axis] = count * size - x.shape[axis]
        x = torch.cat([x, x.new_zeros(fill)], axis) if fill[axis] else x
        shape += [count, size]
    return x.reshape(shape)


def _spread(blocks: Tensor, block: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
    """The value of each element's block."""
    for axis, size in enumerate(block):
        if blocks.shape[axis] == 1:
            continue
        blocks = blocks.repeat_interleave(size, axis).narrow(axis, 0, shape[axis])
    return blocks.expand(shape)
