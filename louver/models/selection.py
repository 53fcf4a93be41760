"""Selects the tensors of a checkpoint to prune."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final


@dataclass(frozen=True, slots=True)
class Choice:
    """A user's changes to what `analyze` prunes, by shell globs over names.

    include: adds tensors to the default ones. exclude: leaves tensors. only: replaces the default ones. axis: the
    sparse axis of tensors that `include` or `only` names, as stored; negative counts from the end. None: the
    contracted axis, or the last one if it is not known. Raises ValueError for include beside only.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    axis: int | None = None

    def __post_init__(self) -> None:
        if self.only and self.include:
            raise ValueError(
                f"--only replaces the default tensors and --include adds to them, got only {list(self.only)} and include {list(self.include)}: give one of them"
            )
        if self.axis is not None and not self.named:
            raise ValueError(
                f"--axis is for tensors that --include or --only names, got axis {self.axis} alone: name the tensors"
            )

    @property
    def named(self) -> tuple[str, ...]:
        """The globs of the tensors that the user asks for."""
        return self.only or self.include

    def names(self, name: str) -> bool:
        """Whether the user asks for the tensor."""
        return any_matches(self.named, name)

    def excludes(self, name: str) -> bool:
        """Whether the user leaves the tensor."""
        return any_matches(self.exclude, name)


DEFAULT: Final = Choice()
"""No changes."""


def any_matches(globs: Sequence[str], name: str) -> bool:
    """Whether one of the globs matches the name."""
    return any(fnmatchcase(name, glob) for glob in globs)
