"""Writes changed weights back in a quantized checkpoint's own type, with scales that fit them."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import torch
from torch import Tensor

from louver.formats.torch_tensors import of_host
from louver.models.scaled import Factors


def requantized(new: Tensor, dense: Tensor, stored: Tensor, factors: Factors) -> tuple[Tensor, Tensor]:
    """Elements and scales that stand for `new`, in the types of the checkpoint's.

    new, dense: numbers, as pruned and as they were, on any device. stored: the checkpoint's elements of `dense`. A scale
    stays, unless its block has a number beyond the type's largest one; then it grows until that fits, and the block is
    rounded anew. An element that keeps number and scale keeps its bits. Zeros stay.
    """
    limit = torch.finfo(stored.dtype).max
    scales = of_host(factors.scales.copy())
    before = scales.float().to(new.device)
    largest = _blocks(new.float().abs(), factors.block).amax(tuple(range(1, 2 * new.dim(), 2)))
    needed = largest / limit
    grown = needed > before.abs()
    wanted = torch.where(grown, needed, before)
    if scales.dtype == torch.float8_e8m0fnu:
        wanted = torch.where(grown, torch.exp2(torch.ceil(torch.log2(needed))), before)
    scales = torch.where(grown.cpu(), wanted.cpu(), before.cpu()).to(scales.dtype)
    after = scales.float().to(new.device)
    factor = _spread(after, factors.block, tuple(new.shape))
    made = (new.float() / factor).nan_to_num(nan=0.0).clamp(-limit, limit).to(stored.dtype)
    same = (new == dense) & ~_spread(grown, factors.block, tuple(new.shape))
    bits = torch.where(same, stored.to(new.device).view(torch.uint8), made.view(torch.uint8))
    return torch.where(new == 0, torch.zeros_like(bits), bits).view(stored.dtype), scales


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


def _spread(scales: Tensor, block: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
    """The scale of each element."""
    for axis, size in enumerate(block):
        scales = scales.repeat_interleave(size, axis).narrow(axis, 0, shape[axis])
    return scales
