"""Gate, up projection and activation of a served block as one product, where a trial of the block proves that they are.

vLLM multiplies by both projections in one layer, and applies the activation in another one.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from louver.formats.gated import GATE_ROWS
from louver.formats.pattern import Pattern
from louver.torch.linear import SparseWeight
from louver.torch.operators import ACTIVATIONS

TOKENS: Final = (1, 2, 1024)
"""Numbers of tokens of the trials: a block may do otherwise with many."""

_WIDE: Final = 20.0
"""How wide the arguments of an activation spread, so that one with limits differs."""


@dataclass(frozen=True, slots=True)
class Gated:
    """A block: the name of its activation, and the activation of gate rows as `louver.linear` names it."""

    child: str
    activation: str | None


class _Opaque:
    """A value that a block may only hand on: all else raises."""

    __slots__ = ()

    def __bool__(self) -> bool:
        raise TypeError("a block reads the projections of gate and up itself")

    def __eq__(self, other: object) -> bool:
        return bool(self)


def found(block: nn.Module, pair: Any) -> Gated | None:
    """What makes the block of a layer `pair` gated; None if a trial does not prove it.

    pair: a layer of both projections, [gate, up] of equal sizes. In the trial it gives an opaque value, which the block may
    only hand to a child without parameters. Then that child is the activation, and nothing else reads the projections.
    """
    names = {_trial(block, pair, tokens) for tokens in TOKENS}
    if len(names) != 1 or None in names:
        return None
    (child,) = names
    kind = _activation(block.get_submodule(str(child)), pair)
    return None if kind is None else Gated(str(child), *kind)


def by_turns(weight: SparseWeight) -> SparseWeight | None:
    """A weight of gate rows, then up rows, as gated products read it; None if its rows cannot lie by turns."""
    if Pattern.parse(weight.pattern).length > 1 or weight.shape[0] % (2 * GATE_ROWS):
        return None
    rows, columns = weight.shape
    made = SparseWeight(rows, columns, weight.pattern, device="meta", dtype=weight.dtype, requires_grad=False)
    with torch.inference_mode(False), torch.no_grad():
        arrays = (
            x.unflatten(0, (2, -1, GATE_ROWS)).transpose(0, 1).flatten(0, 2) for x in (weight.values, weight.natural())
        )
        made.values, made.indices = (nn.Parameter(x.contiguous(), False) for x in arrays)
        if weight.scale is not None:
            made.quantized_(made.values, weight.scale, weight.dense_dtype)
    return made


def _trial(block: nn.Module, pair: Any, tokens: int) -> str | None:
    """The child that gets what the pair gives, and gets it once."""
    opaque, seen = _Opaque(), list[str]()
    weight = pair.weight
    x = torch.zeros(tokens, pair.input_size_per_partition, dtype=weight.dtype, device=weight.device)

    def stand_in(name: str, child: Any) -> Any:
        if child is pair:

            def gives(*_: Any, **__: Any) -> Any:
                seen.append("")
                return (opaque, None) if pair.return_bias else opaque

            return gives
        if any(True for _ in child.parameters()):
            return _zeros_of(child, weight) if hasattr(child, "quant_method") else child.forward

        def takes(*given: Any, **more: Any) -> Any:
            if len(given) != 1 or more or given[0] is not opaque:
                return child.__class__.forward(child, *given, **more)
            seen.append(name)
            return x.new_zeros(tokens, sum(pair.output_partition_sizes) // 2)

        return takes

    try:
        with _forwards({child: stand_in(name, child) for name, child in block.named_children()}), torch.no_grad():
            block.forward(x)
    except Exception:
        return None
    return seen[1] if len(seen) == 2 and seen[0] == "" and seen[1] else None


def _zeros_of(layer: Any, like: Tensor) -> Any:
    """A layer that gives zeros: it may wait for other GPUs."""

    def zeros(x: Tensor, *_: Any, **__: Any) -> Any:
        y = like.new_zeros(*x.shape[:-1], getattr(layer, "output_size_per_partition", layer.output_size))
        return (y, None) if layer.return_bias else y

    return zeros


@contextmanager
def _forwards(replaced: dict[Any, Any]) -> Generator[None]:
    """Calls of modules by other functions for a while."""
    before = {module: module.__dict__.get("forward") for module in replaced}
    try:
        for module, function in replaced.items():
            module.__dict__["forward"] = function
        yield
    finally:
        for module, function in before.items():
            if function is None:
                del module.__dict__["forward"]
            else:
                module.__dict__["forward"] = function


def _activation(act: Any, pair: Any) -> tuple[str | None] | None:
    """The activation of `act`, by what it computes; None for another function."""
    like: Tensor = pair.weight
    generator = torch.Generator(like.device).manual_seed(0)
    x = _WIDE * torch.randn(64, 128, generator=generator, device=like.device)
    # Some rows have large gates, some large factors: limits are seen, and products stay in the range of f16.
    scales = torch.tensor([[50.0, 0.05], [0.05, 50.0], [1.0, 1.0]], device=like.device).repeat_interleave(64, 1)
    x[:24] *= scales.repeat_interleave(8, 0)
    x = x.to(like.dtype)
    gate, up = x.float().chunk(2, 1)
    try:
        with torch.no_grad():
            y = act(x)
    except Exception:
        return None
    for name, function in ACTIVATIONS.items():
        expected = function(gate) * up
        if y.shape == expected.shape and torch.allclose(y.float(), expected, rtol=2e-2, atol=1e-3):
            return (name,)
    return None
