"""Errors of a run: the broken rule, the operation, and the user's line."""

from __future__ import annotations

from xdsl.ir import Operation

from louver.ir.refusal import unsupported


class Fault(Exception):
    """A rule that an operation broke with the values that it got. The program that runs the operation names it and its line."""


class InterpretationError(RuntimeError):
    """A kernel did what is undefined. `operation` is its text, `location` "file:line:column" or None."""

    def __init__(self, rule: str, op: Operation) -> None:
        refused = unsupported(rule, op)
        self.operation = refused.operation
        self.location = refused.location
        super().__init__(str(refused))
