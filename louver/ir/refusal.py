"""How a kernel is refused: the rule, the operation as it prints, and where the user wrote it."""

from __future__ import annotations

from typing import cast

from xdsl.dialects.builtin import ArrayAttr, CallSiteLoc, FileLineColLoc, FusedLoc, NameLoc, StringAttr
from xdsl.ir import Attribute, Operation


class UnsupportedKernelError(ValueError):
    """A kernel does what the compiler cannot lower. `operation` is its text, `location` "file:line:column" or None."""

    def __init__(self, rule: str, operation: str, location: str | None) -> None:
        self.operation = operation
        self.location = location
        where = "" if location is None else f" at {location}"
        super().__init__(f"{rule}, got{where}: {operation}")


def unsupported(rule: str, op: Operation) -> UnsupportedKernelError:
    """The error that refuses `op`, for the caller to raise; `rule` says what is allowed instead."""
    return UnsupportedKernelError(rule, _first_line(op), source_location(op.location))


def source_location(location: Attribute) -> str | None:
    """The innermost "file:line:column" of a location, or None if it has none."""
    match location:
        case FileLineColLoc():
            return f"{location.filename.data}:{location.line.data}:{location.column.data}"
        case NameLoc():
            return source_location(location.location)
        case CallSiteLoc():
            return source_location(location.callee)
        case FusedLoc():
            parts = cast("ArrayAttr[Attribute]", location.locations)
            return next((found for part in parts if (found := source_location(part))), None)
        case _:
            return None


_LONGEST = 200
"""Characters of an operation that a message prints, at most."""


def _first_line(op: Operation) -> str:
    """An operation's text, without its regions. A whole function is named: its signature says nothing to a user."""
    name = op.properties.get("sym_name")
    if isinstance(name, StringAttr):
        return f"{op.name} @{name.data}"
    lines = str(op).splitlines()
    text = lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1].strip()}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
