"""`live`: what each parameter of a model in memory is, by the rules of `analyze`."""

# Torch has no complete types.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any

from torch import nn

from louver.formats.schema import DenseForm
from louver.models.analyze import decide
from louver.models.evidence import model as evidence
from louver.models.evidence import structure
from louver.models.evidence.config import Config
from louver.models.evidence.model import ModelEvidence
from louver.models.roles import ModelFacts


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
    found, notes = structure.find(model), ()
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
