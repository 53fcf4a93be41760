"""A format of a weight: its element type, its sparsity pattern or none, and what the pattern loses."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, Literal, TypeAlias

from louver.formats.dtypes import element_type
from louver.formats.pattern import LIFTED_PATTERNS, Pattern, has_kernels, without_kernels
from louver.formats.schema import SparseForm
from louver.frontend.problem import Problem
from louver.ir.product import selection_of

Kind: TypeAlias = Literal["dense", "2:4", "vectors"]
"""The products of a kind have rates of their own. vectors: N:M, N:M@L and V:N:M, whose products gather rows of K."""

OUTPUTS: Final[Mapping[str, str]] = {"f16": "f16", "bf16": "bf16", "e4m3": "f16", "s8": "f16"}
"""Element types of weights and tokens, and the type that their products write here; a dense product of s8 writes s32."""

LEAST_INT8_TOKENS: Final = 17
"""Least tokens that PyTorch's dense product of s8 takes."""

DENSE_MULTIPLES: Final[Mapping[str, int]] = {"e4m3": 16, "s8": 8}
"""PyTorch's dense products of these types need M and K to be multiples of these numbers."""


@dataclass(frozen=True, slots=True)
class Format:
    """How a weight is stored. pattern: in the form of `str(Pattern)`; None for a dense weight.

    Raises ValueError for an element type that is not compared, and for a pattern without kernels of that type.
    """

    element: str
    pattern: str | None = None

    def __post_init__(self) -> None:
        if self.element not in OUTPUTS:
            raise ValueError(f"formats have elements of {', '.join(OUTPUTS)}, got {self.element!r}")
        if self.pattern is not None:
            object.__setattr__(self, "pattern", str(Pattern.parse(self.pattern)))
            if not has_kernels("products", self.pattern, self.element):
                raise ValueError(without_kernels("products", self.pattern, self.element))

    @classmethod
    def parse(cls, text: object) -> Format:
        """The format of a text such as "e4m3", "f16 2:4" or "bf16 4:8@128". A `Format` is returned unchanged. Raises
        ValueError for another text.
        """
        if isinstance(text, Format):
            return text
        parts = text.split() if isinstance(text, str) else []
        if not 1 <= len(parts) <= 2:
            raise ValueError(f'a format is an element type, or one and a pattern, such as "f16 2:4", got {text!r}')
        return cls(*parts)

    @property
    def kind(self) -> Kind:
        if self.pattern is None:
            return "dense"
        return "2:4" if self.pattern in LIFTED_PATTERNS else "vectors"

    @property
    def problem(self) -> Problem:
        """The product `linear` of a weight in this format. Tokens of gathered products come as rows of K."""
        out = "s32" if (self.element, self.pattern) == ("s8", None) else OUTPUTS[self.element]
        gathers = self.pattern is not None and selection_of(self.pattern).indexed
        layout = "n_major" if gathers else "k_major"
        return Problem("linear", self.element, self.element, out, self.pattern, b_layout=layout)

    def nbytes(self, m: int, k: int) -> int:
        """Bytes of a weight [m, k] as stored."""
        if self.pattern is None:
            return m * k * element_type(self.element).bytes
        return SparseForm(Pattern.parse(self.pattern), element_type(self.element), (m, k), 1).nbytes

    def refusal(self, m: int, n: int, k: int) -> str:
        """Why PyTorch or the pattern has no such product; "" if there is one."""
        multiple = DENSE_MULTIPLES.get(self.element, 1) if self.pattern is None else 1
        if m % multiple or k % multiple:
            return f"PyTorch's dense product of {self.element} needs M and K to be multiples of {multiple}"
        if self.pattern is None and self.element == "s8" and n < LEAST_INT8_TOKENS:
            return f"PyTorch's dense product of s8 needs {LEAST_INT8_TOKENS} tokens or more"
        if self.pattern is not None and k < Pattern.parse(self.pattern).m:
            return f"K is less than a group of {self.pattern}"
        return ""

    def __str__(self) -> str:
        return self.element if self.pattern is None else f"{self.element} {self.pattern}"


NAMED: Final = ("4:8@128", "2:8@V128")
"""Patterns of vectors that are compared by default."""

DEFAULT: Final = (
    *map(Format, OUTPUTS),
    *(Format(element, "2:4") for element in OUTPUTS),
    *(Format(element, pattern) for pattern in NAMED for element in ("bf16", "e4m3")),
)


def formats_of(given: Iterable[str | Format] | None) -> tuple[Format, ...]:
    """The formats to compare, each once. None: `DEFAULT`. Raises ValueError for none, and as `Format.parse`."""
    if isinstance(given, str) or not (given is None or isinstance(given, Iterable)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f'formats are a list, such as ["f16 2:4", "e4m3"], got {given!r}')
    found = DEFAULT if given is None else tuple(dict.fromkeys(map(Format.parse, given)))
    if not found:
        raise ValueError("formats to compare are one or more, got none")
    return found


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
