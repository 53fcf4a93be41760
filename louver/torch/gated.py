"""Gate, up projection and activation of a block as one product.

A trace of the block's own `forward` proves it to be one (`gated_proof`). The block then gets a subclass of its class,
whose `forward` runs the pair as one product.
Both weights lie in one storage, in turns of 8 rows; the members keep their names, and their own rows in a state_dict.

A hook on a member, an adapter in its place, or a hook for all modules sends the block back to its own `forward`.
"""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import functools
from typing import Any, Final

import torch
from torch import Tensor, nn

from louver.formats.coverage import has_kernels
from louver.formats.dtypes import element_type
from louver.formats.gated import GATE_ROWS
from louver.torch.gated_proof import NotFusedError, Pair, proved
from louver.torch.layers import is_hooked
from louver.torch.linear import SparseLinear, arrays_of
from louver.torch.operators import multiply
from louver.torch.paired import PairedLinear, PairedWeight

JOINT: Final = "louver_pair"
"""The name of the child of a fused block that holds both weights. A state_dict has no keys of it."""


class GatedBlock(nn.Module):
    """What a block's class becomes: `original` is the class, `pair` its children."""

    original: type[nn.Module]
    pair: Pair

    def forward(self, x: Tensor) -> Tensor:
        pair: Pair = self.pair
        children: dict[str, Any] = self._modules
        gate, up = children[pair.gate], children[pair.up]
        changed = type(gate) is not PairedLinear or type(up) is not PairedLinear
        if (
            changed
            or _hooked_everywhere()
            or any(is_hooked(children[each]) for each in (pair.gate, pair.up, *pair.steps))
        ):
            return super().forward(x)
        joint: Any = children[JOINT]
        biases: Any = gate._parameters["bias"], up._parameters["bias"]
        bias = None if biases[0] is None else torch.cat(biases)
        arrays = arrays_of(joint)
        down: Any = children[pair.down]
        return down(
            multiply(
                x,
                arrays["values"],
                arrays["indices"],
                bias,
                joint.pattern,
                scale=arrays["scale"],
                activation=pair.activation,
                gated=True,
            )
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        # The class has no name that pickle could find.
        return _blank, (self.original, self.pair), self.__dict__


def _hooked_everywhere() -> bool:
    known = torch.nn.modules.module
    return bool(known._global_forward_hooks or known._global_forward_pre_hooks)


@functools.cache
def _class(original: type[nn.Module], pair: Pair) -> type[GatedBlock]:
    names = {"original": original, "pair": pair, "__module__": __name__, "__doc__": original.__doc__}
    return type(f"Gated{original.__name__}", (GatedBlock, original), names)


def _blank(original: type[nn.Module], pair: Pair) -> GatedBlock:
    made = _class(original, pair)
    return made.__new__(made)


def fuse_(model: nn.Module) -> dict[str, str]:
    """Make one product of the gate and the up projection in each block that a trace proves to be gated.

    Returns what became of each layer that is one of two alike in its block: the text for its row of a report.
    """
    said: dict[str, str] = {}
    places = _places(model)
    modules: list[tuple[str, Any]] = list(model.named_modules())
    for prefix, block in modules:
        names = [name for name, child in block._modules.items() if type(child) is SparseLinear]
        if len(block._modules) < 3 or not _alike(block, names):
            continue
        try:
            pair = proved(block)
            _check(block, pair, places)
        except NotFusedError as error:
            said |= {f"{prefix}.{name}" if prefix else name: f"not fused: {error}" for name in names}
            continue
        _join(block, pair)
        for name, other in ((pair.gate, pair.up), (pair.up, pair.gate)):
            said[f"{prefix}.{name}" if prefix else name] = f"one product with {other}"
    return said


def separate_(model: nn.Module) -> None:
    """Undo `fuse_`: two weights of their own, and the class of the block."""
    modules: list[Any] = list(model.modules())
    for module in modules:
        # An adapter may hold a member.
        for name, child in module._modules.items():
            if type(child) is PairedLinear:
                module._modules[name] = child.separate()
        if JOINT in module._modules:
            del module._modules[JOINT]
            module.__class__ = module.original


def gated_blocks(model: nn.Module) -> list[tuple[PairedWeight, str | None, bool]]:
    """Of each fused block with both members: the pair, its activation, and whether it has a bias."""
    found: list[tuple[PairedWeight, str | None, bool]] = []
    for block in model.modules():
        if isinstance(block, GatedBlock):
            gate, joint = block._modules[block.pair.gate], block._modules[JOINT]
            if isinstance(gate, PairedLinear) and isinstance(joint, PairedWeight):
                found.append((joint, block.pair.activation, gate.bias is not None))
    return found


def _alike(block: Any, names: list[str]) -> bool:
    """Whether two of the layers have one shape."""
    shapes = [block._modules[name].weight.shape for name in names]
    return len(set(shapes)) < len(shapes)


def _places(model: nn.Module) -> dict[int, int]:
    """In how many places each module is, by its identity."""
    counts: dict[int, int] = {}
    for module in model.modules():
        for child in module._modules.values():
            counts[id(child)] = counts.get(id(child), 0) + 1
    return counts


def _check(block: Any, pair: Pair, places: dict[int, int]) -> None:
    """Raises NotFusedError unless the two weights can be one."""
    gate, up = (block._modules[name] for name in (pair.gate, pair.up))
    for name, member in ((pair.gate, gate), (pair.up, up)):
        if type(member) is not SparseLinear:
            raise NotFusedError(f"{name} is a {type(member).__name__}")
        if places[id(member)] > 1:
            raise NotFusedError(f"{name} is in {places[id(member)]} places")
    for name in (pair.gate, pair.up, *pair.steps):
        child = block._modules[name]
        if is_hooked(child) or (isinstance(child, SparseLinear) and is_hooked(child.weight)):
            raise NotFusedError(f"{name} has hooks")
    facts = [(m.weight.shape, m.weight.dtype, m.weight.device, m.weight.pattern, m.bias is None) for m in (gate, up)]
    if facts[0] != facts[1]:
        raise NotFusedError("gate and up differ in shape, type, device, pattern or bias")
    shape, dtype, _, pattern, _ = facts[0]
    if shape[0] % GATE_ROWS:
        raise NotFusedError(f"{shape[0]} rows are no multiple of {GATE_ROWS}")
    if not has_kernels("gated products", pattern, element_type(dtype).name):
        raise NotFusedError(f"there is no gated product of {pattern} for {dtype}")


def _join(block: Any, pair: Pair) -> None:
    gate, up = (block._modules[name] for name in (pair.gate, pair.up))
    joint = PairedWeight.joined(gate.weight, up.weight)
    for half, name in enumerate((pair.gate, pair.up)):
        block._modules[name] = PairedLinear.member(block._modules[name], joint, half)
    block.add_module(JOINT, joint)
    block.__class__ = _class(type(block), pair)
