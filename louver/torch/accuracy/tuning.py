"""Tune the kept values of a part of a block until its output is closest to the dense model's."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

from louver.torch.accuracy.blocks import outputs, run, stream
from louver.torch.accuracy.products import Cut, Stop
from louver.torch.accuracy.streams import Streams

RATE: Final = 5e-3
"""The largest learning rate, in units of the root mean square of a weight's kept values."""

_WARM: Final = 10
"""Steps in which the rate rises. Then it falls linearly to 0."""


def tune(
    streams: Streams,
    block: nn.Module,
    weights: Mapping[str, Tensor],
    kept: Mapping[str, Tensor],
    add: int | None,
    steps: int,
) -> tuple[dict[str, Tensor], set[str]]:
    """New values of the weights that `kept` names, by Adam, one batch a step (arXiv 2510.14444: attention and MLP apart).

    weights: of the pruned block, by name. kept: bool masks of those to tune. add: the residual addition that ends the
    part, see `Cut`; None for the end of the block. The loss is the squared error over the dense stream's mean square,
    token by token, as the norm behind it sees it. There are no new values if the loss over all batches does not fall.
    Returns them, and the names of the weights on which the part depends.
    """
    part = _Part(streams, block, add)
    batches = [batch for batch, about in enumerate(streams.batches) if not about.held_out]
    judges = [batch for batch, about in enumerate(streams.batches) if about.held_out] or batches
    with torch.enable_grad():
        masters = {name: weights[name].float().clone().requires_grad_() for name in kept}
        first = part.loss(batches[0], {**weights, **{n: m.to(weights[n].dtype) for n, m in masters.items()}})
        found: Any = torch.autograd.grad(first, list(masters.values()), allow_unused=True)
        masters = {name: master for (name, master), one in zip(masters.items(), found, strict=True) if one is not None}
        if not masters:
            return {}, set()
        groups: list[dict[str, Any]] = [
            {"params": [master], "lr": RATE * float(master.detach()[kept[name]].square().mean().sqrt())}
            for name, master in masters.items()
        ]
        adam = torch.optim.Adam(groups, betas=(0.9, 0.99))
        schedule = torch.optim.lr_scheduler.LambdaLR(adam, lambda at: min(1, (at + 1) / _WARM) * (1 - at / steps))
        for step in range(steps):
            batch = batches[step % len(batches)]
            new = {name: (master * kept[name]).to(weights[name].dtype) for name, master in masters.items()}
            loss = part.loss(batch, {**weights, **new})
            # No token of a batch may reach an expert.
            gradients: Any = torch.autograd.grad(loss, list(masters.values()), allow_unused=True)
            for master, gradient in zip(masters.values(), gradients, strict=True):
                master.grad = torch.zeros_like(master) if gradient is None else gradient
            adam.step()
            schedule.step()
    tuned = {name: (master.detach() * kept[name]).to(weights[name].dtype) for name, master in masters.items()}
    with torch.no_grad():
        before = sum(float(part.loss(batch, weights)) for batch in judges)
        after = sum(float(part.loss(batch, {**weights, **tuned})) for batch in judges)
    return tuned if after < before else {}, set(masters)


class _Part:
    """The part of a block that ends in a residual addition."""

    def __init__(self, streams: Streams, block: nn.Module, add: int | None) -> None:
        self._streams, self._block, self._add = streams, block, add
        # No gradient is wanted of any other parameter.
        self._frozen = {name: parameter.detach() for name, parameter in block.named_parameters()}

    def loss(self, batch: int, weights: Mapping[str, Tensor]) -> Tensor:
        """The error of the pruned part's output against the dense one's, on one batch."""
        with torch.no_grad():
            wanted = self._output(batch, {}, dense=True).float()
        got = self._output(batch, weights, dense=False).float()
        scale = wanted.square().mean(-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
        return ((got - wanted).square() / scale).mean()

    def _output(self, batch: int, weights: Mapping[str, Tensor], *, dense: bool) -> Tensor:
        arguments = self._streams.arguments(batch, dense=dense)
        every = {**self._frozen, **weights}
        if self._add is None:
            return stream(outputs(run(self._block, every, arguments)))
        shape = stream([leaf for leaf in outputs(arguments) if isinstance(leaf, Tensor)]).shape
        try:
            with Cut(shape, self._add):
                run(self._block, every, arguments)
        except Stop as stop:
            return stop.value
        raise AssertionError("a block adds as often for each batch")
