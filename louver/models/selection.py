"""Selects the tensors of a checkpoint to prune."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

EMBEDDINGS = ("*embed*", "*wte*", "*wpe*")
"""Names of look-up tables. They are 2-D, but no product reads them, so they are excluded by default."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Names by shell globs: a name is selected if an `include` glob and no `exclude` glob matches it."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = EMBEDDINGS

    @classmethod
    def of(cls, include: Sequence[str] | None, exclude: Sequence[str] | None) -> Selection:
        """The selection of a user's options. Missing options keep their defaults."""
        return cls(tuple(include) if include else ("*",), tuple(exclude) if exclude else EMBEDDINGS)

    def takes(self, name: str) -> bool:
        return _any_matches(self.include, name) and not _any_matches(self.exclude, name)


def _any_matches(globs: Sequence[str], name: str) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)
