"""`louver.models.advise`: compares formats for all weights of a model, at several numbers of tokens."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from louver.advice.formats import Format, Loss, formats_of, losses
from louver.advice.product import device_at_hand, device_named, notes_of
from louver.advice.rates import ORIGINS, Measured, Origin, Time, known, time_of
from louver.formats.checkpoint import Checkpoint, listed, open_checkpoint
from louver.formats.pattern import Pattern
from louver.formats.schema import DenseForm, RawForm
from louver.models.analyze import analyze
from louver.models.evidence.config import Config, read_config
from louver.models.kept import Kept, kept_by
from louver.models.roles import ModelFacts, Role, TensorFacts
from louver.models.steps import Source

Timer: TypeAlias = Callable[[Iterable[Format], int, int, int], Mapping[Format, Time | str]]
"""Measures formats of a product of sizes M, N and K: times, or why there is none."""

GRID: Final = tuple(n for power in range(14) for n in (2**power, 3 * 2**power // 2) if n <= 8192)
"""Tokens at which predicted times are drawn."""


CLEAR: Final = 0.03
"""Relative difference of two times from which on one of them is clearly less."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """From this number of tokens on, one format is clearly faster than another that was clearly faster before."""

    tokens: int
    ahead: Format
    behind: Format


@dataclass(frozen=True, slots=True)
class Layer:
    """A weight [m, k], or a stack of `count` of them. share: of the tokens that reach each of the stack.

    kept: what each pattern keeps of it.
    """

    name: str
    m: int
    k: int
    count: int
    share: float
    kept: Mapping[Pattern, Kept]

    def tokens(self, n: int) -> int:
        """Tokens of each product for n tokens of a call."""
        return max(1, math.ceil(n * self.share))


@dataclass(frozen=True, slots=True)
class ModelAdvice:
    """Formats of all weights of a model that `louver prune` prunes. device: the GPU.

    times: of a product, by format, M, N and K; None if there is no such product, or no time is known. notes: what to know.
    """

    device: str
    tokens: tuple[int, ...]
    formats: tuple[Format, ...]
    layers: tuple[Layer, ...]
    times: Mapping[tuple[Format, int, int, int], Time | None]
    notes: tuple[str, ...]

    def time(self, layer: Layer, format: Format, n: int) -> Time | None:
        """µs of a layer for n tokens, all products of a stack."""
        one = self.times.get((format, layer.m, layer.tokens(n), layer.k))
        return None if one is None else scaled(one, layer.count)

    def total(self, format: Format, n: int) -> Time | None:
        """µs of all layers; None if one is unknown. The interval is that of times that are all too low, or all too high."""
        found = [self.time(layer, format, n) for layer in self.layers]
        known_times = [each for each in found if each is not None]
        if len(known_times) < len(found):
            return None
        us, low, high = (math.fsum(getattr(each, end) for each in known_times) for end in ("us", "low", "high"))
        origins: set[Origin] = {each.origin for each in known_times}
        worst: Origin = min(origins, key=ORIGINS.index)
        return Time(us, low, high, worst, next((each.note for each in known_times if each.note), ""))

    def fastest(self, n: int) -> Format | None:
        """The format with the least total for n tokens; None if no total is known."""
        totals = {each: time.us for each in self.formats if (time := self.total(each, n)) is not None}
        return min(totals, key=lambda each: totals[each]) if totals else None

    def nbytes(self, format: Format) -> int:
        """Bytes of all layers in a format."""
        return sum(layer.count * format.nbytes(layer.m, layer.k) for layer in self.layers)

    def kept(self, format: Format) -> tuple[int, float] | None:
        """How many layers hold the format's pattern, and the mean share of |w| that it keeps; None for a dense format, and
        where no layer was read for the pattern.
        """
        if format.pattern is None:
            return None
        found = [layer.kept.get(Pattern.parse(format.pattern)) for layer in self.layers]
        seen = [each for each in found if each is not None]
        if not seen:
            return None
        return sum(each.holds for each in seen), math.fsum(each.share for each in seen) / len(seen)

    def loss(self, format: Format) -> Loss | None:
        """What the record of accuracy says of a format."""
        return losses().of(format)

    @property
    def drawn(self) -> tuple[int, ...]:
        """Tokens at which all times are known: those of a picture."""
        return tuple(sorted({n for n in (*GRID, *self.tokens) if self.fastest(n) is not None}))

    @property
    def leaders(self) -> tuple[tuple[int, Format], ...]:
        """From how many tokens on which format is the fastest, of the tokens that are drawn."""
        found: list[tuple[int, Format]] = []
        for n in self.drawn:
            best = self.fastest(n)
            if best is not None and (not found or found[-1][1] != best):
                found.append((n, best))
        return tuple(found)

    @property
    def crossings(self) -> tuple[Crossing, ...]:
        """Where the lines of two formats cross, of the tokens that are drawn; by tokens. Differences up to `CLEAR` do not count."""
        lines = {each: [(n, time.us) for n in self.drawn if (time := self.total(each, n))] for each in self.formats}
        found: list[Crossing] = []
        for first, second in itertools.combinations(self.formats, 2):
            before, other = None, dict(lines[second])
            for n, us in lines[first]:
                if n not in other or max(us, other[n]) <= (1 + CLEAR) * min(us, other[n]):
                    continue
                ahead, behind = (first, second) if us < other[n] else (second, first)
                if before not in (None, ahead):
                    found.append(Crossing(n, ahead, behind))
                before = ahead
        return tuple(sorted(found, key=lambda each: each.tokens))


def scaled(time: Time, count: int) -> Time:
    """The time of `count` such products."""
    return Time(count * time.us, count * time.low, count * time.high, time.origin, time.note)


def advise(
    path: str | os.PathLike[str],
    tokens: Sequence[int] = (1, 64, 4096),
    *,
    device: str | None = None,
    formats: Iterable[str | Format] | None = None,
    timer: Timer | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> ModelAdvice:
    """Compares formats for the weights of a model, those that `louver.models.analyze` says to prune or that are sparse.

    path: a folder with config.json and a checkpoint. tokens: of a call. formats, device: as `louver.advise`.
    timer: measures each product on the GPU at hand, such as `louver.measure.advise.timer(torch)`; None: times are recorded
    or predicted. progress: called with the finished share.

    Each weight is one product; layers that `compress_` joins, such as q, k and v, take less time as one. Of experts, each gets
    its share of the tokens, by num_experts_per_tok of the configuration. Reads weights as `kept_by` says. Raises ValueError for
    a folder without a configuration or without such weights, FormatError and OSError.
    """
    counts = tuple(dict.fromkeys(tokens))
    if not counts or any(type(n) is not int or n < 1 for n in counts):
        raise ValueError(f"tokens are positive numbers, at least one, got {tokens!r}")
    if timer is not None and device is not None:
        raise ValueError(f"formats are measured on the GPU at hand: leave out timer or device, got {device!r}")
    where = device_at_hand() if device is None else device_named(device)
    wanted, checkpoint = formats_of(formats), open_checkpoint(path)
    config, notes = read_config(checkpoint.path.parent)
    if config.path is None:
        raise ValueError(
            f"a model is a folder with config.json beside its weights, got {checkpoint.path.parent} without one: for one "
            "weight give M N K"
        )
    facts = analyze(path)
    layers = _layers(checkpoint, facts, config, wanted, progress)
    if not layers:
        raise ValueError(
            f"no weight of {path} can be pruned ({facts.examples}): louver prune --dry-run has all reasons"
        )
    measured: dict[tuple[Format, int, int, int], Time | str] = {}
    points = counts if timer is not None else tuple(dict.fromkeys((*counts, *GRID)))
    shapes = dict.fromkeys((layer.m, layer.tokens(n), layer.k) for n in points for layer in layers)
    for m, n, k in shapes if timer is not None else ():
        assert timer is not None
        measured |= {(each, m, n, k): time for each, time in timer(wanted, m, n, k).items()}
    times = _times(wanted, shapes, where, measured)
    origins = notes_of(where, known().get(where), bool(measured))
    return ModelAdvice(where, counts, wanted, layers, times, (*notes, *facts.notes, *_left(facts), *origins))


def _times(
    formats: Iterable[Format], shapes: Iterable[tuple[int, int, int]], device: str, measured: Measured
) -> dict[tuple[Format, int, int, int], Time | None]:
    there = known().get(device)
    return {
        (each, *shape): None if each.refusal(*shape) else time_of(each, *shape, there, measured)
        for shape in shapes
        for each in formats
    }


def _layers(
    checkpoint: Checkpoint,
    facts: ModelFacts,
    config: Config,
    formats: Iterable[Format],
    progress: Callable[[float], None],
) -> tuple[Layer, ...]:
    source = Source.of(checkpoint.files)
    patterns = [Pattern.parse(each.pattern) for each in formats if each.pattern is not None]
    weights = [each for each in facts.tensors.values() if _is_weight(each)]
    experts, chosen = _experts(weights, config)
    found: list[Layer] = []
    for index, each in enumerate(weights):
        progress(index / len(weights))
        shape, axis = each.form.shape, each.axis
        assert axis is not None
        stack = math.prod(shape[:-2])
        m = math.prod(shape) // stack // shape[axis]
        total = stack if stack > 1 else experts.get(_family(each.name), 1)
        share = min(1.0, chosen / total) if total > 1 else 1.0
        kept = kept_by(source, each, list(dict.fromkeys(patterns)))
        found.append(Layer(each.name, m, shape[axis], stack, share, kept))
    return tuple(found)


def _is_weight(facts: TensorFacts) -> bool:
    """Whether a product contracts a weight that is pruned by default, or is sparse already."""
    sparse = facts.role is Role.WEIGHT and not isinstance(facts.form, DenseForm | RawForm)
    return (facts.prune or sparse) and facts.axis is not None and len(facts.form.shape) >= 2


def _family(name: str) -> str:
    """The name of an expert's weight without the number of the expert."""
    before, found, after = name.partition(".experts.")
    number, dot, rest = after.partition(".")
    return f"{before}.experts.{rest}" if found and dot and number.isdecimal() else ""


def _experts(weights: Sequence[TensorFacts], config: Config) -> tuple[Mapping[str, int], int]:
    """The number of experts by family, and how many of them a token reaches."""
    counts: dict[str, int] = {}
    for each in weights:
        family = _family(each.name)
        if family:
            counts[family] = counts.get(family, 0) + 1
    chosen = config.fields.get("num_experts_per_tok")
    return counts, chosen if type(chosen) is int and chosen > 0 else 1


def _left(facts: ModelFacts) -> tuple[str, ...]:
    """A note on the products that are not counted."""
    names = tuple(name for name, each in facts.tensors.items() if each.axis is not None and not _is_weight(each))
    return (f"not counted, they stay dense: {listed(names)}",) if names else ()
