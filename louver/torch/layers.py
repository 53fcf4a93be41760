"""The matrix products of a model in memory. `louver.models` says what each weight is for; here stands what may not be
swapped although it is a product's: what has hooks, what is a subclass, what PyTorch reads itself.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from louver.formats.pattern import Pattern
from louver.models.live import is_turned, live, stacks
from louver.models.roles import ModelFacts, Role
from louver.torch.linear import SparseLinear
from louver.torch.placed import is_placed, is_placing
from louver.torch.stacks import SparseStack, become_dense_, become_sparse_

Place: TypeAlias = "tuple[nn.Module, str]"
"""A module, and the name of its child or parameter."""

_COMPUTED = (
    "its weight is no parameter, but computed of others: make it one by torch.nn.utils.parametrize.remove_parametrizations "
    "or torch.nn.utils.prune.remove"
)

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True, slots=True)
class Layer:
    """A module that multiplies by a matrix.

    names: of its places in the model. places: parent and attribute of each place. role: what the weight is for.
    refused: why Louver leaves the module as it is; None if its weight may be pruned and swapped.
    """

    names: tuple[str, ...]
    module: Any
    places: tuple[Place, ...]
    refused: str | None
    role: Role = Role.WEIGHT

    @property
    def is_head(self) -> bool:
        """Whether it gives scores, also with the weight of an embedding."""
        return self.role in (Role.HEAD, Role.EMBEDDING)

    @property
    def name(self) -> str:
        """The name of the first place."""
        return self.names[0]

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The names of the dense weight in a state_dict."""
        return tuple(f"{name}.weight" for name in self.names)

    @property
    def stored(self) -> Tensor:
        """The dense weight as the module stores it."""
        return self.module.weight

    @property
    def weight(self) -> Tensor:
        """The dense weight as [out, in], a view."""
        return self.stored.t() if is_turned(self.module) else self.stored

    @property
    def placed(self) -> Any:
        """What is in the first place now."""
        parent, attribute = self.places[0]
        return getattr(parent, attribute)

    def store(self, weight: nn.Parameter) -> None:
        """Set the dense weight."""
        self.module.weight = weight

    def unfit(self, pattern: Pattern) -> str | None:
        """Why the weight has no groups of a pattern."""
        columns = self.weight.shape[-1]
        return f"{columns} input features are less than a group of {pattern}" if columns < pattern.m else None

    def sparse(self, pattern: str | Pattern) -> Any:
        """The sparse module of the layer. Raises ValueError for a group of too many non-zeros."""
        return SparseLinear.of(self.module, pattern)

    def like(self, pattern: str | Pattern, dtype: torch.dtype | None, *, scaled: bool) -> Any:
        """The sparse module on the meta device, to be loaded, see `SparseWeight.like`."""
        return SparseLinear.like(self.module, pattern, dtype=dtype, scaled=scaled)

    def put(self, module: nn.Module) -> None:
        """Put another module in all places of this one."""
        for parent, attribute in self.places:
            setattr(parent, attribute, module)

    def expand(self) -> None:
        """Put the dense layer of equal values in the place of this sparse one."""
        self.put(self.module.linear())


class Stack(Layer):
    """The weights of all experts of a layer: a parameter of `module`, or the child `module` if they are sparse."""

    __slots__ = ()

    @property
    def experts(self) -> Any:
        """The layer of experts."""
        return self.places[0][0]

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return self.names

    @property
    def stored(self) -> Tensor:
        return self.placed

    @property
    def weight(self) -> Tensor:
        """The dense weights as [experts, out, in], a view."""
        return self.stored.mT if self.experts.is_transposed else self.stored

    def store(self, weight: nn.Parameter) -> None:
        setattr(*self.places[0], weight)

    def unfit(self, pattern: Pattern) -> str | None:
        rows = self.weight.shape[1]
        return Layer.unfit(self, pattern) or (
            f"{rows} rows of an expert are no multiple of {pattern.length}, as {pattern} needs"
            if rows % pattern.length
            else None
        )

    def sparse(self, pattern: str | Pattern) -> Any:
        return SparseStack.of(self.weight, pattern)

    def like(self, pattern: str | Pattern, dtype: torch.dtype | None, *, scaled: bool) -> Any:
        return SparseStack.like(self.weight, pattern, dtype=dtype, scaled=scaled)

    def put(self, module: nn.Module) -> None:
        experts, attribute = self.places[0]
        delattr(experts, attribute)
        experts.add_module(attribute, module)
        become_sparse_(experts)

    def expand(self) -> None:
        experts, attribute = self.places[0]
        with torch.inference_mode(False), torch.no_grad():
            dense = self.module.dense()
            dense = dense.mT.contiguous() if self.experts.is_transposed else dense
        trains = self.module.values.requires_grad
        delattr(experts, attribute)
        experts.register_parameter(attribute, nn.Parameter(dense, trains))
        become_dense_(experts)


def is_hooked(module: Any) -> bool:
    """Whether a call of the module runs hooks, or a `forward` of its own."""
    own = module.__dict__.get("forward")
    replaced = own is not None and getattr(own, "__func__", own) is not type(module).forward
    return replaced or any(_foreign(module, hooks) for hooks in _HOOKS)


def _foreign(module: Any, hooks: str) -> bool:
    """Whether hooks do more than to place what a `Layout` places too."""
    placing = getattr(module, "layout", None) is not None
    return any(not (placing and is_placing(hook)) for hook in getattr(module, hooks).values())


def is_dense(module: nn.Module) -> bool:
    """Whether the module is a dense linear layer that `SparseLinear` can stand for."""
    return type(module) is nn.Linear or is_turned(module)


def dense_layers(model: nn.Module) -> list[Layer]:
    """The linear layers and the stacks of experts of a model. Raises ValueError if there are none."""
    layers = swappable(model)
    if not layers:
        raise ValueError(
            f"a model has layers of torch.nn.Linear, or of Transformers' Conv1D, got {type(model).__name__} without one"
        )
    facts, adapted = live(model), _adapted(model)
    return [
        replace(layer, refused=_COMPUTED)
        if layer.parameter_names[0] not in facts.tensors
        else replace(
            layer,
            refused=_refusal(layer, facts) or adapted.get(layer.module),
            role=facts.tensors[layer.parameter_names[0]].role,
        )
        for layer in layers
    ]


def linear_layers(model: nn.Module) -> list[Layer]:
    """Those of `dense_layers` that are no stacks of experts."""
    return [layer for layer in dense_layers(model) if not isinstance(layer, Stack)]


def swappable(model: nn.Module) -> list[Layer]:
    """The same, without a look at what they are for."""
    return _found(model, _dense_at)


def sparse_layers(model: nn.Module) -> list[Layer]:
    """The layers of `SparseLinear` and of `SparseStack` in a model."""
    return _found(model, _sparse_at)


def _dense_at(name: str, module: Any, place: Place | None) -> Iterator[tuple[type[Layer], str, Place]]:
    """The layers that a module is or has, with name and place of each. place: of the module; None for the model itself."""
    if place is not None and (isinstance(module, nn.Linear) or is_turned(module)):
        yield Layer, name, place
    for attribute in stacks(module):
        yield Stack, f"{name}.{attribute}" if name else attribute, (module, attribute)


def _sparse_at(name: str, module: Any, place: Place | None) -> Iterator[tuple[type[Layer], str, Place]]:
    if place is not None and isinstance(module, SparseLinear | SparseStack):
        yield Layer if isinstance(module, SparseLinear) else Stack, name, place


def _found(
    model: nn.Module, at: Callable[[str, Any, Place | None], Iterator[tuple[type[Layer], str, Place]]]
) -> list[Layer]:
    """The layers of a model, each once, with all their places."""
    found: dict[tuple[object, ...], tuple[type[Layer], nn.Module, dict[str, None], dict[Place, None]]] = {}
    modules: dict[str, nn.Module] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        modules[name] = module
        prefix, _, attribute = name.rpartition(".")
        for kind, own, place in at(name, module, (modules[prefix], attribute) if name else None):
            key = module, place[1] if kind is Stack else ""
            _, _, names, places = found.setdefault(key, (kind, module, {}, {}))
            names[own] = places[place] = None
    return [kind(tuple(names), module, tuple(places), None) for kind, module, names, places in found.values()]


def _refusal(layer: Layer, facts: ModelFacts) -> str | None:
    """Why a layer stays as it is."""
    known, module = facts.tensors[layer.parameter_names[0]], layer.module
    tied = [name for name in known.ties if name not in layer.parameter_names]
    reader = next((parent for parent, _ in layer.places if _reads_weights(parent)), None)
    if known.role is not Role.WEIGHT:
        return known.reason
    if tied:
        return f"one parameter with {', '.join(tied)}"
    if getattr(module, "_is_expert_parallel", False):
        return "its experts are divided among devices"
    if not isinstance(layer, Stack) and not is_dense(module):
        return f"it is a {type(module).__name__}, not a torch.nn.Linear"
    if reader is not None:
        return f"{type(reader).__name__} reads the weight itself"
    if is_placed(layer.weight) and not any(
        not is_placing(hook) for hooks in _HOOKS for hook in getattr(module, hooks).values()
    ):
        return None
    return "it has hooks: attach them after the swap" if is_hooked(module) else None


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
