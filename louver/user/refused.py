"""Configs that Louver refuses: which errors count as a refusal, and the message when all configs are refused."""

from __future__ import annotations

from louver.user.compiled import UncleanKernelError
from louver.user.decorators import Candidate


def is_refusal(error: Exception) -> bool:
    """Whether an error says that a kernel or its sizes cannot be with these constants, others perhaps can."""
    # Triton's error for a tl.static_assert; the module need not be there.
    return isinstance(error, ValueError | UncleanKernelError) or type(error).__name__ in (
        "CompileTimeAssertionFailure",
        "InterpretationError",
    )


class Refused:
    """Candidates that were refused, in turn."""

    __slots__ = ("_errors",)

    def __init__(self) -> None:
        self._errors: list[tuple[Candidate, Exception]] = []

    def add(self, candidate: Candidate, error: Exception) -> None:
        """Note a candidate's error; raises it if it is no refusal."""
        if not is_refusal(error):
            raise error
        self._errors.append((candidate, error))

    def __bool__(self) -> bool:
        return bool(self._errors)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Each candidate with the reason, a line each."""
        return tuple(f"{candidate} is refused: {error}" for candidate, error in self._errors)

    @property
    def error(self) -> Exception:
        """The error when all configs are refused: that of the first one, with a note."""
        candidate, error = self._errors[0]
        if len(self._errors) > 1:
            error.add_note(
                f"All {len(self._errors)} configs of triton.autotune were tried, and each was refused; this is the first one's, {candidate}."
            )
        return error
