"""The matrix products of a live model, and what each is: from its modules, not from names."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from louver.models.roles import Role
from louver.torch.linear import SparseLinear

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True, slots=True)
class Layer:
    """A module that multiplies by a matrix.

    name: of its first place in the model. places: parent and attribute of each place. refused: why Louver leaves the
    module as it is; None if its weight may be pruned and swapped.
    """

    name: str
    module: Any
    places: tuple[tuple[nn.Module, str], ...]
    role: Role
    refused: str | None

    @property
    def weight(self) -> Tensor:
        """The dense weight as [out, in], a view."""
        return self.module.weight.t() if is_turned(self.module) else self.module.weight

    def put(self, module: nn.Module) -> None:
        """Put another module in all places of this one."""
        for parent, attribute in self.places:
            setattr(parent, attribute, module)


def is_turned(module: nn.Module) -> bool:
    """Whether the module is Transformers' Conv1D, a linear layer with a weight [in, out]."""
    made: Any = sys.modules.get("transformers.pytorch_utils")
    return made is not None and type(module) is made.Conv1D


def is_hooked(module: Any) -> bool:
    """Whether a call of the module runs hooks, or a `forward` of its own."""
    own = module.__dict__.get("forward")
    replaced = own is not None and getattr(own, "__func__", own) is not type(module).forward
    return replaced or any(getattr(module, hooks) for hooks in _HOOKS)


def is_dense(module: nn.Module) -> bool:
    """Whether the module is a dense linear layer that `SparseLinear` can stand for."""
    return type(module) is nn.Linear or is_turned(module)


def dense_layers(model: nn.Module) -> list[Layer]:
    """The linear layers of a model. Raises ValueError if there are none."""
    found = _modules(model, (nn.Linear,))
    if not found:
        raise ValueError(
            f"a model has layers of torch.nn.Linear, or of Transformers' Conv1D, got {type(model).__name__} without one"
        )
    owners = _owners(model)
    heads, adapted = _heads(model), _adapted(model)
    layers = [_layer(name, module, places, owners, heads) for name, module, places in found]
    return [
        replace(layer, refused=adapted[layer.module]) if layer.refused is None and layer.module in adapted else layer
        for layer in layers
    ]


def sparse_layers(model: nn.Module) -> list[Layer]:
    """The layers of `SparseLinear` in a model."""
    found = _modules(model, (SparseLinear,))
    return [Layer(name, module, places, Role.WEIGHT, None) for name, module, places in found]


def _modules(
    model: nn.Module, kinds: tuple[type, ...]
) -> list[tuple[str, nn.Module, tuple[tuple[nn.Module, str], ...]]]:
    """The modules of these kinds below a model, with all their places. The model itself has no place."""
    names: dict[nn.Module, str] = {}
    places: dict[nn.Module, dict[tuple[nn.Module, str], None]] = {}
    parents: dict[str, nn.Module] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        parents[name] = module
        prefix, _, attribute = name.rpartition(".")
        if name and (isinstance(module, kinds) or (nn.Linear in kinds and is_turned(module))):
            names.setdefault(module, name)
            places.setdefault(module, {})[parents[prefix], attribute] = None
    return [(name, module, tuple(places[module])) for module, name in names.items()]


def _owners(model: nn.Module) -> Mapping[int, list[str]]:
    """The names of each parameter, by the identity of its object: one name for each module that has it."""
    names: dict[int, list[str]] = {}
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            names.setdefault(id(parameter), []).append(f"{prefix}.{name}" if prefix else name)
    return names


def _layer(
    name: str,
    module: Any,
    places: tuple[tuple[nn.Module, str], ...],
    owners: Mapping[int, list[str]],
    heads: set[int],
) -> Layer:
    rows = module.weight.shape[1 if is_turned(module) else 0]
    role, refused = Role.WEIGHT, None
    tied = [other for other in owners[id(module.weight)] if other != f"{name}.weight"]
    reader = next((parent for parent, _ in places if _reads_weights(parent)), None)
    if id(module) in heads:
        role, refused = Role.HEAD, "it gives a score for each token; heads stay dense"
    elif any(_is_router(parent, rows) for parent, _ in places):
        role, refused = Role.ROUTER, "it chooses experts; routers stay dense"
    elif rows == 1:
        role, refused = Role.HEAD, "it gives a single score; heads stay dense"
    elif tied:
        refused = f"one parameter with {', '.join(tied)}"
    elif not is_dense(module):
        refused = f"it is a {type(module).__name__}, not a torch.nn.Linear"
    elif reader is not None:
        refused = f"{type(reader).__name__} reads the weight itself"
    elif is_hooked(module):
        refused = "it has hooks: attach them after the swap"
    return Layer(name, module, places, role, refused)


def _heads(model: nn.Module) -> set[int]:
    """The modules that score tokens: those that a model of Transformers names; else those that have a row for each row
    of the largest embedding, of its width.
    """
    named = {id(head) for head in _named_heads(model)}
    if named:
        return named
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    largest = max(tables, key=lambda table: table.num_embeddings, default=None)
    if largest is None or largest.num_embeddings <= largest.embedding_dim:
        return set()
    shape = largest.weight.shape
    return {id(module) for module in model.modules() if is_dense(module) and module.weight.shape == shape}


def _named_heads(model: nn.Module) -> Iterator[nn.Module]:
    for module in model.modules():
        find: Any = getattr(module, "get_output_embeddings", None)
        head = find() if find is not None else None
        if isinstance(head, nn.Module):
            yield head


def _is_router(parent: nn.Module, rows: int) -> bool:
    """Whether a child of `parent` with so many rows gives one score for each expert beside it."""
    counts = {len(child) for child in parent.children() if isinstance(child, nn.ModuleList)}
    for module in (parent, *parent.children()):
        counts |= {value for name, value in vars(module).items() if "expert" in name and type(value) is int}
    return rows in counts


def _adapted(model: nn.Module) -> dict[nn.Module, str]:
    """For each module below a layer of PEFT: why it stays as it is."""
    loaded: Any = sys.modules.get("peft.tuners.tuners_utils")
    if loaded is None:
        return {}
    tuners: list[Any] = [module for module in model.modules() if isinstance(module, loaded.BaseTunerLayer)]
    reasons: dict[nn.Module, str] = {}
    for tuner in tuners:
        reasons |= dict.fromkeys(tuner.modules(), "it belongs to an adapter of PEFT")
    return reasons | dict.fromkeys(
        (tuner.get_base_layer() for tuner in tuners),
        "an adapter of PEFT reads the weight itself: attach it after the swap",
    )


def _reads_weights(parent: nn.Module) -> bool:
    """Whether a module of PyTorch itself, such as its attention, reads the weights of its children."""
    return type(parent).__module__.startswith("torch.nn.modules.") and not isinstance(
        parent, nn.Sequential | nn.ModuleList | nn.ModuleDict
    )
