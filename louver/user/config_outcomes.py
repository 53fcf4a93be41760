"""The outcome of each config of `triton.autotune`, as `explain` reports it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from louver.user.decorators import Candidate
from louver.user.explanation import Explanation
from louver.user.refused import Refused


def explain_candidates(
    candidates: Sequence[Candidate], chosen: Candidate | None, explained: Callable[[Candidate], Explanation]
) -> Explanation:
    """The explanation of the chosen candidate, or of the first accepted one if none is chosen yet.

    explained: compiles a candidate.
    Raises the first candidate's error if all are rejected.
    """
    found: list[tuple[Candidate, Explanation]] = []
    copies: list[Candidate] = []
    refused = Refused()
    for candidate in candidates:
        if any(other.same(candidate, made.family == "product") for other, made in found):
            copies.append(candidate)
            continue
        try:
            found.append((candidate, explained(candidate)))
        except Exception as error:
            refused.add(candidate, error)
    if not found:
        raise refused.error
    timed = [each for each in found if chosen is not None and each[0].config == chosen.config]
    candidate, explanation = (timed or found)[0]
    if candidate.config is None:
        return explanation
    why = "was the fastest here" if timed and len(found) > 1 else "is the first config that Louver takes"
    what = "was slower" if timed else "is to be timed on a GPU"
    others = [f"{other} {what}" for other, _ in found if other is not candidate]
    others += [f"{other} makes the same kernel as one of these" for other in copies]
    return replace(explanation, config=f"{candidate} {why}", others=(*others, *refused.reasons))
