"""`analyze`: decides what each tensor of a checkpoint is and whether it is pruned, before anything is touched."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from louver.formats.checkpoint import Checkpoint, open_checkpoint
from louver.formats.container import array_bytes
from louver.formats.pattern import Pattern
from louver.formats.schema import DenseForm, Form
from louver.models.evidence import model, names, siblings
from louver.models.evidence.config import Config, read_config
from louver.models.evidence.found import Found, is_float, is_fp8
from louver.models.evidence.model import ModelEvidence
from louver.models.roles import Evidence, ModelFacts, Role, Scale, TensorFacts
from louver.models.selection import DEFAULT, Choice, any_matches

Same = Callable[[str, str], bool]
"""Whether two stored tensors of the same form hold the same bytes."""


def find_ties(
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


ALL: Final = tuple(Evidence)

_DENSE: Final[Mapping[Role, str]] = {
    Role.UNKNOWN: "left by default",
    Role.CONVOLUTION: "no product of Louver runs a convolution",
    Role.HEAD: "heads stay dense by default",
    Role.ROUTER: "routers stay dense by default",
    Role.EMBEDDING: "tables stay dense by default",
}
"""Roles that stay dense by default and that a user can name, and why."""

_NAMEABLE: Final = frozenset((Role.WEIGHT, *_DENSE))
"""Roles that a user can ask to prune."""


_STRICTNESS: Final = (*(role for role in Role if role not in (*_DENSE, Role.WEIGHT)), *reversed(_DENSE), Role.WEIGHT)
"""Roles from the strictest to the loosest: the strictest use of a parameter decides."""


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor, and what the evidence says. ties: all names of its parameter. scale: text if it cannot be used."""

    name: str
    form: Form
    found: Found
    scale: Scale | str | None
    ties: tuple[str, ...]

    def named(self, choice: Choice) -> bool:
        """Whether the user asks for the tensor: by all of its names, so that no use is pruned through another."""
        return all(choice.names(name) for name in self.ties)


def analyze(
    path: str | os.PathLike[str],
    choice: Choice = DEFAULT,
    pattern: Pattern | str | None = None,
    *,
    evidence: Collection[Evidence] = ALL,
) -> ModelFacts:
    """What each tensor of a checkpoint is, and whether `louver prune` prunes it. Reads headers and `config.json`. Data are
    read only of tensors that are tied and yet stored twice: they are compared.

    path: a safetensors file, an index, or a folder with one of them. choice: the user's changes to the defaults.
    pattern: tensors whose contracted axis has less than M elements are left. evidence: the kinds to use; the first
    that knows a tensor decides. Raises ValueError for a choice that contradicts the evidence, FormatError and OSError
    as `open_checkpoint`.
    """
    checkpoint = open_checkpoint(path)
    config, notes = read_config(checkpoint.path.parent)
    same = same_bytes(checkpoint)
    return decide(
        forms_of(checkpoint), config, checkpoint.metadata, choice, pattern, evidence=evidence, notes=notes, same=same
    )


def forms_of(checkpoint: Checkpoint) -> dict[str, Form]:
    """The forms of a checkpoint's tensors by name."""
    return {name: tensor.form for name, tensor in checkpoint.tensors.items()}


def decide(
    forms: Mapping[str, Form],
    config: Config,
    metadata: Mapping[str, str],
    choice: Choice = DEFAULT,
    pattern: Pattern | str | None = None,
    *,
    evidence: Collection[Evidence] = ALL,
    notes: tuple[str, ...] = (),
    same: Same = lambda first, second: True,
    ran: ModelEvidence | None = None,
) -> ModelFacts:
    """`analyze` for the forms of a checkpoint's tensors, without files. same: whether two tied tensors hold the same bytes.
    ran: what the model itself says, if it is at hand.
    """
    known = config if Evidence.CONFIG in evidence else Config()
    aliases = {alias: name for alias, name in metadata.items() if name in forms and alias not in forms}
    everything = {**forms, **{alias: forms[name] for alias, name in aliases.items()}}
    if ran is None:
        ran = model.find(forms, config) if Evidence.MODEL in evidence else ModelEvidence({})
    parts = siblings.find(everything) if Evidence.SIBLINGS in evidence else {}
    guessed = names.find(everything, known)
    found = _whole_routers({name: _first(name, ran, parts, guessed) for name in everything})
    tied, unequal = find_ties(forms, found, aliases, ran.ties, known, same)
    group = Pattern.parse(pattern).m if pattern is not None else 1
    scales = siblings.scales(forms, config)
    tensors: dict[str, TensorFacts] = {}
    for name in forms:
        names_of = tied.get(name, (name,))
        strictest = min((found[other] for other in names_of), key=lambda each: _STRICTNESS.index(each.role))
        tensors[name] = _facts(_Tensor(name, forms[name], strictest, scales.get(name), names_of), choice, group)
    _check_choice(tensors, choice)
    return ModelFacts(tensors, (*notes, *ran.notes, *unequal))


def _first(name: str, ran: ModelEvidence, parts: Mapping[str, Found], guessed: Mapping[str, Found]) -> Found:
    """The first evidence that knows the tensor. That a product of the model feeds no choice and no score is no evidence: a
    router may choose by a table, and a part of the model may have run alone.
    """
    other = parts.get(name, guessed[name])
    own = ran.found.get(name)
    if own is None:
        return other
    return other if own.role is Role.WEIGHT and other.role in (Role.ROUTER, Role.HEAD) else own


def _whole_routers(found: dict[str, Found]) -> dict[str, Found]:
    """All products of a module beside experts that holds a router are the router's."""
    layers = {name.partition(".experts")[0] for name in found if ".experts" in name}
    routers: set[str] = set()
    for name, each in found.items():
        parts = name.split(".")
        if each.role is Role.ROUTER:
            ends = [
                end for end in range(1, len(parts) - 1) if ".".join(parts[:end]) in layers and parts[end] != "experts"
            ]
            routers |= {".".join(parts[: end + 1]) + "." for end in ends[-1:]}
    return {
        name: replace(each, role=Role.ROUTER, reason="a product inside a router")
        if each.role is Role.WEIGHT and any(name.startswith(router) for router in routers)
        else each
        for name, each in found.items()
    }


def _facts(tensor: _Tensor, choice: Choice, group: int) -> TensorFacts:
    found, scale = tensor.found, tensor.scale
    role, axis = found.role, found.axis
    reason = found.reason
    if isinstance(scale, str):
        role, scale, reason = Role.PACKED, None, scale
    if tensor.named(choice) and role in _NAMEABLE:
        axis = _chosen_axis(tensor, choice)
    prune, reason = _decision(tensor, role, axis, reason, choice, group)
    others = tuple(other for other in tensor.ties if other != tensor.name)
    if others:
        reason = f"{reason}; one parameter with {', '.join(others)}"
    return TensorFacts(tensor.name, tensor.form, role, found.evidence, prune, reason, axis, others, scale)


def _decision(tensor: _Tensor, role: Role, axis: int | None, why: str, choice: Choice, group: int) -> tuple[bool, str]:
    """Whether the tensor is pruned, and why, or why not."""
    form, named = tensor.form, tensor.named(choice)
    if not isinstance(form, DenseForm):
        return False, "it is sparse already"
    if role not in _NAMEABLE:
        return False, why
    if not (is_float(form) or is_fp8(form)):
        return False, f"{why}; elements of type {form.dtype} are not pruned"
    if len(form.shape) < 2 or 0 in form.shape:
        return False, f"{why}; only tensors with two axes or more, and with elements, are pruned"
    if any(choice.excludes(name) for name in tensor.ties):
        return False, f"{why}; excluded by the user"
    if not named and choice.only:
        return False, f"{why}; not named by the user"
    if not named and role is not Role.WEIGHT:
        return False, f"{why}; {_DENSE[role]}"
    assert axis is not None
    if form.shape[axis] < group:
        return False, f"{why}; its axis {axis} has {form.shape[axis]} elements, fewer than a group of {group}"
    return True, f"{why}; named by the user" if named else why


def _chosen_axis(tensor: _Tensor, choice: Choice) -> int | None:
    """The sparse axis of a tensor that the user names."""
    count, axis = len(tensor.form.shape), choice.axis
    if axis is None:
        return tensor.found.axis if tensor.found.axis is not None or count < 2 else count - 1
    if not -count <= axis < count:
        raise ValueError(
            f"--axis counts the axes of a tensor as stored, got {axis} for {tensor.name} of shape {list(tensor.form.shape)}: give one from {-count} to {count - 1}"
        )
    return axis % count


def _check_choice(tensors: Mapping[str, TensorFacts], choice: Choice) -> None:
    """Raises ValueError for a glob of the user that names no tensor, or only tensors that cannot be pruned."""
    for glob in (*choice.named, *choice.exclude):
        if not any(any_matches((glob,), name) for name in tensors):
            raise ValueError(f"{glob!r} names none of {len(tensors)} tensors: see `louver inspect` for the names")
    for glob in choice.named:
        matches = [facts for name, facts in tensors.items() if any_matches((glob,), name)]
        if not any(facts.prune or choice.excludes(facts.name) for facts in matches):
            first = matches[0]
            raise ValueError(
                f"{glob!r} names no tensor that can be pruned: {first.name} is a {first.role} ({first.reason}): leave it out"
            )
