"""Rejected configs: which errors are a rejection, and the error when all configs are rejected."""

from __future__ import annotations

from louver.runtime.violations import AddressError
from louver.user.compiled import UncleanKernelError
from louver.user.decorators import Candidate


def is_refusal(error: Exception) -> bool:
    """Whether an error rejects a kernel only with these constants or sizes, so that others may be accepted. A kernel that broke
    a rule when it ran was accepted.
    """
    if isinstance(error, AddressError):
        return False
    # Triton's error for a tl.static_assert, by name: Triton may not be imported.
    return isinstance(error, ValueError | UncleanKernelError) or type(error).__name__ in (
        "CompileTimeAssertionFailure",
        "InterpretationError",
    )


class Refused:
    """Rejected candidates, in order."""

    __slots__ = ("_errors",)

    def __init__(self) -> None:
        self._errors: list[tuple[Candidate, Exception]] = []

    def add(self, candidate: Candidate, error: Exception) -> None:
        """Record a rejected candidate. Raises any other error."""
        if not is_refusal(error):
            raise error
        self._errors.append((candidate, error))

    def __bool__(self) -> bool:
        return bool(self._errors)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reason for each candidate, one a line."""
        return tuple(f"{candidate} is refused: {error}" for candidate, error in self._errors)

    @property
    def error(self) -> Exception:
        """The error when all configs are rejected: the first one's, with a note."""
        candidate, error = self._errors[0]
        if len(self._errors) > 1:
            error.add_note(
                f"All {len(self._errors)} configs of triton.autotune were tried, and each was refused; this is the first one's, {candidate}."
            )
        return error
