"""The outcome of each config of `triton.autotune`, as `explain` reports it: which errors are a rejection, and the error when
all configs are rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from louver.runtime.violations import AddressError
from louver.user.compiled import UncleanKernelError
from louver.user.decorators import Candidate
from louver.user.explanation import Explanation


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


LEFT_OUT = "is left out: the model chooses the schedule of a product for the call's sizes, whatever tile the config has"
"""The outcome of configs behind one that decides, see `louver.user.retile.is_decided`."""


def explain_candidates(
    candidates: Sequence[Candidate], chosen: Candidate | None, explained: Callable[[Candidate], Explanation]
) -> Explanation:
    """The explanation of the chosen candidate, or of the first accepted one if none is chosen yet.

    explained: compiles a candidate.
    Raises the first candidate's error if all are rejected.
    """
    found: list[tuple[Candidate, Explanation]] = []
    copies: list[Candidate] = []
    left: Sequence[Candidate] = ()
    refused = Refused()
    for index, candidate in enumerate(candidates):
        if found and found[-1][1].decided and not any(_is(each, chosen) for each in candidates[index:]):
            left = candidates[index:]
            break
        if any(other.same(candidate, made.family == "product") for other, made in found):
            copies.append(candidate)
            continue
        try:
            found.append((candidate, explained(candidate)))
        except Exception as error:
            refused.add(candidate, error)
    if not found:
        raise refused.error
    timed = [each for each in found if _is(each[0], chosen)]
    candidate, explanation = (timed or found)[0]
    if candidate.config is None:
        return explanation
    why = "was the fastest here" if timed and len(found) > 1 else "is the first config that Louver takes"
    what = "was slower" if timed else "is to be timed on a GPU"
    others = [f"{other} {what}" for other, _ in found if other is not candidate]
    others += [f"{other} makes the same kernel as one of these" for other in copies]
    others += [f"{other} {LEFT_OUT}" for other in left]
    return replace(explanation, config=f"{candidate} {why}", others=(*others, *refused.reasons))


def _is(candidate: Candidate, chosen: Candidate | None) -> bool:
    return chosen is not None and candidate.config == chosen.config
