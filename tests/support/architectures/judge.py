"""Compares `louver.models.analyze` with what real runs of a tiny model show, tensor by tensor."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import nn

from louver.models.analyze import analyze
from louver.models.evidence.inputs import tries
from louver.models.roles import Evidence, ModelFacts
from support.architectures import oracle
from support.architectures.tiny import rules, tiny_model

GATES = ("gate", "router", "wg", "shared_expert_gate", "classifier", "switch")
"""Last names of modules that choose or gate experts, beside a module `experts`."""

HEADS = ("score", "classifier", "head")
"""Last words of names of modules outside the blocks that give scores."""

MORE_HEADS = {
    "MobileBertForMaskedLM": ("cls.predictions.dense.weight",),
    "LevitForImageClassification": ("classifier.linear.weight",),
}
"""MobileBERT's head is this weight and the embedding, side by side; LeViT's is a linear module inside another."""


@dataclass
class Verdict:
    """What is wrong with the decisions about one checkpoint. weights: how many tensors products contract."""

    weights: int = 0
    pruned: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    unmeasured: int = 0
    by_model: int = 0


def run_really(model: Any) -> tuple[dict[int, set[int]], dict[int, str], set[int]]:
    """Run the model on random inputs; what the graphs of gradients show, and which parameters are heads."""
    contracted: dict[int, set[int]] = {}
    other: dict[int, str] = {}
    heads: set[int] = set()
    outs: dict[int, torch.Tensor] = {}
    hooks = [
        # A router made from `nn.Linear` gives several tensors.
        module.register_forward_hook(
            lambda module, args, out: outs.__setitem__(id(module.weight), out) if torch.is_tensor(out) else None
        )
        for module in model.modules()
        if isinstance(module, nn.Linear)
    ]
    parts = [model, *(each for each in model.modules() if each is not model and hasattr(each, "main_input_name"))]
    ran, why = False, ""
    for part in parts:
        for arguments in tries(part, part.config):
            torch.manual_seed(1)
            fed = {name: torch.randn(x.shape) if x.is_floating_point() else x for name, x in arguments.items()}
            try:
                out = part(**fed)
            except Exception as error:
                if part is model and not why:
                    why = " ".join(f"{type(error).__name__}: {error}".split())
                continue
            ran = ran or part is model
            values = [value for value in _tensors(out) if value.requires_grad]
            found, uses = oracle.measured(values)
            for key, axes in found.items():
                contracted.setdefault(key, set()).update(axes)
            other |= uses
            if part is model:
                logits = [value for name, value in out.items() if "logits" in name and torch.is_tensor(value)]
                for key, result in outs.items():
                    if any(
                        value.numel() == result.numel() and torch.equal(value.flatten(), result.flatten())
                        for value in logits
                    ):
                        heads.add(key)
            break
    for hook in hooks:
        hook.remove()
    if not ran:
        raise ValueError(f"the real model did not run: {why or 'its inputs are not known'}")
    return contracted, other, heads


def _tensors(value: Any) -> list[torch.Tensor]:
    if torch.is_tensor(value):
        return [value]
    if isinstance(value, dict):
        return [each for inner in value.values() for each in _tensors(inner)]
    if isinstance(value, (list, tuple)):
        return [each for inner in value for each in _tensors(inner)]
    return []


@dataclass(frozen=True)
class Truth:
    """For a stored tensor: its contracted axes, and whether it is one of the weights that are pruned by default."""

    axes: frozenset[int]
    kind: str


def truths(model: Any, folder: Path) -> dict[str, Truth]:
    """By name in the checkpoint. Stored elements are found in the model by their values, which all differ."""
    contracted, other, heads = run_really(model)
    known, known_other = oracle.known_modules(model)
    contracted = known | contracted
    other = known_other | other
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if getattr(head, "weight", None) is not None:
        heads.add(id(head.weight))
    for name, module in model.named_modules():
        parts = name.split(".")
        if (
            isinstance(module, nn.Linear)
            and parts[-1].split("_")[-1] in HEADS
            and not any(part.isdecimal() for part in parts)
        ):
            heads.add(id(module.weight))
    parameters = dict(model.named_parameters())
    heads |= {id(parameters[name]) for name in MORE_HEADS.get(type(model).__name__, ())}
    gates = _gates(model)
    named = {id(p): name for name, p in parameters.items()}
    values = np.concatenate([p.detach().numpy().ravel() for p in parameters.values()])
    starts = np.cumsum([0, *(p.numel() for p in parameters.values())])
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    owners = list(parameters.values())

    def place(value: float) -> tuple[Any, tuple[int, ...]] | None:
        at = np.searchsorted(ordered, value)
        if at == len(ordered) or ordered[at] != value or (at + 1 < len(ordered) and ordered[at + 1] == value):
            return None
        owner = int(np.searchsorted(starts, order[at], side="right")) - 1
        parameter = owners[owner]
        return parameter, tuple(int(i) for i in np.unravel_index(order[at] - starts[owner], parameter.shape))

    found: dict[str, Truth] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "np") as file:
            for name in sorted(file.keys()):
                tensor = file.get_tensor(name)
                if tensor.ndim >= 2 and tensor.dtype.kind == "f" and tensor.size:
                    found[name] = _truth(tensor, place, contracted, other, heads, gates, named)
    return found


def _truth(tensor: Any, place: Any, contracted: Any, other: Any, heads: set[int], gates: set[int], named: Any) -> Truth:
    rng = np.random.default_rng(0)
    axes: set[int] = set()
    kinds: set[str] = set()
    for axis in range(tensor.ndim):
        for _ in range(40):
            if tensor.shape[axis] < 2:
                break
            first = [int(rng.integers(size)) for size in tensor.shape]
            first[axis] = int(rng.integers(tensor.shape[axis] - 1))
            second = list(first)
            second[axis] += 1
            a, b = place(tensor[tuple(first)]), place(tensor[tuple(second)])
            if a is None or b is None or a[0] is not b[0]:
                continue
            key = id(a[0])
            kinds.add(_kind(key, contracted, other, heads, gates))
            moved = {i for i, (x, y) in enumerate(zip(a[1], b[1], strict=True)) if x != y}
            if len(moved) == 1 and moved <= contracted.get(key, set()):
                axes.add(axis)
            break
    kind = (
        "head"
        if "head" in kinds
        else "lookup"
        if "lookup" in kinds
        else min(kinds)
        if len(kinds) == 1
        else "mixed"
        if kinds
        else "unmeasured"
    )
    return Truth(frozenset(axes), kind)


def _kind(key: int, contracted: Any, other: Any, heads: set[int], gates: set[int]) -> str:
    if key in heads:
        return "head"
    if key in gates:
        return "gate"
    use = other.get(key, "unmeasured")
    return "weight" if contracted.get(key) and use in ("read", "unmeasured") else use


def _gates(model: Any) -> set[int]:
    """Parameters that choose experts or gate them, by the names of the modules around them."""
    found: set[int] = set()
    for path, module in model.named_modules():
        if "router" in path.split("."):
            found |= {id(parameter) for parameter in module.parameters() if parameter.dim() == 2}
        children = dict(module.named_children())
        if not any("experts" in child for child in children):
            continue
        for child, inner in children.items():
            if child in GATES or type(inner).__name__.endswith(("Router", "Gate", "TopkRouter", "TopKGate")):
                found |= {id(parameter) for parameter in inner.parameters() if parameter.dim() == 2}
    return found


def judged(facts: ModelFacts, truth: dict[str, Truth]) -> Verdict:
    verdict = Verdict(notes=facts.notes)
    for name, each in truth.items():
        fact = facts.tensors[name]
        is_weight = each.kind == "weight" and bool(each.axes)
        verdict.weights += is_weight
        verdict.by_model += is_weight and fact.evidence is Evidence.MODEL
        verdict.unmeasured += each.kind == "unmeasured"
        if fact.prune and each.kind != "unmeasured" and (not is_weight or fact.axis not in each.axes):
            verdict.pruned.append(f"{name} {list(fact.form.shape)}: {fact.role} along {fact.axis}, not {each}")
        if is_weight and not fact.prune:
            verdict.left.append(f"{name} {list(fact.form.shape)}: {fact.role} ({fact.reason}), not {each}")
    return verdict


def smallest(kind: str) -> Any:
    """The smallest model of an architecture that runs. Raises the first model's error if none does."""
    failed: Exception | None = None
    for rule in rules(kind):
        try:
            model = tiny_model(kind, rule)
            run_really(model)
            return model
        except Exception as error:
            failed = failed or error
    assert failed is not None
    raise failed


def verdicts(folder: Path, truth: dict[str, Truth]) -> tuple[Verdict, Verdict]:
    """On a folder of a model: with the model itself, and by evidence 2 to 4 alone."""
    rest = tuple(kind for kind in Evidence if kind is not Evidence.MODEL)
    return judged(analyze(folder), truth), judged(analyze(folder, evidence=rest), truth)
