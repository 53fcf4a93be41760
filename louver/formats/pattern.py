"""Sparsity patterns: the number of elements of each group that may be non-zero."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from louver.formats.dtypes import element_type
from louver.formats.given import integer

MAX_GROUP: Final = 256
"""Largest M, in elements or vectors: an index in a group fits in a byte."""

_DIGITS: Final = 18
"""Digits of a pattern's numbers, at most: Python reads no more than some thousands."""

_TEXT = re.compile(r"([1-9][0-9]*):([1-9][0-9]*)(?:@([1-9][0-9]*))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Pattern:
    """At most `n` non-zeros in every `m` consecutive elements along the sparse axis, written `n:m`.

    length: vectors of this many elements across the sparse axis are kept or pruned as one (`n:m@length`); 1 for elements.
    n = m keeps all. Raises TypeError unless all three are integers, and ValueError unless 1 <= n <= m <= 256 and length >= 1.
    """

    n: int
    m: int
    length: int = 1

    def __post_init__(self) -> None:
        for name in ("n", "m", "length"):
            rule = f"a pattern's {name} is an integer, as in louver.Pattern(2, 4)"
            object.__setattr__(self, name, integer(getattr(self, name), rule))
        if not 1 <= self.n <= self.m:
            raise ValueError(f"a pattern N:M keeps 1 to M elements of a group, got {self.n}:{self.m}")
        if self.m > MAX_GROUP:
            raise ValueError(f"a pattern's group has at most {MAX_GROUP} elements, got M = {self.m}")
        if self.length < 1:
            raise ValueError(f"a pattern's vectors have at least 1 element, got {self.length}")

    @classmethod
    def parse(cls, text: object) -> Pattern:
        """The pattern of a text such as "2:4", "1:2", "N:M" or "N:M@L"; a `Pattern` is returned as it is.

        Raises TypeError for anything but a text or a pattern, ValueError for a text that is none.
        """
        if isinstance(text, Pattern):
            return text
        if not isinstance(text, str):
            raise TypeError(f'a pattern is a text such as "2:4", or a louver.Pattern, got {type(text).__name__}')
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(
                f'a pattern is written "N:M" or "N:M@L" with positive integers, such as "2:4", got {text!r}'
            )
        numbers = match.groups(default="1")
        if any(len(number) > _DIGITS for number in numbers):
            raise ValueError(f"a pattern's numbers have at most {_DIGITS} digits, got {len(max(numbers, key=len))}")
        n, m, length = (int(number) for number in numbers)
        return cls(n, m, length)

    def kept_by(self, windows: int) -> float:
        """The share of the sparse axis that so many windows keep together, where each keeps random elements: 1 - (1 - N / M)^windows.

        Windows that are all alike keep N / M.
        """
        return 1 - (1 - self.n / self.m) ** windows

    @property
    def rescaling(self) -> float:
        """M / N, by which NM-SpMM's equation (1) multiplies a product: `louver.linear(x, s, alpha=s.pattern.rescaling)`."""
        return self.m / self.n

    def groups(self, size: int) -> int:
        """Groups along a sparse axis of this size; the last may be partly outside and counts as zeros there."""
        return -(-size // self.m)

    def __str__(self) -> str:
        return f"{self.n}:{self.m}" + (f"@{self.length}" if self.length > 1 else "")


def lifted_pattern(operand: str) -> str:
    """The pattern along K whose metadata the tensor cores read with an element type: one of two for 32 bits, else two of four."""
    return "1:2" if element_type(operand).bits == 32 else "2:4"
