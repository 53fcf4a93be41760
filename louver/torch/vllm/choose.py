"""Decides which weights of a served model become sparse, and makes them. Knows nothing of vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

import torch
from torch import Tensor, nn

from louver.formats.pattern import Pattern
from louver.torch.layers import Layer
from louver.torch.linear import SparseLinear, SparseWeight
from louver.torch.ready import checked_tokens
from louver.torch.report import Row
from louver.torch.swap import PATTERNS, Swapper, choices_of

Rounded: TypeAlias = Literal["e4m3"]

TYPES: Final = {"e4m3": torch.float8_e4m3fn}
"""The types that weights can be rounded to when they are loaded."""


ROUNDED: Final = "e4m3, with a scale for each row and token"
"""Said of weights that are."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a user asks for; the arguments are those of `louver.torch.compress_`.

    to: "e4m3" rounds the sparse weights, with a scale for each row; calls then round each token.
    """

    tokens: tuple[int, ...] = (1, 16, 2048)
    patterns: tuple[str, ...] = PATTERNS
    skip: tuple[str, ...] = ()
    force: bool = False
    to: Rounded | None = None

    def __post_init__(self) -> None:
        checked_tokens(self.tokens)
        for pattern in self.patterns:
            Pattern.parse(pattern)
        if self.to is not None and self.to not in TYPES:
            raise ValueError(f'weights are served as they are (to=None) or rounded to "e4m3", got to={self.to!r}')


@dataclass(frozen=True, slots=True)
class _Weight(Layer):
    """The weight of a layer of vLLM, in a `torch.nn.Linear` that stands for it.

    codes, scale: of a weight that is stored in 8 bits; then `module` has the same weight in 16 bits.
    to: the type that a sparse weight is rounded to.
    """

    codes: Tensor | None = None
    scale: Tensor | None = None
    to: torch.dtype | None = None

    def sparse(self, pattern: str | Pattern) -> Any:
        made = SparseLinear.of(self.module, pattern)
        made.weight = sparse_weight(self.module.weight, pattern, self.name, self.codes, self.scale, self.to)
        return made


def sparse_weight(
    w: Tensor,
    pattern: str | Pattern,
    name: str,
    codes: Tensor | None = None,
    scale: Tensor | None = None,
    to: torch.dtype | None = None,
) -> SparseWeight:
    """The sparse weight of a dense one. codes, scale: if it is stored in 8 bits. to: the type to round it to.

    Raises ValueError for a group of too many non-zeros, and for NaN or infinity in a weight to round.
    """
    made = SparseWeight.of(w if codes is None else codes, pattern)
    with torch.inference_mode(False), torch.no_grad():
        if codes is not None and scale is not None:
            made.quantized_(made.values, scale.float(), w.dtype)
        elif to is not None:
            values, rows = made.rounded(to)
            if not bool(rows.isfinite().all()):
                raise ValueError(f"a weight to round is finite, got NaN or infinity in {name}")
            made.quantized_(values, rows, w.dtype)
    return made


@dataclass(slots=True)
class Chooser:
    """Chooses for the layers of a model, one after the other. Each shape is timed once.

    rows: of the report, by the layer's name.
    """

    options: Options
    rows: dict[str, Row] = field(default_factory=dict[str, Row])
    _swappers: dict[bool, Swapper] = field(default_factory=dict[bool, Swapper])

    def choose(
        self,
        name: str,
        w: Tensor,
        bias: Tensor | None,
        *,
        codes: Tensor | None = None,
        scale: Tensor | None = None,
        patterns: Sequence[Pattern] = (),
        refused: str | None = None,
    ) -> SparseWeight | None:
        """The sparse weight to serve with; None if the layer stays as it is. `rows` has the reason.

        w: [rows, K], on the device that multiplies. codes, scale: of a weight that is stored in 8 bits.
        patterns: that the checkpoint says the weight keeps, by default those of the options.
        refused: why the layer stays as it is, whatever its weight.
        """
        options = self.options
        rounds = codes is not None or options.to is not None
        swapper = self._swappers.setdefault(rounds, Swapper(options.tokens, options.force))
        holder = nn.Module()
        with torch.device("meta"):
            linear = nn.Linear(w.shape[1], w.shape[0], bias is not None, dtype=w.dtype)
        linear.weight = nn.Parameter(w, False)
        if bias is not None:
            linear.bias = nn.Parameter(bias.detach(), False)
        holder.add_module("layer", linear)
        to = None if options.to is None or codes is not None else TYPES[options.to]
        layer = _Weight((name,), linear, ((holder, "layer"),), refused, codes=codes, scale=scale, to=to)
        (choice,) = choices_of([layer], patterns or [Pattern.parse(each) for each in options.patterns], options.skip)
        row = swapper.row(choice)
        placed: Any = layer.placed
        self.rows[name] = row
        if row.done != "sparse":
            return None
        weight: SparseWeight = placed.weight
        if weight.scale is not None:
            self.rows[name] = replace(row, reason=f"{row.reason}; {ROUNDED}")
        return weight.requires_grad_(False)
