"""Sparsity patterns: how many elements or vectors of each group may be non-zero.

What GPUs have kernels for, by operation, pattern and element type, has one table, `KERNELS`. Refusals, element types of
sparse encodings, warnings of the paths without a GPU, and a table of the documents follow from it.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from louver.formats.dtypes import NARROW_FLOATS, PAIR_TYPES, element_type, integer

MAX_GROUP: Final = 256
"""Largest M, in elements or vectors: an index in a group fits in a byte."""

_DIGITS: Final = 18
"""Most digits of a number in a pattern's text. Python refuses to convert texts of several thousand digits."""

_TEXT = re.compile(r"([1-9][0-9]*):([1-9][0-9]*)(?:@(V?)([1-9][0-9]*))?", re.ASCII)
_VENOM = re.compile(r"([1-9][0-9]*):(2:[1-9][0-9]*)", re.ASCII)

LIFTED: Final = (2, 4)
"""V:N:M: each row keeps 2 of the 4 vectors that the rows of a window share. Tensor cores read this 2:4 part."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """At most `n` non-zeros in every `m` consecutive elements along the sparse axis, written `n:m`. n = m keeps all.

    length: elements of a vector across the sparse axis (`n:m@length`), kept or pruned as a whole; 1 for elements.
    shared: vectors that a group keeps: 4 for V:N:M (`2:m@Vlength`), each row 2 of them; else n (0 becomes n).
    Raises TypeError unless all are integers. Raises ValueError unless 1 <= n <= m <= 256 and length >= 1, for V:N:M
    also m >= 5 and length >= 2.
    """

    n: int
    m: int
    length: int = 1
    shared: int = 0

    def __post_init__(self) -> None:
        for name in ("n", "m", "length", "shared"):
            rule = f"a pattern's {name} is an integer, as in louver.Pattern(2, 4)"
            object.__setattr__(self, name, integer(getattr(self, name), rule))
        if not 1 <= self.n <= self.m:
            raise ValueError(f"a pattern N:M keeps 1 to M elements of a group, got {self.n}:{self.m}")
        if self.m > MAX_GROUP:
            raise ValueError(f"a pattern's group has at most {MAX_GROUP} elements, got M = {self.m}")
        if self.length < 1:
            raise ValueError(f"a pattern's vectors have at least 1 element, got {self.length}")
        object.__setattr__(self, "shared", self.shared or self.n)
        if self.shared == self.n:
            return
        if (self.n, self.shared) != LIFTED:
            raise ValueError(
                f"rows of V:N:M keep {LIFTED[0]} of {LIFTED[1]} vectors that they share, got {self.n} of {self.shared}: write 2:M@V, or N:M@L"
            )
        if self.m <= self.shared or self.length == 1:
            raise ValueError(
                f"V:N:M keeps {self.shared} vectors of 5 or more, of 2 rows or more, got {self}: 2:4 and N:M are patterns of elements"
            )

    @classmethod
    def parse(cls, text: object) -> Pattern:
        """The pattern of a text such as "2:4", "1:2", "N:M", "N:M@L" or "2:M@VL", which may also be written as in VENOM,
        "L:2:M". A `Pattern` is returned unchanged. Raises TypeError for other types, ValueError for a text that is not
        a pattern.
        """
        if isinstance(text, Pattern):
            return text
        if not isinstance(text, str):
            raise TypeError(f'a pattern is a text such as "2:4", or a louver.Pattern, got {type(text).__name__}')
        match = _TEXT.fullmatch(_VENOM.sub(r"\2@V\1", text) if _VENOM.fullmatch(text) else text)
        if match is None:
            raise ValueError(
                f'a pattern is written "N:M" or "N:M@L" with positive integers, such as "2:4", or "2:M@V64" (also "64:2:M"), got {text!r}'
            )
        parts = match.groups(default="1")
        numbers = (*parts[:2], parts[3])
        if any(len(number) > _DIGITS for number in numbers):
            raise ValueError(f"a pattern's numbers have at most {_DIGITS} digits, got {len(max(numbers, key=len))}")
        n, m, length = (int(number) for number in numbers)
        return cls(n, m, length, LIFTED[1] if parts[2] == "V" else 0)

    @property
    def levels(self) -> tuple[Pattern, ...]:
        """The patterns applied in turn: the pattern itself; for V:N:M that of its vectors, then 2:4 of the kept ones."""
        if self.shared == self.n:
            return (self,)
        return Pattern(self.shared, self.m, self.length), Pattern(self.n, self.shared)

    def kept_by(self, windows: int) -> float:
        """The expected share of the sparse axis that `windows` windows keep together, if each keeps random elements: 1
        - (1 - N / M)^windows; for V:N:M with 4 for N. Identical windows keep N / M.
        """
        return 1 - (1 - self.shared / self.m) ** windows

    @property
    def rescaling(self) -> float:
        """M / N, the factor of NM-SpMM's equation (1): `louver.linear(x, s, alpha=s.pattern.rescaling)`."""
        return self.m / self.n

    def groups(self, size: int) -> int:
        """Groups along a sparse axis of `size` elements. The last group is filled with zeros."""
        return -(-size // self.m)

    def __str__(self) -> str:
        mark = "@" if self.shared == self.n else "@V"
        return f"{self.n}:{self.m}" + (f"{mark}{self.length}" if self.length > 1 or mark == "@V" else "")


LIFTED_PATTERNS: Final = ("2:4", "1:2")
"""Patterns whose metadata tensor cores read."""


def lifted_pattern(operand: str) -> str:
    """The pattern along K that sparse tensor core instructions read: "1:2" for 32-bit element types, else "2:4"."""
    return "1:2" if element_type(operand).bits == 32 else "2:4"


Operation: TypeAlias = Literal["products", "gated products", "register tiles", "prune and compress"]
"""products: of `linear`, `matmul` and `plan`, and those that Louver schedules for a user's kernel. register tiles: all
other kernels of users.
"""

PatternKind: TypeAlias = Literal["2:4", "1:2", "N:M", "N:M@L", "V:N:M"]
"""N:M and N:M@L: but for the two patterns before."""

_EVERY: Final = ("f32", "f16", "bf16", "e4m3", "e5m2", "s8", "u8")
_16_AND_8: Final = _EVERY[1:]
_WITH_NARROW: Final = (*_16_AND_8, *NARROW_FLOATS)
_WITH_PAIRS: Final = (*_WITH_NARROW, *PAIR_TYPES)

KERNELS: Final[dict[Operation, dict[PatternKind, tuple[str, ...]]]] = {
    "products": {"2:4": _WITH_PAIRS, "1:2": ("f32",), "N:M": _EVERY, "N:M@L": _EVERY, "V:N:M": _16_AND_8},
    "gated products": {"2:4": _WITH_NARROW, "1:2": ("f32",), "N:M": _EVERY},
    "register tiles": {"2:4": _16_AND_8, "1:2": ("f32",)},
    "prune and compress": dict.fromkeys(("2:4", "1:2", "N:M", "N:M@L", "V:N:M"), _EVERY),
}
"""The element types of the sparse operand for which an operation has kernels."""


class NoKernelWarning(UserWarning):
    """A path without a GPU computes what no GPU has a kernel for, so the same call with arrays on a GPU is refused."""


def kind_of(pattern: Pattern) -> PatternKind:
    """The kind of a pattern."""
    if len(pattern.levels) > 1:
        return "V:N:M"
    for name in LIFTED_PATTERNS:
        if str(pattern) == name:
            return name
    return "N:M" if pattern.length == 1 else "N:M@L"


@functools.lru_cache(maxsize=1024)
def has_kernels(operation: Operation, pattern: str, element: str) -> bool:
    """Whether an operation has kernels for a sparse operand of this pattern and element type."""
    return element in KERNELS[operation].get(kind_of(Pattern.parse(pattern)), ())


def without_kernels(operation: Operation, pattern: str, element: str) -> str:
    """The rule that an operand without kernels breaks: the types of its pattern, and the patterns of its type."""
    kind, row = kind_of(Pattern.parse(pattern)), KERNELS[operation]
    types, patterns = row.get(kind, ()), [each for each, elements in row.items() if element in elements]
    return (
        f"GPUs have {operation} of {kind} for {', '.join(types) or 'no type'}; and of {element} for {', '.join(patterns) or 'no pattern'}, "
        f"got {pattern} {element}"
    )


def table() -> str:
    """The table as text: a line for each kind of pattern, a column for each operation."""
    kinds = list(KERNELS["prune and compress"])
    lines = [
        ["pattern", *KERNELS],
        *([kind, *(_cell(row.get(kind, ())) for row in KERNELS.values())] for kind in kinds),
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _cell(types: tuple[str, ...]) -> str:
    words: dict[tuple[str, ...], str] = {
        _EVERY: "every type",
        _16_AND_8: "16 and 8 bits",
        _WITH_NARROW: "16 and 8 bits, floats of 6 and 4",
        _WITH_PAIRS: "16, 8, 6 and 4 bits",
        (): "no",
    }
    return words.get(types, ", ".join(types))
