"""The fastest of several kernels for a call, timed on the call's own arrays as `triton.autotune` times its configs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from louver.user.decorated_call import Given
from louver.user.snapshot import DeviceSnapshot, zero
from louver.user.timing import Trial, measure

if TYPE_CHECKING:
    from louver.user.autotuned import Attempt


class Choice:
    """A choice between the configs of a `triton.autotune` object for a call, with its author's actions around launches.
    Before each launch, arrays of `restore_value` have their present contents and those of `reset_to_zero` are zero.
    Repeated launches are assumed to leave other written arrays as one launch does. The author's hooks replace both.
    """

    def __init__(self, tuner: Any, given: Given) -> None:
        own = bool(getattr(tuner, "user_defined_pre_hook", False))
        self._given = given
        self._pre: Callable[..., Any] | None = tuner.pre_hook if own else None
        self._post: Callable[..., Any] | None = (
            tuner.post_hook if getattr(tuner, "user_defined_post_hook", False) else None
        )
        self._zeroed: tuple[str, ...] = () if own else _arrays("reset_to_zero", tuner.reset_to_zero, given)
        restored = () if own else _arrays("restore_value", tuner.restore_value, given)
        assert given.ordinal is not None
        self._ordinal = given.ordinal
        self._kept = DeviceSnapshot([given.arrays[name] for name in restored], given.ordinal, given.stream)

    def fastest(self, attempts: Sequence[Attempt]) -> Attempt:
        """The attempt to launch, after its hook and with the arrays as it expects them. A single attempt is not timed.
        Raises ValueError if none fits on an SM.
        """
        if len(attempts) == 1:
            # Hooks of rejected configs may have run after its own.
            attempts[0].candidate.run_hook()
            return attempts[0]
        times = measure([self._trial(each) for each in attempts], self._ordinal, self._given.stream)
        best = attempts[times.index(min(times))]
        self._reset(best.candidate.named, reset_only=True)
        if math.isinf(min(times)):
            raise ValueError(
                f"a CTA has the registers and shared memory of one SM at most, got {len(attempts)} configs that all take more: "
                "choose smaller blocks, or fewer warps"
            )
        best.candidate.run_hook()
        return best

    def close(self) -> None:
        """Release the copies of arrays."""
        self._kept.close()

    def _trial(self, attempt: Attempt) -> Trial:
        named = attempt.candidate.named

        def before() -> None:
            attempt.candidate.run_hook()
            self._reset(named)

        return Trial(attempt.ready.launch, before, partial(self._after, named))

    def _reset(self, named: dict[str, Any], **options: bool) -> None:
        if self._pre is not None:
            self._pre(named, **options)
            return
        for name in self._zeroed:
            zero(name, self._given.arrays[name], self._ordinal, self._given.stream)

    def _after(self, named: dict[str, Any], error: Exception | None) -> None:
        if self._post is not None:
            self._post(named, exception=error)
        self._kept.restore()


def _arrays(what: str, names: Sequence[str], given: Given) -> tuple[str, ...]:
    """The names that are arrays of the call. Raises ValueError for a name of another value."""
    named = given.named
    for name in names:
        if name not in given.arrays and named.get(name) is not None:
            raise ValueError(
                f"{what} of triton.autotune names arrays that the kernel writes, got {name!r}: {named[name]!r}"
            )
    return tuple(name for name in names if name in given.arrays)
