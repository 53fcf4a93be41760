"""What the record of accuracy says that a format costs: perplexity over the dense model's."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from louver.advice.formats import Format


@dataclass(frozen=True, slots=True)
class Loss:
    """The perplexity of the record's model over its dense one's, on the worst of the texts. method: that reached it."""

    ratio: float
    method: str

    def __str__(self) -> str:
        return f"{self.ratio:.2f}×, {self.method}"


@dataclass(frozen=True, slots=True)
class Losses:
    """The record. model: that was pruned. rows: pattern, method and ratio; a pattern on some layers is not compared."""

    model: str
    date: str
    rows: Sequence[tuple[str, str, float]]

    def of(self, format: Format) -> Loss | None:
        """The least loss that any method reached in a format; None without a row. f16 counts as bf16."""
        element = "bf16" if format.element == "f16" else format.element
        found: list[Loss] = []
        for pattern, method, ratio in self.rows:
            kind = method if pattern == "dense" else method.rpartition(", ")[2]
            of_type = kind == element if element != "bf16" or pattern == "dense" else kind not in ("e4m3", "s8")
            if of_type and pattern == (format.pattern or "dense"):
                found.append(Loss(ratio, method))
        return min(found, key=lambda loss: loss.ratio, default=None)


@functools.cache
def losses() -> Losses:
    """The record that comes with the package; `benchmarks/fit_advice.py` writes it."""
    data = json.loads(files("louver.advice").joinpath("data", "losses.json").read_text(encoding="utf-8"))
    return Losses(data["model"], data["date"], [(pattern, method, ratio) for pattern, method, ratio in data["rows"]])
