"""`live`: what each parameter of a model in memory is, by the rules of `analyze`.

Evidence 1 for a model in memory that cannot be run, because nothing says what its inputs are: PyTorch's modules say what
they do with their weight, and their places among other modules say what for.

Evidence 1 for a model in memory that cannot be run, because nothing says what its inputs are: PyTorch's modules say what
they do with their weight, and their places among other modules say what for.
"""

# Torch has no complete types.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from torch import nn

from louver.formats.schema import DenseForm
from louver.models.analyze import decide
from louver.models.evidence import model as evidence
from louver.models.evidence.config import Config
from louver.models.evidence.found import Found
from louver.models.evidence.model import ModelEvidence
from louver.models.roles import Evidence, ModelFacts, Role


def find_structure(model: nn.Module) -> dict[str, Found]:
    """Roles of the weights of linear layers, convolutions and tables, under all of their names."""
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    largest = max(tables, key=lambda table: table.num_embeddings, default=None)
    scored = None
    if largest is not None and largest.num_embeddings > largest.embedding_dim:
        scored = largest.weight.shape
    found: dict[str, Found] = {}
    groups: dict[int, list[str]] = {}
    parents = dict(model.named_modules(remove_duplicate=False))
    for name, module in parents.items():
        prefix = f"{name}." if name else ""
        weight = getattr(module, "weight", None)
        each = None
        if isinstance(weight, nn.Parameter):
            each = _role(module, parents[name.rpartition(".")[0]] if name else None, scored)
        if each is not None:
            found[f"{prefix}weight"] = each
            groups.setdefault(id(weight), []).append(f"{prefix}weight")
        for stack in stacks(module):
            axis = 1 if module.is_transposed else 2
            found[prefix + stack] = _found(Role.WEIGHT, f"experts contract their axis {axis}", axis)
    # A table that is tied to the head stays dense for being the head.
    for names in groups.values():
        head = next((found[name] for name in names if found[name].role is Role.HEAD), None)
        found |= dict.fromkeys(names, head) if head else {}
    return found


def is_turned(module: Any) -> bool:
    """Whether the module is Transformers' Conv1D, a linear layer with a weight [in, out]."""
    made: Any = sys.modules.get("transformers.pytorch_utils")
    return made is not None and type(module) is made.Conv1D


def stacks(module: Any) -> list[str]:
    """The names of the parameters that hold the weights of all experts of a layer. Transformers gives such a layer several
    implementations of `forward`, which know the parameters by these names; empty for any other module.
    """
    if not ({"is_transposed", "has_gate", "has_bias"} <= vars(module).keys() and hasattr(module, "_apply_gate")):
        return []
    names = ("gate_up_proj" if module.has_gate else "up_proj", "down_proj")
    return [name for name in names if isinstance(getattr(module, name, None), nn.Parameter)]


def _role(module: Any, parent: Any, scored: Any) -> Found | None:
    """scored: the shape of a weight that scores each token, as the largest table shows."""
    if isinstance(module, nn.modules.conv._ConvNd):
        return _found(Role.CONVOLUTION, "a convolution", 0 if module.transposed else 1)
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return _found(Role.EMBEDDING, "a table whose rows are looked up")
    if not isinstance(module, nn.Linear) and not is_turned(module):
        return None
    axis = 0 if is_turned(module) else 1
    rows = module.weight.shape[1 - axis]
    if module.weight.shape == scored:
        return _found(Role.HEAD, "it gives a score for each token", axis)
    if parent is not None and rows in _experts(parent):
        return _found(Role.ROUTER, "it chooses experts", axis)
    if rows == 1:
        return _found(Role.HEAD, "it gives a single score", axis)
    return _found(Role.WEIGHT, f"a {type(module).__name__} contracts its axis {axis}", axis)


def _experts(parent: nn.Module) -> Iterator[int]:
    """Numbers of experts beside the children of a module."""
    yield from (len(child) for child in parent.children() if isinstance(child, nn.ModuleList))
    for module in (parent, *parent.children()):
        yield from (value for name, value in vars(module).items() if "expert" in name and type(value) is int)


def _found(role: Role, reason: str, axis: int | None = None) -> Found:
    return Found(role, Evidence.MODEL, reason, axis)


def live(model: nn.Module) -> ModelFacts:
    """The facts of a model's parameters, under all of their names. No data are read, and the model stays as it is.

    Models of Transformers in it are run with fake tensors, as `analyze` runs them. The structure of modules, then names,
    decide on what no run has reached.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    forms = {
        name: DenseForm("F32" if each.is_floating_point() else "U8", tuple(each.shape))
        for name, each in parameters.items()
    }
    names: defaultdict[int, list[str]] = defaultdict(list)
    for name, each in parameters.items():
        names[id(each)].append(name)
    found, notes = find_structure(model), ()
    for prefix, inner in _outermost(model):
        ran = evidence.find_live(inner)
        notes += ran.notes
        found |= {name: each for first, each in ran.found.items() for name in names[id(parameters[prefix + first])]}
    ties = tuple(tuple(group) for group in names.values() if len(group) > 1)
    return decide(
        forms,
        Config(_fields(model)),
        {},
        ran=ModelEvidence(found, ties, notes=notes),
        same=lambda first, second: parameters[first] is parameters[second],
    )


def _outermost(model: nn.Module) -> list[tuple[str, Any]]:
    """The models of Transformers in a model that are in no other one, with the prefixes of their parameters' names."""
    loaded: Any = sys.modules.get("transformers.modeling_utils")
    if loaded is None:
        return []
    if isinstance(model, loaded.PreTrainedModel):
        return [("", model)]
    inner = [(name, _outermost(child)) for name, child in model.named_children()]
    return [(f"{name}.{prefix}", each) for name, models in inner for prefix, each in models]


def _fields(model: Any) -> dict[str, Any]:
    """The fields of a model's configuration."""
    fields = getattr(getattr(model, "config", None), "to_dict", dict)()
    return fields if isinstance(fields, dict) else {}
