"""Statistics of the inputs of weights that are pruned together."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from louver.torch.accuracy.blocks import run
from louver.torch.accuracy.moments import Moments
from louver.torch.accuracy.products import Collect, Product, Routes, Stop, Trace, Weights
from louver.torch.accuracy.streams import Streams


@dataclass(frozen=True, slots=True)
class Statistics:
    """Moments of a weight's inputs: of the calibration, and of each held-out text by its name."""

    calibration: Moments
    held_out: Mapping[str, Moments]

    @property
    def tokens(self) -> int:
        """Of the calibration."""
        return self.calibration.count


class _Unpaired(Exception):
    """The two models gave a weight different numbers of rows."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Collector:
    """Collects the moments of the inputs of some weights, by passes that end behind the last of their products.

    weights: those of the block to watch, by name. new: weights of the pruned model that take the place of the block's.
    dense: weights of the dense model that take the place of the block's, in another order. correct: whether moments have the dense model's inputs too. The dense block then sends the tokens to the experts that
    the pruned one chose. Weights that get other numbers of rows all the same are not corrected.
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
        dense: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._streams, self._block, self._trace, self._new = streams, block, trace, new
        self._dense = dense or {}
        self._dense_weights = dict(weights)
        self._pruned_weights = {name: new.get(name, weight) for name, weight in weights.items()}
        # One weight of each input adds it for all.
        self._owners = {trace.sources[name]: name for name in reversed(list(weights))}
        self._corrected = set(self._owners.values()) if correct else set[str]()
        self._moments: dict[tuple[int, int | None, str | None], Moments] = {}
        self._inputs: dict[tuple[str, int | None], list[Tensor]] = {}

    def run(self) -> None:
        """Collect from all batches."""
        try:
            for batch in range(len(self._streams.batches)):
                self._batch(batch)
        except _Unpaired as error:
            self._corrected.remove(error.name)
            self._moments.clear()
            self.run()

    def _batch(self, batch: int) -> None:
        about = self._streams.batches[batch]
        text = about.text if about.held_out else None
        self._inputs = {}
        counts = self._trace.counts
        wanted = {name: counts[name] for name in self._owners.values()}
        mode = Collect(Weights(self._pruned_weights), wanted, lambda product: self._see(product, text))
        routes = Routes()
        self._pass(mode, routes, self._new, batch, dense=False)
        if self._corrected:
            wanted = {name: counts[name] for name in self._corrected}
            mode = Collect(Weights(self._dense_weights), wanted, lambda product: self._pair(product, text))
            self._pass(mode, Routes(routes.chosen), self._dense, batch, dense=True)
        unpaired = next((name for (name, _), waiting in self._inputs.items() if waiting), None)
        if unpaired is not None:
            raise _Unpaired(unpaired)

    def _pass(self, mode: Collect, routes: Routes, new: Mapping[str, Tensor], batch: int, *, dense: bool) -> None:
        try:
            with torch.no_grad(), routes, mode:
                run(self._block, new, self._streams.arguments(batch, dense=dense))
        except Stop:
            pass

    def _see(self, product: Product, text: str | None) -> None:
        if product.name in self._corrected:
            self._inputs.setdefault((product.name, product.expert), []).append(product.x)
        else:
            self._add(product, text, None)

    def _pair(self, product: Product, text: str | None) -> None:
        waiting = self._inputs.get((product.name, product.expert))
        x = waiting.pop(0) if waiting else None
        if x is None or x.shape != product.x.shape:
            raise _Unpaired(product.name)
        self._add(replace(product, x=x), text, product.x)

    def _add(self, product: Product, text: str | None, dense: Tensor | None) -> None:
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
