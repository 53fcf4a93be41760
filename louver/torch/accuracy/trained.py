"""What a distillation trains: f32 masters of a model's parameters, their masks, and the optimizer.

The model multiplies by its own parameters, perhaps in 16 bits. Each step adds up in the masters, which keep small
changes. Nothing here waits for the device.
"""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from louver.torch.accuracy.moving import Moving
from louver.torch.layers import linear_layers

PRUNED: Final = 0.05
"""Least share of zeros of a weight that is taken as pruned. Weights that no one pruned have far fewer."""

_torch: Any = torch
"""With functions that its stubs leave out: one kernel for many tensors."""

BETAS: Final = (0.9, 0.95)
CLIP: Final = 1.0
"""Most norm of all gradients together."""

WARM: Final = 3
"""Steps before one is captured in a CUDA graph."""

DECAY: Final = 2e-4
"""Of pruned values while masks move, as a share added to their gradient: SR-STE, arXiv 2102.04010, equation 6."""


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that require grad, by name, but for embeddings and heads.

    Raises ValueError if none is left.
    """
    fixed = {
        id(parameter)
        for module in (
            *(module for module in model.modules() if isinstance(module, nn.Embedding)),
            *(layer.module for layer in linear_layers(model) if layer.is_head),
        )
        for parameter in module.parameters(recurse=False)
    }
    found = {name: p for name, p in model.named_parameters() if p.requires_grad and id(p) not in fixed}
    if not found:
        raise ValueError(
            f"a model to distill has parameters that require grad beside embeddings and head, got {type(model).__name__} without one: call model.requires_grad_(True)"
        )
    return found


def zero_masks(parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Where pruned weights are not zero, as bool. A weight is pruned if a share `PRUNED` of it or more is zero."""
    masks = {name: p.detach() != 0 for name, p in parameters.items() if p.ndim > 1}
    return {name: mask for name, mask in masks.items() if 1 - mask.float().mean().item() >= PRUNED}


class Trained:
    """Masters, masks and Adam of a model's parameters."""

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        masters: Sequence[Tensor],
        masks: Mapping[str, Tensor],
        moving: Mapping[str, Moving],
    ) -> None:
        """masters: f32, in the order of `parameters`; masks: bool, of some of them; moving: of some of these."""
        self.names = list(parameters)
        self._parameters = list(parameters.values())
        self.masters = [nn.Parameter(each) for each in masters]
        self._at = [at for at, name in enumerate(self.names) if name in masks]
        # Of the type of the gradients, so that one kernel masks many of them.
        self.masks = [masks[self.names[at]].to(self._parameters[at].dtype) for at in self._at]
        self._moving = {order: moving[self.names[at]] for order, at in enumerate(self._at) if self.names[at] in moving}
        self.moves = bool(moving)
        self._device = self.masters[0].device
        # On a GPU the rate is read there, so that a graph of a step reads each step's own.
        on = self._device.type == "cuda"
        self._rate: Any = torch.zeros((), device=self._device) if on else 0.0
        self._optimizer = torch.optim.Adam(self.masters, lr=self._rate, betas=BETAS, fused=True, capturable=on)
        self._steps = 0 if on else None
        self._graph: Any = None
        self.notes: list[str] = []
        self._gradients: list[Tensor] = []
        for master in self.masters:
            master.grad = torch.zeros_like(master)
        self._write()

    def step(self, rate: float) -> None:
        """One step of Adam by the gradients of the parameters, which are then dropped."""
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        if isinstance(self._rate, Tensor):
            self._rate.fill_(rate)
        else:
            for group in self._optimizer.param_groups:
                group["lr"] = rate
        if self._graph is None:
            self._update(gradients)
            self._capture(gradients)
        else:
            moved = [(k, g) for k, g in zip(self._gradients, gradients, strict=True) if k.data_ptr() != g.data_ptr()]
            if moved:
                kept, new = zip(*moved, strict=True)
                _torch._foreach_copy_(list(kept), list(new))
            self._graph.replay()
        for parameter in self._parameters:
            parameter.grad = None

    def close(self) -> None:
        """Drop the graph of a step."""
        self._graph, self._gradients = None, []

    def _update(self, gradients: list[Tensor]) -> None:
        """Change the gradients to those of the masters, and step."""
        fixed = [order for order in range(len(self._at)) if not (self.moves and order in self._moving)]
        if fixed:
            _torch._foreach_mul_(
                [gradients[self._at[order]] for order in fixed], [self.masks[order] for order in fixed]
            )
        grads: list[Any] = [master.grad for master in self.masters]
        _torch._foreach_copy_(grads, gradients)
        for order in self._moving if self.moves else ():
            at = self._at[order]
            grads[at].add_(self.masters[at].detach() * (1 - self.masks[order]), alpha=DECAY)
        torch.nn.utils.clip_grad_norm_(self.masters, CLIP, foreach=True)
        self._optimizer.step()
        self._write()

    def _capture(self, gradients: list[Tensor]) -> None:
        """After some steps on a GPU, capture a step in a CUDA graph: its hundreds of kernels take the host longer."""
        if self._steps is None or self.moves:
            return
        self._steps += 1
        if self._steps < WARM:
            return
        self._gradients, self._steps = gradients, None
        try:
            made = torch.cuda.CUDAGraph()
            with torch.cuda.device(self._device), torch.cuda.graph(made):
                self._update(gradients)
            self._graph = made
        except RuntimeError as error:
            self.notes.append(f"no CUDA graph of a step: {str(error).splitlines()[0]}")

    def move(self) -> None:
        """Choose the masks that move anew."""
        for order, moving in self._moving.items():
            at = self._at[order]
            self.masks[order].copy_(moving.mask(self.masters[at].detach()))
        self._write()

    def settle(self) -> None:
        """End the moving of masks: pruned values become zero and stay so."""
        self.moves = False
        for order, at in enumerate(self._at):
            with torch.no_grad():
                self.masters[at].mul_(self.masks[order])
            for state in self._optimizer.state[self.masters[at]].values():
                if state.shape == self.masters[at].shape:
                    state.mul_(self.masks[order])

    def values(self) -> Iterator[tuple[str, Tensor]]:
        """The names of the parameters, with f32 values whose pruned places are zero."""
        masks = dict(zip(self._at, self.masks, strict=True))
        for at, (name, master) in enumerate(zip(self.names, self.masters, strict=True)):
            yield name, master.detach() * masks[at] if at in masks else master.detach()

    def state(self) -> dict[str, Any]:
        """Everything that `load` needs to go on with the same bits."""
        return {
            "masters": [master.detach() for master in self.masters],
            "masks": [mask.bool() for mask in self.masks],
            "adam": self._optimizer.state_dict(),
            "moves": self.moves,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Become what `state` described."""
        with torch.no_grad():
            for master, saved in zip(self.masters, state["masters"], strict=True):
                master.copy_(saved)
        for mask, saved in zip(self.masks, state["masks"], strict=True):
            mask.copy_(saved)
        self._optimizer.load_state_dict(dict(state["adam"]))
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate
        self._graph, self._steps = None, 0 if self._device.type == "cuda" else None
        self.moves = state["moves"]
        self._write()

    def _write(self) -> None:
        """Give the model its parameters."""
        with torch.no_grad():
            if self.moves:
                for parameter, (_, value) in zip(self._parameters, self.values(), strict=True):
                    parameter.copy_(value)
            else:
                # Pruned places of masters are zero, and get no gradient.
                _torch._foreach_copy_(self._parameters, [master.detach() for master in self.masters])
