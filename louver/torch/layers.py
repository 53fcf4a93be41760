"""The matrix products of a model in memory. `louver.models` says what each weight is for; here stands what may not be
swapped although it is a product's: what has hooks, what is a subclass, what PyTorch reads itself.
"""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from louver.models.evidence.structure import is_turned
from louver.models.live import live
from louver.models.roles import ModelFacts, Role
from louver.torch.linear import SparseLinear

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True, slots=True)
class Layer:
    """A module that multiplies by a matrix.

    names: of its places in the model. places: parent and attribute of each place. refused: why Louver leaves the
    module as it is; None if its weight may be pruned and swapped.
    """

    names: tuple[str, ...]
    module: Any
    places: tuple[tuple[nn.Module, str], ...]
    refused: str | None

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
        """The module that is in the first place now."""
        parent, attribute = self.places[0]
        return getattr(parent, attribute)

    def store(self, weight: nn.Parameter) -> None:
        """Set the dense weight."""
        self.module.weight = weight

    def put(self, module: nn.Module) -> None:
        """Put another module in all places of this one."""
        for parent, attribute in self.places:
            setattr(parent, attribute, module)


def is_hooked(module: Any) -> bool:
    """Whether a call of the module runs hooks, or a `forward` of its own."""
    return any(getattr(module, hooks) for hooks in _HOOKS) or "forward" in vars(module)


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
    facts = live(model)
    return [_layer(names, module, places, facts) for names, module, places in found]


def sparse_layers(model: nn.Module) -> list[Layer]:
    """The layers of `SparseLinear` in a model."""
    found = _modules(model, (SparseLinear,))
    return [Layer(names, module, places, None) for names, module, places in found]


def _modules(
    model: nn.Module, kinds: tuple[type, ...]
) -> list[tuple[tuple[str, ...], nn.Module, tuple[tuple[nn.Module, str], ...]]]:
    """The modules of these kinds below a model, with all their places. The model itself has no place."""
    names: dict[nn.Module, list[str]] = {}
    places: dict[nn.Module, dict[tuple[nn.Module, str], None]] = {}
    parents: dict[str, nn.Module] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        parents[name] = module
        prefix, _, attribute = name.rpartition(".")
        if name and (isinstance(module, kinds) or (nn.Linear in kinds and is_turned(module))):
            names.setdefault(module, []).append(name)
            places.setdefault(module, {})[parents[prefix], attribute] = None
    return [(tuple(names[module]), module, tuple(places[module])) for module in names]


def _layer(
    names: tuple[str, ...], module: Any, places: tuple[tuple[nn.Module, str], ...], facts: ModelFacts
) -> Layer:
    layer = Layer(names, module, places, None)
    known = facts.tensors[layer.parameter_names[0]]
    tied = [name for name in known.ties if name not in layer.parameter_names]
    reader = next((parent for parent, _ in places if _reads_weights(parent)), None)
    refused = None
    if known.role is not Role.WEIGHT:
        refused = known.reason
    elif tied:
        refused = f"one parameter with {', '.join(tied)}"
    elif not is_dense(module):
        refused = f"it is a {type(module).__name__}, not a torch.nn.Linear"
    elif reader is not None:
        refused = f"{type(reader).__name__} reads the weight itself"
    elif is_hooked(module):
        refused = "it has hooks: attach them after the swap"
    return replace(layer, refused=refused)


def _reads_weights(parent: nn.Module) -> bool:
    """Whether a module of PyTorch itself, such as its attention, reads the weights of its children."""
    return type(parent).__module__.startswith("torch.nn.modules.") and not isinstance(
        parent, nn.Sequential | nn.ModuleList | nn.ModuleDict
    )
