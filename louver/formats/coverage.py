"""What GPUs have kernels for, by operation, pattern and element type: the only table of it. Refusals, element types of
sparse encodings, warnings of the paths without a GPU, and a table of the documents follow from it.
"""

from __future__ import annotations

import functools
from typing import Final, Literal, TypeAlias

from louver.formats.dtypes import NARROW_FLOATS, PAIR_TYPES
from louver.formats.pattern import LIFTED_PATTERNS, Pattern

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
