"""Blocks with the shapes of published models, and their best dense forms: joined by hand, in bf16 and e4m3."""

# pyright: reportUnknownMemberType=false
# pyright: reportUntypedFunctionDecorator=false, reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from louver.torch.tokens import quantized_tokens


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a block. heads, key_heads: of queries, and of keys and values. vocabulary: rows of the head."""

    width: int
    inner: int
    heads: int
    key_heads: int
    head: int
    blocks: int
    vocabulary: int


SHAPES: Final[Mapping[str, Shape]] = {
    "Llama 3 8B": Shape(4096, 14336, 32, 8, 128, 32, 128256),
    "SmolLM2 135M": Shape(576, 1536, 9, 3, 64, 30, 49152),
}


# Elementwise code is compiled on all sides, also where blocks are not.
@torch.compile(dynamic=True)
def added(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The sum, and its norm."""
    z = x + y
    wide = z.float()
    return z, (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(z.dtype)


# Sizes that vary are found by PyTorch itself: the rows of a weight do not, and kernels that know them are faster.
@torch.compile
def activated(joined: Tensor) -> Tensor:
    """The input of the down projection, of the outputs of gate and up projection side by side."""
    gate, up = joined.chunk(2, -1)
    return functional.silu(gate) * up


@torch.compile(dynamic=True)
def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Heads [sequences, tokens, heads, size], turned by the angles of their tokens."""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1).to(x.dtype)


class Mlp(nn.Module):
    """A gated layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(shape.width, shape.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class JoinedMlp(nn.Module):
    """The same layer with gate and up projection in one weight, the fastest dense form."""

    def __init__(self, mlp: Mlp) -> None:
        super().__init__()
        self.joined, self.down = _joined(mlp.gate, mlp.up), mlp.down

    def forward(self, x: Tensor) -> Tensor:
        return self.down(activated(self.joined(x)))


class Attention(nn.Module):
    """Attention with rotary positions and fewer heads of keys and values."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.q_proj = nn.Linear(shape.width, shape.heads * shape.head, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(shape.width, shape.key_heads * shape.head, bias=False) for _ in range(2))
        self.o_proj = nn.Linear(shape.heads * shape.head, shape.width, bias=False)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], cache: tuple[Tensor, Tensor] | None) -> Tensor:
        heads = (*x.shape[:-1], -1, self.shape.head)
        q, k = self.q_proj(x).view(heads), self.k_proj(x).view(heads)
        v = self.v_proj(x).view(heads)
        return self.o_proj(attended(q, k, v, angles, cache))


class JoinedAttention(nn.Module):
    """The same layer with q, k and v in one weight, the fastest dense form."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.shape, self.o_proj = attention.shape, attention.o_proj
        self.joined = _joined(attention.q_proj, attention.k_proj, attention.v_proj)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], cache: tuple[Tensor, Tensor] | None) -> Tensor:
        shape = self.shape
        heads = self.joined(x).view(*x.shape[:-1], -1, shape.head)
        q, k, v = heads.split([shape.heads, shape.key_heads, shape.key_heads], 2)
        return self.o_proj(attended(q, k, v, angles, cache))


def attended(
    q: Tensor, k: Tensor, v: Tensor, angles: tuple[Tensor, Tensor], cache: tuple[Tensor, Tensor] | None
) -> Tensor:
    """q, k, v: [sequences, tokens, heads, size]. cache: keys and values of earlier tokens, to whose end new ones go."""
    q, k, v = rotated(q, *angles).transpose(1, 2), rotated(k, *angles).transpose(1, 2), v.transpose(1, 2)
    if cache is not None:
        cache[0][:, :, -1:], cache[1][:, :, -1:] = k, v
        k, v = cache
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=cache is None, enable_gqa=True)
    return y.transpose(1, 2).flatten(2)


class ScaledLinear(nn.Module):
    """A dense linear layer in e4m3, with a scale for each row and token, found as those of sparse layers are."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight, scale = quantized_tokens(layer.weight.detach(), torch.float8_e4m3fn)
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale.reshape(1, -1))

    def forward(self, x: Tensor) -> Tensor:
        given, scale = quantized_tokens(x.reshape(-1, x.shape[-1]), torch.float8_e4m3fn)
        weight: Any = self.weight
        # PyTorch's stubs do not have the function.
        library: Any = torch
        y = library._scaled_mm(
            given, weight.t(), scale_a=scale[:, None], scale_b=self.scale, out_dtype=x.dtype, use_fast_accum=True
        )
        return y.reshape(*x.shape[:-1], -1)


class Block(nn.Module):
    """A block of Llama. It takes the residual stream and what is to be added to it, so that a compiler fuses each sum
    with the norm behind it.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention: nn.Module = Attention(shape)
        self.mlp: nn.Module = Mlp(shape)

    def forward(
        self, x: Tensor, y: Tensor, angles: tuple[Tensor, Tensor], cache: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        x, y = added(x, y)
        x, y = added(x, self.attention(y, angles, cache))
        return x, self.mlp(y)


class Stack(nn.Module):
    """Blocks one after the other; with `head`, also the scores of each sequence's next token."""

    def __init__(self, shape: Shape, blocks: int, *, head: bool) -> None:
        super().__init__()
        self.shape = shape
        self.blocks = nn.ModuleList(Block(shape) for _ in range(blocks))
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False) if head else None

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], caches: Sequence[Any]) -> Tensor:
        y = torch.zeros_like(x)
        for block, cache in zip(self.blocks, caches, strict=True):
            x, y = block(x, y, angles, cache)
        x, y = added(x, y)
        return x if self.head is None else self.head(y[:, -1])


def join_by_hand_(stack: Stack, *, scaled: bool) -> Stack:
    """The best dense form of a stack, in place; scaled: in e4m3. The weights apart end with it."""
    for each in stack.blocks:
        block: Any = each
        block.attention, block.mlp = JoinedAttention(block.attention), JoinedMlp(block.mlp)
        if scaled:
            for part, names in ((block.attention, ("joined", "o_proj")), (block.mlp, ("joined", "down"))):
                for name in names:
                    setattr(part, name, ScaledLinear(getattr(part, name)))
    return stack


def angles_of(positions: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines [1, tokens, 1, size / 2] of rotary positions."""
    steps = torch.arange(0, size, 2, device=positions.device).float() / size
    found = torch.outer(positions.float(), 1e4**-steps)[None, :, None]
    return found.cos(), found.sin()


def _joined(*layers: nn.Linear) -> nn.Linear:
    weight = torch.cat([layer.weight for layer in layers])
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    made.weight = nn.Parameter(weight, False)
    return made
