"""`mask_`: dense layers that multiply by their weights pruned anew every some steps, to train from scratch or further.

The forward pass multiplies by the kept values of the present mask. All values train: the gradient of the weight is that
of the pruned one, as if pruning were the identity (straight-through), and pruned values decay (SR-STE, Zhou et al.,
arXiv 2102.04010, equation 6). With transposable masks the gradient of x is a sparse product too.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from louver.formats.dtypes import check_switch
from louver.formats.pattern import Pattern
from louver.formats.prune import check_transposable
from louver.torch.accuracy.masks import keep
from louver.torch.core import compressed
from louver.torch.layers import Stack, dense_layers, is_hooked
from louver.torch.linear import SparseLinear
from louver.torch.operators import OPS
from louver.torch.swap import as_lines, misfit, refusal

DECAY = 2e-4
"""Of pruned values, as a share added to their gradients."""


class MaskedLinear(nn.Linear):
    """A dense `torch.nn.Linear` whose products read the kept values of its weight.

    indices: of the present mask, as of a `SparseLinear`. `weight` and `bias` are the parameters of the layer before.
    """

    indices: Tensor
    values: Tensor

    def __init__(self, layer: Any, pattern: Pattern, *, transposable: bool, decay: float) -> None:
        super().__init__(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
        self.weight, self.bias = layer.weight, layer.bias
        self.pattern, self.transposable, self.decay = str(pattern), transposable, decay
        self.register_buffer("indices", self._chosen())
        # Of the last product, in memory of its own, because products find what they derive from indices by addresses.
        self.register_buffer("values", OPS.take(layer.weight.detach(), self.indices, self.pattern), persistent=False)
        self.train(layer.training)

    def _chosen(self) -> Tensor:
        pattern, weight = Pattern.parse(self.pattern), self.weight.detach()
        mask = keep(weight.float().abs(), pattern, transposable=self.transposable)
        # The mask has the kept places alone, so that zeros among the values do not matter.
        return compressed(mask.to(weight.dtype), self.pattern, prune=True)[1]

    def choose_(self) -> None:
        """Choose the mask anew by the magnitudes of the weight. Does not wait for a GPU."""
        self.indices.copy_(self._chosen())

    def sparse(self) -> SparseLinear:
        """The sparse layer of the present mask, with values of its own and this bias."""
        made = SparseLinear.like(self, self.pattern)
        values = OPS.take(self.weight.detach(), self.indices, self.pattern)
        made.weight.values = nn.Parameter(values, self.weight.requires_grad)
        made.weight.indices = nn.Parameter(self.indices.clone(), False)
        made.bias, made.dense_class = self.bias, nn.Linear
        return made

    def forward(self, input: Tensor) -> Tensor:
        x, weight, bias, device = input, self.weight, self._parameters["bias"], input.device.type
        if torch.is_autocast_enabled(device):
            kind = torch.get_autocast_dtype(device)
            x, bias = x.to(kind), None if bias is None else bias.to(kind)
        # Values that are made in inference mode could not be written in training.
        with torch.inference_mode(False), torch.no_grad():
            values = OPS.take(weight.detach().to(x.dtype), self.indices, self.pattern)
            if self.values.dtype == values.dtype:
                self.values.copy_(values)
            else:
                self.values = values
        return _Masked.apply(x, weight, bias, self.values, self.indices, self.pattern, self.decay)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, {self.pattern}{', transposable' if self.transposable else ''}"


class _Masked(torch.autograd.Function):
    """The product of a layer. values: of the weight, in the type of x."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        x, weight, bias, values, indices, ctx.pattern, ctx.decay = given
        # The weight cannot change before the backward pass, and the values are those of the weight.
        ctx.save_for_backward(x, weight, indices)
        ctx.values, ctx.bias = values, None if bias is None else bias.dtype
        return OPS.linear(x, values, indices, bias, pattern=ctx.pattern)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight, indices = ctx.saved_tensors
        g, flat, size = grads[0].reshape(-1, weight.shape[0]), x.reshape(-1, x.shape[-1]), weight.shape[1]
        g_x = g_weight = g_bias = None
        if ctx.needs_input_grad[0]:
            g_x = OPS.transposed(g, ctx.values, indices, size, ctx.pattern).reshape(x.shape)
        if ctx.needs_input_grad[1]:
            g_weight = (g.t() @ flat).to(weight.dtype)
            if ctx.decay:
                kept = OPS.dense(OPS.take(weight.detach(), indices, ctx.pattern), indices, size, ctx.pattern)
                g_weight.add_(weight.detach() - kept, alpha=ctx.decay)
        if ctx.needs_input_grad[2]:
            g_bias = g.sum(0).to(ctx.bias)
        return g_x, g_weight, g_bias, None, None, None, None


class Masks:
    """The layers of a model that `mask_` changed, by name, and the steps since.

    steps: set it to go on with a run, after `load_state_dict`; the masks are in the model's state.
    """

    def __init__(self, model: nn.Module, layers: dict[str, MaskedLinear], every: int) -> None:
        self.layers, self.every, self.steps = layers, every, 0
        self._model = model

    def step(self) -> bool:
        """Count a step, behind `optimizer.step()`; every `every` of them choose the masks anew. Returns whether this did.

        Raises TypeError for weights that were divided since.
        """
        chosen = (self.steps + 1) % self.every == 0
        if chosen:
            self._check_whole()
        self.steps += 1
        for layer in self.layers.values() if chosen else ():
            layer.choose_()
        return chosen

    def settle_(self) -> None:
        """End with the present masks: the layers become `SparseLinear`, whose values train on. Make optimizers afterwards.

        Raises TypeError for weights that were divided since, and ValueError for layers that got hooks since.
        """
        self._check_whole()
        hooked = next((name for name, layer in self.layers.items() if is_hooked(layer)), None)
        if hooked is not None:
            raise ValueError(
                f"a layer with hooks is not exchanged, got {hooked}: remove them, and attach them afterwards"
            )
        made: dict[nn.Module, nn.Module] = {layer: layer.sparse() for layer in self.layers.values()}
        # A layer may be in several places, which share one weight.
        places = [
            (name, made[each]) for name, each in self._model.named_modules(remove_duplicate=False) if each in made
        ]
        for name, sparse in places:
            self._model.set_submodule(name, sparse)
        self.layers = {}

    def _check_whole(self) -> None:
        for name, layer in self.layers.items():
            if type(layer.weight) is not nn.Parameter:
                raise TypeError(
                    f"masks are chosen of whole weights, got {name} with a {type(layer.weight).__name__}: take DDP, or settle_ "
                    "before fully_shard"
                )


def mask_(
    model: nn.Module,
    pattern: str | Pattern = "2:4",
    *,
    every: int,
    transposable: bool = False,
    decay: float = DECAY,
    skip: Collection[str] = (),
) -> Masks:
    """Let the linear layers of a dense model train with masks that are chosen anew, by magnitude, every `every` steps.

    Parameters stay the same objects, so optimizers stay valid. Heads, routers, tied weights, stacks of experts and
    layers with hooks stay as they are.

    pattern: along the input features. transposable: masks keep 2:4 along both axes; forward and the gradient of x are
        then sparse products.
    decay: of pruned values, as a share added to their gradients (SR-STE). 0: straight-through alone.
    skip: names of layers to leave, with `*` and `?` as in file names.

    Raises TypeError and ValueError for bad arguments, and if no layer is left; then nothing has changed.
    """
    found = Pattern.parse(pattern)
    check_switch("transposable", transposable)
    if transposable:
        check_transposable(found, 2, 1)
    if type(every) is not int or every < 1:
        raise ValueError(f"every is a number of steps, 1 or more, got {every!r}")
    if not 0 <= decay < float("inf"):
        raise ValueError(f"decay is 0 or more, got {decay!r}")
    rows = [(layer, refusal(layer, skip) or _unfit(layer, found)) for layer in dense_layers(model)]
    chosen = [layer for layer, reason in rows if reason is None]
    if not chosen:
        raise ValueError(f"no linear layer is left to mask by {found}, got\n{as_lines(rows)}")
    made = [MaskedLinear(layer.module, found, transposable=transposable, decay=decay) for layer in chosen]
    for layer, masked in zip(chosen, made, strict=True):
        layer.put(masked)
    return Masks(model, {layer.name: masked for layer, masked in zip(chosen, made, strict=True)}, every)


def _unfit(layer: Any, pattern: Pattern) -> str | None:
    """Why a layer takes no mask."""
    if isinstance(layer, Stack) or type(layer.module) is not nn.Linear:
        return f"it is a {type(layer.module).__name__}, not a torch.nn.Linear"
    if type(layer.stored) is not nn.Parameter:
        return f"its weight is a {type(layer.stored).__name__}: mask the model before it is distributed or wrapped"
    if not layer.stored.is_floating_point() or layer.stored.itemsize == 1:
        return f"its weight is of {layer.stored.dtype}: train it in 16 or 32 bits"
    return misfit(layer, pattern)
