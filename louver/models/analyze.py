"""`analyze`: decides what each tensor of a checkpoint is and whether it is pruned, before anything is touched."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from louver.formats.checkpoint import Checkpoint, open_checkpoint
from louver.formats.pattern import Pattern
from louver.formats.schema import DenseForm, Form
from louver.models import ties
from louver.models.evidence import model, names, siblings
from louver.models.evidence.config import Config, read_config
from louver.models.evidence.found import Found, is_float, is_fp8
from louver.models.evidence.model import ModelEvidence
from louver.models.roles import Evidence, ModelFacts, Role, Scale, TensorFacts
from louver.models.selection import DEFAULT, Choice, any_matches

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
    same = ties.same_bytes(checkpoint)
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
    same: ties.Same = lambda first, second: True,
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
    tied, unequal = ties.find(forms, found, aliases, ran.ties, known, same)
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
