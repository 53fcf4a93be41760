"""Which tensors of a checkpoint are one parameter. Stored copies are one only if their bytes are equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from louver.formats.checkpoint import Checkpoint
from louver.formats.container import array_bytes
from louver.formats.schema import Form
from louver.models.evidence.config import Config
from louver.models.evidence.found import Found
from louver.models.roles import Role

Same = Callable[[str, str], bool]
"""Whether two stored tensors of the same form hold the same bytes."""


def find(
    forms: Mapping[str, Form],
    found: Mapping[str, Found],
    aliases: Mapping[str, str],
    groups: Iterable[Iterable[str]],
    config: Config,
    same: Same,
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """The names of each parameter that has several, and notes.

    forms: of the stored tensors. aliases: stored names by names of the metadata, which have no data of their own.
    groups: names that the model ties. A configuration can tie the head to the embedding. What is stored twice is
    compared; a note names tensors that differ although the model or the configuration ties them.
    """
    joined: dict[str, set[str]] = {}
    for group in (*groups, *_tied_ends(forms, found, config)):
        whole = {aliases.get(name, name) for name in group}
        whole = whole.union(*(joined.get(name, set()) for name in whole))
        joined |= dict.fromkeys(whole, whole)
    ties: dict[str, set[str]] = {}
    notes: list[str] = []
    for whole in {min(group): group for group in joined.values()}.values():
        parts = _parted(sorted(whole), forms, same)
        if len(parts) > 1:
            apart = " and ".join(part[0] for part in parts)
            notes.append(f"the configuration ties {apart}, but their stored bytes differ: each is a tensor of its own")
        for part in parts:
            one = set(part)
            ties |= dict.fromkeys(part, one)
    for alias, name in aliases.items():
        names = ties.setdefault(name, {name})
        names.add(alias)
        ties[alias] = names
    return {name: tuple(sorted(group)) for name, group in ties.items() if len(group) > 1}, tuple(notes)


def _tied_ends(forms: Mapping[str, Form], found: Mapping[str, Found], config: Config) -> list[set[str]]:
    """The head and the embedding, for each shape of a head, if the configuration ties them."""
    if not config.tied:
        return []
    ends = [name for name, each in found.items() if each.role in (Role.HEAD, Role.EMBEDDING) and name in forms]
    shapes = {forms[name].shape for name in ends if found[name].role is Role.HEAD}
    return [
        {name for name in ends if forms[name].shape == shape} for shape in shapes if shape[0] in config.vocabularies
    ]


def _parted(names: list[str], forms: Mapping[str, Form], same: Same) -> list[list[str]]:
    """The names in groups of equal tensors."""
    parts: list[list[str]] = []
    for name in names:
        for part in parts:
            if forms[part[0]] == forms[name] and same(part[0], name):
                part.append(name)
                break
        else:
            parts.append([name])
    return parts


def same_bytes(checkpoint: Checkpoint) -> Same:
    """Compares tensors of a checkpoint, in pieces and up to the first that differs. Raises FormatError for a changed file."""
    files = {name: file for file in checkpoint.files for name in file.tensors}

    def same(first: str, second: str) -> bool:
        with files[first].open() as a, files[second].open() as b:
            left, right = a.chunks(files[first].tensors[first]), b.chunks(files[second].tensors[second])
            pairs = (pair for parts in zip(left, right, strict=True) for pair in zip(*parts, strict=True))
            return all(array_bytes(x) == array_bytes(y) for x, y in pairs)

    return same
