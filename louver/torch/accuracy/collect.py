"""Statistics of the inputs of weights that are pruned together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from louver.torch.accuracy.moments import Moments
from louver.torch.accuracy.products import Trace
from louver.torch.accuracy.streams import Streams, UnpairedError, Watch


@dataclass(frozen=True, slots=True)
class Statistics:
    """Moments of a weight's inputs: of the calibration, and of each held-out text by its name."""

    calibration: Moments
    held_out: Mapping[str, Moments]

    @property
    def tokens(self) -> int:
        """Of the calibration."""
        return self.calibration.count


class Collector:
    """Collects the moments of the inputs of some weights, by passes that end behind the last of their products.

    names: of the weights, in the block. new, dense: see `Watch`. correct: whether moments have the dense model's inputs
    too. Weights that get other numbers of rows in the dense model are not corrected.
    """

    def __init__(
        self,
        streams: Streams,
        block: nn.Module,
        trace: Trace,
        names: Collection[str],
        new: Mapping[str, Tensor],
        *,
        correct: bool,
        dense: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._streams, self._block, self._trace, self._new = streams, block, trace, new
        self._dense = dense or {}
        # One weight of each input adds it for all.
        self._owners = {trace.sources[name]: name for name in reversed(list(names))}
        self._corrected = set(self._owners.values()) if correct else set[str]()
        self._moments: dict[tuple[str, int | None, str | None], Moments] = {}

    def run(self) -> None:
        """Collect from all batches. Their sums are added in f64, in the order of the batches."""
        counts = {name: self._trace.counts[name] for name in self._owners.values()}
        totals = dict[tuple[str, int | None, str | None], Moments]()
        watch = Watch(counts, frozenset(self._corrected), self._new, self._dense)
        try:
            for about, found in zip(self._streams.batches, self._streams.collect(self._block, watch), strict=True):
                text = about.text if about.held_out else None
                for (name, expert), moments in found.items():
                    if (total := totals.get((name, expert, text))) is None:
                        totals[name, expert, text] = moments.to(torch.float64)
                    else:
                        total.merge(moments)
        except UnpairedError as error:
            self._corrected.remove(error.name)
            self.run()
            return
        # One after the other, so that not all are there twice.
        for key in totals:
            totals[key] = totals[key].to(torch.float32)
        self._moments = totals

    def of(self, name: str, expert: int | None, features: int) -> Statistics:
        """The statistics of a weight, or of one expert's in a stack. There may be no token."""
        owner = self._owners[self._trace.sources[name]]
        none = Moments(features, self._streams.device, dense=owner in self._corrected)
        texts = dict.fromkeys(batch.text for batch in self._streams.batches if batch.held_out)
        held_out = {text: self._moments.get((owner, expert, text)) for text in texts}
        return Statistics(
            self._moments.get((owner, expert, None), none),
            {text: moments for text, moments in held_out.items() if moments is not None and moments.count},
        )

    def is_corrected(self, name: str) -> bool:
        """Whether the weight's moments have the dense model's inputs."""
        return self._owners[self._trace.sources[name]] in self._corrected

    def is_routed(self, name: str) -> bool:
        """Whether the weight's input is not one row for each token, as that of an expert."""
        return name in self._trace.selected
