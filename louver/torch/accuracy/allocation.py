"""Which pattern each layer gets: the choice of least harm at a budget, and its record."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

ROUNDS: Final = 80
"""Halvings of the range in which the price lies, on a logarithmic scale."""


@dataclass(frozen=True, slots=True)
class Option:
    """A pattern for a layer, None for dense. kl: what it costs; cost: its part of what the budget limits."""

    pattern: str | None
    kl: float
    cost: float


def choose(layers: Sequence[Sequence[Option]], limit: float) -> list[Option]:
    """An option for each layer: least sum of KL whose sum of costs is at most `limit`, but for a rest.

    One price of cost decides for all layers: each takes the option of least KL + price · cost. The least price at which
    the limit holds is found by bisection. What the limit then leaves is spent where it saves most KL.

    Raises ValueError if the limit is out of reach, with the least sum of costs.
    """
    least = sum(min(option.cost for option in options) for options in layers)
    if least > limit + 1e-12:
        raise ValueError(f"out of reach: costs of {limit:.6g} are allowed, got {least:.6g} at least")

    def taken(price: float) -> list[Option]:
        return [min(options, key=lambda o: (o.kl + price * o.cost, o.cost)) for options in layers]

    def fits(chosen: Sequence[Option]) -> bool:
        return sum(option.cost for option in chosen) <= limit + 1e-12

    kept = [min(options, key=lambda o: (o.cost, o.kl)) for options in layers]
    low, high = 1e-12, 1e12
    if fits(free := taken(0.0)):
        return free
    for _ in range(ROUNDS):
        price = math.sqrt(low * high)
        chosen = taken(price)
        if fits(chosen):
            kept, high = chosen, price
        else:
            low = price
    return _spent(layers, kept, limit)


def _spent(layers: Sequence[Sequence[Option]], kept: list[Option], limit: float) -> list[Option]:
    """Take the option that saves most KL and still fits, again and again."""
    kept = list(kept)
    while True:
        rest = limit + 1e-12 - sum(option.cost for option in kept)
        better = [
            (kept[at].kl - option.kl, at, option)
            for at, options in enumerate(layers)
            for option in options
            if option.kl < kept[at].kl and option.cost - kept[at].cost <= rest
        ]
        if not better:
            return kept
        _, at, option = max(better, key=lambda each: each[0])
        kept[at] = option


@dataclass(frozen=True, slots=True)
class LayerChoice:
    """A layer of an allocation. pattern: chosen, None for dense. kl: of the model with this layer pruned alone, and
    zeros: share of the weight, both by pattern.

    us: µs of a product by pattern ("dense" too), the mean over the numbers of tokens; empty for a budget of zeros.
    """

    name: str
    shape: tuple[int, ...]
    pattern: str | None
    kl: Mapping[str, float]
    zeros: Mapping[str, float]
    us: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Allocation(Mapping[str, "str | None"]):
    """Patterns by the name of a layer, None for dense: what `allocate` chose, for `prune_(model, per_layer=…)`.

    budget: as asked. layers: a record for each linear layer, and each stack of experts, which
    stays dense. kl: sum over layers, in nats: what pruning may cost if harms add up.
    zeros: share over the prunable weights. speedup: dense time over sparse time of the products with these weights; None
    for a budget of zeros. measured: whether times were measured here, rather than predicted for an H200.
    """

    budget: str
    layers: tuple[LayerChoice, ...]
    kl: float
    zeros: float
    speedup: float | None
    measured: bool
    tokens: tuple[int, ...]

    def __getitem__(self, name: str) -> str | None:
        found = next((layer for layer in self.layers if layer.name == name), None)
        if found is None:
            raise KeyError(f"{name!r} is no layer of the allocation")
        return found.pattern

    def __iter__(self) -> Iterator[str]:
        return (layer.name for layer in self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def json(self) -> str:
        """All fields."""
        return json.dumps(asdict(self), indent=1)

    def __str__(self) -> str:
        rows = [("layer", "shape", "pattern", "KL by pattern")]
        rows += [
            (
                each.name,
                " × ".join(map(str, each.shape)),
                each.pattern or "dense",
                ", ".join(f"{pattern} {kl:.2g}" for pattern, kl in each.kl.items()),
            )
            for each in self.layers
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = ["  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[3]]) for row in rows]
        origin = "measured" if self.measured else "predicted for an H200"
        speed = (
            ""
            if self.speedup is None
            else f", {self.speedup:.2f} × as fast at {_listed(self.tokens)} tokens ({origin})"
        )
        return "\n".join([*lines, f"{self.budget}: {self.zeros:.1%} zeros{speed}, KL {self.kl:.3g} if harms add up"])


def _listed(tokens: Sequence[int]) -> str:
    return ", ".join(map(str, tokens))
