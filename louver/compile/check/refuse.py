"""Errors of the check."""

from __future__ import annotations

from louver.compile.check.events import Event


class ProtocolError(ValueError):
    """Schedule IR whose roles break the rules of stages, barriers and registers. operation: the text of the operation."""

    def __init__(self, rule: str, got: str, operation: str) -> None:
        self.operation = operation
        super().__init__(f"{rule}, got {got}: {operation}")


def broken(rule: str, got: str, event: Event) -> ProtocolError:
    """The error for an event that breaks a rule. The caller raises it."""
    text = str(event.action.op).splitlines()[0]
    return ProtocolError(rule, got, f"{text} (role @{event.action.role}, tile {event.tile}, step {event.step})")
