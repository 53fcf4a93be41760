"""Statistics of the inputs of weights that are pruned together."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from louver.torch.accuracy.blocks import run
from louver.torch.accuracy.moments import Moments
from louver.torch.accuracy.products import Collect, Product, Stop, Trace, Weights
from louver.torch.accuracy.streams import Streams


@dataclass(frozen=True, slots=True)
class Statistics:
    """Moments of a weight's inputs: of the calibration, and of each held-out text by its name."""

    calibration: Moments
    held_out: Mapping[str, Moments]


class Collector:
    """Collects the moments of the inputs of some weights, by passes that end behind the last of their products.

    weights: those of the block to watch, by name. new: weights of the pruned model that take the place of the block's.
    correct: whether moments have the dense model's inputs too. Weights whose input depends on the data's choice of rows
    (experts) get none: the two models choose different rows.
    """

    def __init__(
        self,
        streams: Streams,
        block: nn.Module,
        trace: Trace,
        weights: Mapping[str, Tensor],
        new: Mapping[str, Tensor],
        *,
        correct: bool,
    ) -> None:
        self._streams, self._block, self._trace, self._new = streams, block, trace, new
        self._dense_weights = dict(weights)
        self._pruned_weights = {name: new.get(name, weight) for name, weight in weights.items()}
        # One weight of each input adds it for all.
        self._owners = {trace.sources[name]: name for name in reversed(list(weights))}
        self._corrected = {name for name in self._owners.values() if correct and name not in trace.selected}
        self._moments: dict[tuple[int, int | None, str | None], Moments] = {}
        self._dense_inputs: dict[str, list[Tensor]] = {}

    def run(self, index: int) -> None:
        """Collect from all batches of block `index`."""
        counts = self._trace.counts
        for batch, about in enumerate(self._streams.batches):
            text = about.text if about.held_out else None
            self._dense_inputs = {name: [] for name in self._corrected}
            if self._corrected:
                wanted = {name: counts[name] for name in self._corrected}
                mode = Collect(Weights(self._dense_weights), wanted, self._keep)
                self._pass(mode, {}, index, batch, dense=True)
            wanted = {name: counts[name] for name in self._owners.values()}
            mode = Collect(Weights(self._pruned_weights), wanted, lambda product, text=text: self._add(product, text))
            self._pass(mode, self._new, index, batch, dense=False)

    def _pass(self, mode: Collect, new: Mapping[str, Tensor], index: int, batch: int, *, dense: bool) -> None:
        try:
            with torch.no_grad(), mode:
                run(self._block, new, self._streams.arguments(index, batch, dense=dense))
        except Stop:
            pass

    def _keep(self, product: Product) -> None:
        self._dense_inputs[product.name].append(product.x)

    def _add(self, product: Product, text: str | None) -> None:
        dense = self._dense_inputs[product.name].pop(0) if product.name in self._corrected else None
        key = self._trace.sources[product.name], product.expert, text
        self._of(key, product.x.shape[-1], dense is not None).add(product.x, dense)

    def _of(self, key: tuple[int, int | None, str | None], features: int, dense: bool) -> Moments:
        if key not in self._moments:
            self._moments[key] = Moments(features, self._streams.device, dense=dense)
        return self._moments[key]

    def of(self, name: str, expert: int | None, features: int) -> Statistics:
        """The statistics of a weight, or of one expert's in a stack. There may be no token."""
        source = self._trace.sources[name]
        dense = self._owners[source] in self._corrected
        texts: Sequence[str] = list(dict.fromkeys(batch.text for batch in self._streams.batches if batch.held_out))
        held_out = {text: self._of((source, expert, text), features, dense) for text in texts}
        return Statistics(
            self._of((source, expert, None), features, dense),
            {text: moments for text, moments in held_out.items() if moments.count},
        )

    def is_corrected(self, name: str) -> bool:
        """Whether the weight's moments have the dense model's inputs."""
        return self._owners[self._trace.sources[name]] in self._corrected

    def is_routed(self, name: str) -> bool:
        """Whether the weight's input is not one row for each token, as that of an expert."""
        return name in self._trace.selected
