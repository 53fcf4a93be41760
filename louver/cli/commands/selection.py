"""Selects the tensors of a checkpoint that are pruned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

EMBEDDINGS = ("*embed*", "*wte*", "*wpe*")
"""Names of look-up tables: 2-D, but no product reads them. Left out unless asked for."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Names by shell globs: a tensor is taken if an `include` glob matches its name and no `exclude` glob does."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = EMBEDDINGS

    @classmethod
    def of(cls, include: Sequence[str] | None, exclude: Sequence[str] | None) -> Selection:
        """The selection that a user's options ask for; what was not given keeps its default."""
        return cls(tuple(include) if include else ("*",), tuple(exclude) if exclude else EMBEDDINGS)

    def takes(self, name: str) -> bool:
        """Whether the globs let a name through."""
        return _any_matches(self.include, name) and not _any_matches(self.exclude, name)


def _any_matches(globs: Sequence[str], name: str) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)
