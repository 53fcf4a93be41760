"""What one pass over a block collects: moments of the inputs of its weights, for one batch."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from louver.torch.accuracy.blocks import run
from louver.torch.accuracy.moments import Moments
from louver.torch.accuracy.products import Collect, Product, Routes, Stop, Weights

Key: TypeAlias = "tuple[str, int | None]"
"""A weight by its name in the block, and the number of the expert in a stack."""


class UnpairedError(Exception):
    """The two models gave a weight different numbers of rows."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True, slots=True)
class Watch:
    """Which inputs a pass collects.

    counts: weights of the block, one of each input, with how often a pass multiplies by them; None: that depends on the
    data. corrected: those whose moments have the dense model's inputs too. The dense block then sends the tokens to the
    experts that the pruned one chose. new: weights of the pruned model in the place of the block's. dense: weights of the
    dense model in the place of the block's, in another order.
    """

    counts: Mapping[str, int | None]
    corrected: frozenset[str]
    new: Mapping[str, Tensor]
    dense: Mapping[str, Tensor]

    def moments(self, block: nn.Module, arguments: Callable[[bool], Any], device: torch.device) -> dict[Key, Moments]:
        """The moments of one batch. arguments: of the block, in the pruned and in the dense model (True).

        Raises UnpairedError for a corrected weight that gets other numbers of rows in the dense model.
        """
        one = _Pass(self, device)
        routes = Routes()
        one.go(block, arguments(False), self.counts, self.new, routes, one.see)
        if self.corrected:
            counts = {name: count for name, count in self.counts.items() if name in self.corrected}
            one.go(block, arguments(True), counts, self.dense, Routes(routes.chosen), one.pair)
        return one.found()


class _Pass:
    """The products that were seen so far."""

    def __init__(self, watch: Watch, device: torch.device) -> None:
        self._corrected, self._device = watch.corrected, device
        self._moments: dict[Key, Moments] = {}
        self._inputs: dict[Key, list[Tensor]] = {}

    def go(
        self,
        block: nn.Module,
        arguments: Any,
        counts: Mapping[str, int | None],
        instead: Mapping[str, Tensor],
        routes: Routes,
        see: Callable[[Product], None],
    ) -> None:
        """Run the block until all products were seen."""
        own = dict(block.named_parameters())
        mode = Collect(Weights({name: instead.get(name, own[name].detach()) for name in counts}), counts, see)
        try:
            with torch.no_grad(), routes, mode:
                run(block, instead, arguments)
        except Stop:
            pass

    def see(self, product: Product) -> None:
        if product.name in self._corrected:
            self._inputs.setdefault((product.name, product.expert), []).append(product.x)
        else:
            self._add(product, None)

    def pair(self, product: Product) -> None:
        waiting = self._inputs.get((product.name, product.expert))
        x = waiting.pop(0) if waiting else None
        if x is None or x.shape != product.x.shape:
            raise UnpairedError(product.name)
        self._add(replace(product, x=x), product.x)

    def found(self) -> dict[Key, Moments]:
        """All moments, once each input has its pair."""
        unpaired = next((name for (name, _), waiting in self._inputs.items() if waiting), None)
        if unpaired is not None:
            raise UnpairedError(unpaired)
        return self._moments

    def _add(self, product: Product, dense: Tensor | None) -> None:
        key = product.name, product.expert
        if key not in self._moments:
            self._moments[key] = Moments(product.x.shape[-1], self._device, dense=dense is not None)
        self._moments[key].add(product.x, dense)
