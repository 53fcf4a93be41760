"""Blocks of attention whose q, k and v get one input, and models of them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import louver.torch

torch: Any = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional
WIDTH, HEAD = 48, 8


def shaped(x: Any) -> Any:
    """Outputs of a layer as heads."""
    return x.unflatten(-1, (-1, HEAD)).transpose(1, 2)


class Norm(nn.Module):
    """A norm as models write it themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(HEAD) + 0.5)

    def forward(self, x: Any) -> Any:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Attention(nn.Module):
    """Attention as many models have it, with fewer rows of keys and values."""

    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        self.o, self.head = nn.Linear(WIDTH, WIDTH, bias), HEAD
        self.k, self.v = nn.Linear(WIDTH, 24, bias), nn.Linear(WIDTH, 24, bias)
        self.q = nn.Linear(WIDTH, WIDTH, bias)
        self.q_norm, self.k_norm = Norm(), Norm()

    def forward(self, x: Any, mask: Any = None) -> Any:
        shape = (*x.shape[:-1], -1, self.head)
        q = self.q_norm(self.q(x).view(shape)).transpose(1, 2)
        k = self.k_norm(self.k(x).view(shape)).transpose(1, 2)
        v = self.v(x).view(shape).transpose(1, 2)
        return self.attend(x, q, k, v)

    def attend(self, x: Any, q: Any, k: Any, v: Any) -> Any:
        y = functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(x.shape))


def model(*blocks: Any, dtype: Any = None) -> Any:
    """A pruned model of these blocks, by default of two."""
    torch.manual_seed(31)
    made = nn.Sequential(*(blocks or (Attention(), Attention()))).to(dtype or torch.bfloat16).eval()
    louver.torch.prune_(made)
    return made


def tokens() -> Any:
    """The same input at each call."""
    return torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(5)).bfloat16()


def joined(made: Any) -> Any:
    """The report of the swap."""
    return louver.torch.compress_(made, force=True)


def apart(made: Any) -> Any:
    """The same model with a weight of its own for each sparse layer."""
    from louver.torch.blocks import separate_

    plain = copy.deepcopy(made)
    separate_(plain)
    return plain
