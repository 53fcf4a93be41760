"""The activations between two blocks, for all batches: the pruned model's, and the dense model's if they are wanted."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn

from louver.torch.accuracy.blocks import Blocks, Call, Capture, Chain, outputs, run
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


TOKENS: Final = 16384
"""Tokens of a batch. A run adds in the same order whatever memory is free."""

_WIDE: Final = 14336
"""Features up to which a batch has more tokens in proportion, up to four times: small batches leave a GPU idle."""

_SHARE: Final = 0.4
"""The part of a GPU's free memory that activations may take; else they lie on the host."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one text. text: its name. held_out: whether they only choose the damping and measure errors."""

    rows: Tensor
    text: str
    held_out: bool


def batches(texts: Mapping[str, Tensor], held_out: bool, features: int = _WIDE) -> list[Batch]:
    """The rows of texts [rows, …], in batches of at most `TOKENS` tokens, or of one row.

    features: the most of an activation. Narrow ones are in larger batches.
    """
    most = TOKENS * max(1, min(4, _WIDE // features))
    made: list[Batch] = []
    for text, rows in texts.items():
        tokens = rows.shape[1] if rows.dim() > 1 else 1
        made += [Batch(part, text, held_out) for part in rows.split(max(1, most // tokens))]
    return made


class Streams:
    """What the next block of a chain is given, batch by batch. At first this is block 0; `advance` goes on.

    dense: whether the dense model's activations are kept too.
    """

    def __init__(
        self,
        model: nn.Module,
        chain: Chain,
        source: Blocks,
        batches: Sequence[Batch],
        device: torch.device,
        *,
        dense: bool,
    ) -> None:
        self.batches, self.device = batches, device
        capture = Capture(model, chain, source, device)
        # What is used is dropped: inputs of the first block may be large.
        self._calls: list[deque[Call]] = [deque(map(self._placed, capture.calls(batch.rows))) for batch in batches]
        source.store(0, source.load(0))
        self._states: dict[bool, list[list[Any]]] = {False: [[] for _ in batches]}
        if dense:
            self._states[True] = [[] for _ in batches]
        self._home: torch.device | None = None

    def arguments(self, batch: int, *, dense: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the block for a batch, on the device."""
        return self._calls[batch][0].arguments(self._states[dense][batch], self.device)

    def collect(self, block: nn.Module, watch: Watch) -> Generator[dict[Key, Moments]]:
        """What passes over the block collect, batch by batch in their order. Raises UnpairedError."""
        for batch in range(len(self.batches)):

            def arguments(dense: bool, batch: int = batch) -> Any:
                return self.arguments(batch, dense=dense)

            yield watch.moments(block, arguments, self.device)

    def advance(self, block: nn.Module, weights: Mapping[str, Tensor]) -> None:
        """Run the block on all batches: with new weights for the pruned model, with its own for the dense one."""
        if len(self._calls[0]) > 1:
            for dense, states in self._states.items():
                for batch in range(len(states)):
                    with torch.no_grad():
                        result = outputs(run(block, {} if dense else weights, self.arguments(batch, dense=dense)))
                    states[batch] = self._kept(result, self._calls[batch][1].carried)
        for calls in self._calls:
            calls.popleft()

    def _placed(self, call: Call) -> Call:
        """A call as it is kept."""
        return call

    def _kept(self, result: Sequence[Any], carried: set[int]) -> list[Any]:
        """The outputs that the next block is given, where they lie until then."""
        kept = [leaf if at in carried else None for at, leaf in enumerate(result)]
        if self._home is None:
            self._home = self._choose_home(kept)
        return [leaf.to(self._home) if isinstance(leaf, Tensor) else leaf for leaf in kept]

    def _choose_home(self, state: Sequence[Any]) -> torch.device:
        """The device, if all states fit beside what it holds; else the host."""
        if self.device.type != "cuda":
            return self.device
        size = sum(leaf.nbytes for leaf in state if isinstance(leaf, Tensor))
        wanted = size * len(self.batches) * len(self._states)
        free, _ = torch.cuda.mem_get_info(self.device)
        return self.device if wanted < _SHARE * free else torch.device("cpu")
