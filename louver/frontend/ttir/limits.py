"""The largest texts and kernels that are read. Kernels that people write stay far below; a text beyond a limit would take
minutes, or more memory than there is. Each is checked before the work that it bounds.
"""

from __future__ import annotations

import re
from math import prod
from typing import Final

from xdsl.ir import Operation

from louver.ir.refusal import unsupported
from louver.isa.rule import RuleError

MAX_TEXT: Final = 4 << 20
"""Characters of a text, with its locations."""

MAX_DEPTH: Final = 48
"""Brackets of any kind that are open at one place: each is a call of the parser in itself."""

MAX_OPERATIONS: Final = 8_000
"""Operations of a kernel after its calls were replaced by the functions' bodies."""

MAX_ASSEMBLY: Final = 1 << 14
"""Characters of one inline assembly."""

MAX_CHAIN: Final = 400
"""Operations in a row that each need the one before: questions about a value walk along them."""

MAX_ELEMENTS: Final = 1 << 18
"""Elements of a tile. All registers of an SM hold 2^16 words."""

MAX_PLACES: Final = 200
"""Locations within each other, as calls that were inlined leave them."""

_BRACKET = re.compile(r'"(?:[^"\\\n\v\f]|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*"|//[^\n]*|->|[(\[{<]|[)\]}>]|"')
_TILE = re.compile(r"(?:tensor|tensordesc|memref|vector)<((?:\d+x)+)")


def check_size(text: str) -> None:
    """Raises ValueError for a text with too many characters."""
    if len(text) > MAX_TEXT:
        raise RuleError(
            f"the text of a kernel has at most {MAX_TEXT:,} characters, got {len(text):,}: make loops of what it repeats"
        )


def check_count(number: int, op: Operation) -> None:
    """Raises UnsupportedKernelError for an operation behind the greatest number of a kernel's operations."""
    if number > MAX_OPERATIONS:
        rule = f"a kernel has at most {MAX_OPERATIONS:,} operations"
        raise unsupported(rule, op, "make loops of what it repeats")


def check_shape(text: str) -> None:
    """Raises ValueError with the line for brackets that are nested too deep, for a quotation mark without its other one, or
    with an escape that MLIR lacks, and for a tile that is too large.
    """
    depth = 0
    for found in _BRACKET.finditer(text):
        if found[0] == '"':
            # The parser's pattern of a quoted text takes exponential time without its end, and with other escapes.
            line = text.count("\n", 0, found.start()) + 1
            raise RuleError(
                f"a quoted text ends in its line, got none that ends in line {line}: close it, and "
                'write no escapes but \\n, \\t, \\\\, \\" and bytes such as \\0A'
            )
        depth += found[0] in "([{<"
        depth -= found[0] in ")]}>"
        if depth > MAX_DEPTH:
            raise RuleError(
                f"brackets of a kernel's text are nested at most {MAX_DEPTH} deep, got more in line "
                f"{text.count(chr(10), 0, found.start()) + 1}: make a function of the inner part"
            )
    for found in _TILE.finditer(text):
        sizes = [int(size) if len(size) < 10 else 1 << 32 for size in found[1][:-1].split("x")]
        if prod(sizes) > MAX_ELEMENTS:
            line = text.count("\n", 0, found.start()) + 1
            shape = "×".join(size[:24] for size in found[1][:-1].split("x"))
            raise RuleError(
                f"a tile has at most {MAX_ELEMENTS:,} elements, got {shape[:80]} in line {line}: take smaller tiles in a loop"
            )
