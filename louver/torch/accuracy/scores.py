"""Scores of the next token: a model's logits, and apart from them the states that its head reads.

A head of 50,000 tokens makes more numbers than all blocks before it. So its scores are computed in parts, from the
states, wherever all of them would be held at once.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Generator
from typing import Any, Final

import torch
from torch import Tensor, nn

from louver.torch.layers import linear_layers

PART: Final = 1 << 28
"""Most scores that are held at once: 0.5 GB of them in 16 bits, and a few f32 copies while they are reduced."""


def takes(model: nn.Module, name: str) -> bool:
    """Whether the `forward` of a model has a parameter of this name."""
    return name in inspect.signature(model.forward).parameters


def logits_of(model: nn.Module, tokens: Tensor) -> Tensor:
    """The scores [rows, length, vocabulary] of tokens [rows, length], without a cache.

    Raises TypeError for a model that returns no such tensor, neither itself nor as `logits`.
    """
    made: Any = model(tokens, use_cache=False) if takes(model, "use_cache") else model(tokens)
    scores = getattr(made, "logits", made)
    if not isinstance(scores, Tensor) or scores.ndim != 3 or scores.shape[:2] != tokens.shape:
        got = f"shape {list(scores.shape)}" if isinstance(scores, Tensor) else type(made).__name__
        raise TypeError(
            f"a causal model gives scores [rows, length, vocabulary] for tokens {list(tokens.shape)}, got {got} of {type(model).__name__}"
        )
    return scores


class Head:
    """The head of a causal model, apart from the rest: `hidden` gives the states that it reads, `scores` their logits.

    Between `__init__` and `close` the model gives no logits of its own. `scores` includes what the model does with the
    head's output, such as a cap or a factor: the model itself does it, on a call with one token.
    """

    def __init__(self, model: nn.Module, tokens: Tensor) -> None:
        """tokens: [1, few], of a call that finds out whether the model changes the head's output.

        Raises ValueError for a model in which no head is found.
        """
        self.model = model
        self.module = head_of(model)
        self._one = tokens[:1, :1]
        self._caught: Tensor | None = None
        self._given: Tensor | None = None
        self._score: Callable[[Tensor], Tensor] = self.module.forward
        with torch.no_grad():
            expected = logits_of(model, tokens)
            self.module.forward = self._catch
            self.plain = torch.equal(self._score(self.hidden(tokens)), expected)

    @property
    def width(self) -> int:
        """Numbers of a state."""
        return self.module.weight.shape[1]

    @property
    def vocabulary(self) -> int:
        return self.module.weight.shape[0]

    def close(self) -> None:
        """Give the model its head back."""
        del self.module.forward

    def hidden(self, tokens: Tensor) -> Tensor:
        """The states [rows, length, width] of tokens [rows, length]."""
        self._given = None
        logits_of(self.model, tokens)
        caught, self._caught = self._caught, None
        if caught is None or caught.shape[:2] != tokens.shape:
            raise ValueError(f"the head of a {type(self.model).__name__} reads a state for each token, got {caught}")
        return caught

    def scores(self, hidden: Tensor) -> Tensor:
        """The logits [tokens, vocabulary] of states [tokens, width]. Differentiable."""
        scores = self._score(hidden)
        if self.plain:
            return scores
        self._given = scores[None]
        made: Any = self.model(self._one)
        return getattr(made, "logits", made)[0]

    def _catch(self, hidden: Tensor) -> Tensor:
        if self._given is not None:
            return self._given
        self._caught = hidden
        # The model may go on with it: of the right rank, and small.
        return hidden[..., :1]


@contextlib.contextmanager
def apart(model: nn.Module, tokens: Tensor) -> Generator[Head]:
    """The head of a model apart from the rest, for a while. See `Head`."""
    head = Head(model, tokens)
    try:
        yield head
    finally:
        head.close()


def head_of(model: nn.Module) -> Any:
    """The linear layer that scores the next token. Raises ValueError unless there is one."""
    heads = [layer for layer in linear_layers(model) if layer.is_head and layer.weight.shape[0] > 1]
    if len(heads) != 1:
        names = ", ".join(layer.name for layer in heads) or "none"
        raise ValueError(
            f"a causal model has one head that scores the next token, got {names} in {type(model).__name__}"
        )
    return heads[0].module


class _Divergence(torch.autograd.Function):
    """KL of the pruned model's next-token distributions from the dense ones, with the gradient by hand, in parts."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, dense_hidden: Tensor, head: Head, dense_head: Head, reduce: Any) -> Tensor:
        # Parts of one size, so that a compiled `reduce` has one shape.
        parts = -(-len(hidden) // max(1, PART // head.vocabulary))
        size = -(-len(hidden) // parts)
        total = torch.zeros((), device=hidden.device)
        gradient = torch.empty_like(hidden)
        for states, dense, out in zip(hidden.split(size), dense_hidden.split(size), gradient.split(size), strict=True):
            with torch.enable_grad():
                states = states.detach().requires_grad_()
                scores = head.scores(states)
            with torch.no_grad():
                part, slope = reduce(scores.detach(), dense_head.scores(dense))
            total += part
            out.copy_(torch.autograd.grad(scores, states, slope)[0])
        ctx.save_for_backward(gradient.mul_(1 / len(hidden)))
        return total / len(hidden)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        return ctx.saved_tensors[0] * outer[0].to(ctx.saved_tensors[0].dtype), None, None, None, None


def reduce_scores(scores: Tensor, dense: Tensor) -> tuple[Tensor, Tensor]:
    """KL(dense ‖ scores) summed over tokens, and its gradient of the scores. Both: [tokens, vocabulary] logits."""
    log, dense_log = scores.float().log_softmax(-1), dense.float().log_softmax(-1)
    wanted = dense_log.exp()
    return (wanted * (dense_log - log)).sum(), (log.exp() - wanted).to(scores.dtype)


def mean_divergence(hidden: Tensor, dense_hidden: Tensor, head: Head) -> float:
    """`divergence` of states from the dense model's states by one head, without gradients."""
    size = max(1, PART // head.vocabulary)
    total = torch.zeros((), dtype=torch.float64, device=hidden.device)
    with torch.no_grad():
        for states, dense in zip(hidden.split(size), dense_hidden.split(size), strict=True):
            log, dense_log = (head.scores(each).float().log_softmax(-1) for each in (states, dense))
            total += (dense_log.exp() * (dense_log - log)).sum(dtype=torch.float64)
    return total.item() / len(hidden)


def divergence(
    hidden: Tensor, dense_hidden: Tensor, head: Head, dense_head: Head, reduce: Any = reduce_scores
) -> Tensor:
    """The mean over tokens of KL(dense ‖ pruned) between next-token distributions, in nats. Differentiable in `hidden`.

    hidden, dense_hidden: [tokens, width] states. head, dense_head: of the pruned model and the dense one; parameters of
    heads get no gradient. reduce: `reduce_scores`, perhaps compiled. Scores [tokens, vocabulary] never exist whole.
    """
    made: Any = _Divergence.apply(hidden, dense_hidden, head, dense_head, reduce)
    return made
