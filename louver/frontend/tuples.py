"""Tuple arguments, nested as in Triton, by element. The name of an element is its path: `shape.0`, `strides.1.0`, or
`sizes.rows` in a tuple with named fields.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from louver.isa.rule import RuleError

CONSTEXPR = "constexpr"
"""The type of a compile-time constant. Source: Triton."""

EMPTY = "()"
"""The type of an empty tuple."""

Types: TypeAlias = "str | tuple[Types, ...]"
"""A type, or the types of a tuple's elements. A named tuple has a named tuple of types."""

_Tree: TypeAlias = "str | dict[str, _Tree]"


@dataclass(frozen=True, slots=True)
class Elements:
    """A kernel's arguments. types: by parameter, nested. passed: names of the compiled kernel's arguments, in order.
    paths: for each element that is not a tuple its parameter's position, then its position in each enclosing tuple.
    """

    types: dict[str, Types]
    paths: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    passed: list[str] = field(default_factory=list[str])


def arrange(parameters: Sequence[str], types: Mapping[str, str]) -> Elements:
    """The elements of a kernel with these parameters. types: by element; named fields in order. Raises ValueError for
    elements that do not form a tuple.
    """
    tree: dict[str, _Tree] = {}
    for name, type_ in types.items():
        _add(tree, name, type_)
    found = Elements({})
    for place, name in enumerate(parameters):
        if name in tree:
            found.types[name] = _nested(tree[name], name, (place,), found)
    return found


def _add(tree: dict[str, _Tree], name: str, type_: str) -> None:
    *outer, last = name.split(".")
    node = tree
    for part in outer:
        inner = node.setdefault(part, {})
        if isinstance(inner, str):
            raise RuleError(
                f"an argument is one value or a tuple of values, got {name!r} and a value for the tuple itself"
            )
        node = inner
    if last in node:
        raise RuleError(f"an argument is one value or a tuple of values, got {name!r} and elements of it")
    node[last] = type_


def _nested(node: _Tree, name: str, path: tuple[int, ...], found: Elements) -> Types:
    if isinstance(node, str):
        if node == EMPTY:
            return ()
        found.paths[name] = path
        if node != CONSTEXPR:
            found.passed.append(name)
        return node
    numbered = all(part.isdecimal() for part in node)
    parts = sorted(node, key=int) if numbered else list(node)
    if numbered and [int(part) for part in parts] != list(range(len(parts))):
        raise RuleError(f"a tuple's elements are numbered 0, 1 and so on, got {_names(name, parts)}")
    inner = [_nested(node[part], f"{name}.{part}", (*path, place), found) for place, part in enumerate(parts)]
    if numbered:
        return tuple(inner)
    try:
        # The fields are known only at run time.
        make: Any = namedtuple
        return make("Fields", parts)(*inner)
    except ValueError:
        raise RuleError(
            f"a tuple's elements are all numbered, or all named as fields of a named tuple, got {_names(name, parts)}"
        ) from None


def _names(name: str, parts: Sequence[str]) -> str:
    return ", ".join(f"{name}.{part}" for part in parts)
