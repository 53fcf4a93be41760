"""Errors of a run: the broken rule, the operation, and the user's line."""

from __future__ import annotations

from xdsl.ir import Operation

from louver.ir.refusal import unsupported


class Fault(Exception):
    """A rule that an operation breaks with the given values.

    The program that runs the operation adds its name and line.
    """


class InterpretationError(RuntimeError):
    """An operation of a kernel is undefined. operation: its text. location: "file:line:column" or None."""

    def __init__(self, rule: str, op: Operation) -> None:
        refused = unsupported(rule, op)
        self.operation = refused.operation
        self.location = refused.location
        super().__init__(str(refused))
