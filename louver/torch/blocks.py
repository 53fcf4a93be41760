"""Layers of a block with one input as one product: q, k and v, or a gate and an up projection with its activation.

A proof says that the block's `forward` gives them one input: a trace of a gated layer (`gated_proof`), or its source
(`shared`). The block then gets a subclass of its class, whose `forward` computes one product. The weights lie in one
storage; the members keep their names, and their own rows in a state_dict.

A hook on a member, an adapter in its place, or a hook for all modules sends the block back to its own `forward`, in
which each member multiplies by its own rows.
"""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from louver.formats.dtypes import element_type
from louver.formats.gated import GATE_ROWS
from louver.formats.pattern import Pattern, has_kernels
from louver.torch.columns import windows_of
from louver.torch.gated_proof import Pair, proved
from louver.torch.joined import JoinedLinear, JoinedWeight
from louver.torch.layers import is_hooked
from louver.torch.linear import SparseLinear
from louver.torch.shared import Found, Region, Rows, found
from louver.torch.source import NotJoinedError, source_of

Plan: TypeAlias = Pair | Rows


def joint_name(group: int) -> str:
    """The name of the child of a joined block that holds the weights of a group. A state_dict has no keys of it."""
    return f"louver_joined_{group}"


class JoinedBlock(nn.Module):
    """What a block's class becomes: `original` is the class, `plan` says which children are one product."""

    original: type[nn.Module]
    proven: Any
    """The `forward` of the class when it was proven."""
    plan: Plan
    groups: tuple[tuple[str, ...], ...]
    steps: tuple[tuple[str, type], ...]
    activation: str | None
    """Of the plan: compilers of older versions read no other object of a class."""
    louver_forward: Any

    def forward(self, *arguments: Any, **named: Any) -> Any:
        if _intact(self):
            return self.louver_forward(*arguments, **named)
        return super().forward(*arguments, **named)

    def louver_products(self, group: int, x: Tensor) -> Sequence[Tensor]:
        """The outputs of the layers of a group."""
        joint: Any = self._modules[joint_name(group)]
        return joint.products(x, _biases(self, self.groups[group]))

    def louver_gated(self, x: Tensor) -> Tensor:
        """The input of the down projection."""
        joint: Any = self._modules[joint_name(0)]
        return joint.gated(x, _biases(self, self.groups[0]), self.activation)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # The class has no name that pickle could find.
        return _blank, (self.original, self.plan), self.__dict__


def _biases(block: Any, names: Sequence[str]) -> list[Tensor | None]:
    return [block._modules[name]._parameters["bias"] for name in names]


def _intact(block: Any) -> bool:
    """Whether a block is as it was proven: its own children, without hooks."""
    children = block._modules
    known = torch.nn.modules.module
    if known._global_forward_hooks or known._global_forward_pre_hooks or block.original.forward is not block.proven:
        return False
    for name, kind in block.steps:
        if type(children.get(name)) is not kind or is_hooked(children[name]):
            return False
    for group, names in enumerate(block.groups):
        joint = children[joint_name(group)]
        for name in names:
            child: Any = children.get(name)
            if type(child) is not JoinedLinear or is_hooked(child):
                return False
            rows: Any = child._modules["weight"]
            if rows.joint is not joint:
                return False
    return True


@functools.cache
def _class(original: type[nn.Module], plan: Plan) -> type[JoinedBlock]:
    forward: Any = original.forward
    names = {
        "original": original,
        "proven": staticmethod(forward),
        "plan": plan,
        "groups": plan.groups,
        "steps": plan.steps,
        "activation": plan.activation if isinstance(plan, Pair) else None,
        "louver_forward": plan.function(original),
        "__module__": original.__module__,
        "__doc__": original.__doc__,
        "__qualname__": original.__qualname__,
    }
    # Others look classes of blocks up by their names.
    return type(original.__name__, (JoinedBlock, original), names)


def _blank(original: type[nn.Module], plan: Plan) -> JoinedBlock:
    made = _class(original, plan)
    return made.__new__(made)


# --- what can be joined ------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Fact:
    """What layers of one weight have in common. trains: whether the weight requires grad. layout: of layers on several
    ranks.
    """

    columns: int
    dtype: torch.dtype
    device: torch.device
    pattern: str
    trains: bool
    bias: tuple[torch.dtype, torch.device] | None
    dense_dtype: torch.dtype | None = None
    layout: Any = None

    def differs(self, other: Fact) -> bool:
        """Whether two layers cannot be one. A bias may be missing."""
        biases = {self.bias, other.bias} - {None}
        return replace(self, bias=None) != replace(other, bias=None) or len(biases) > 1


@dataclass(frozen=True, slots=True)
class Joinable:
    """A block, its name in the model, and the plan that is proven for it; None if there is none.

    reasons: why layers of it cannot be joined, by name.
    """

    prefix: str
    block: Any
    plan: Plan | None
    reasons: Mapping[str, str]

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        return () if self.plan is None else self.plan.groups

    @property
    def by_turns(self) -> bool:
        return isinstance(self.plan, Pair)

    @property
    def activation(self) -> str | None:
        return self.plan.activation if isinstance(self.plan, Pair) else None

    def name(self, child: str) -> str:
        return f"{self.prefix}.{child}" if self.prefix else child


def joinable(model: nn.Module, patterns: Mapping[int, str] | None = None) -> list[Joinable]:
    """The blocks of a model with layers that could be one product.

    patterns: the pattern of each dense layer that is to become sparse, by the identity of the module. By default,
    layers that are sparse are asked for.
    """
    places = _places(model)
    modules: list[tuple[str, Any]] = list(model.named_modules())
    return [
        made
        for prefix, block in modules
        if len(facts := dict(_facts(block, patterns))) > 1 and (made := _joinable(prefix, block, facts, places))
    ]


def _facts(block: Any, patterns: Mapping[int, str] | None) -> Iterator[tuple[str, Fact]]:
    children: dict[str, Any] = block._modules
    for name, child in children.items():
        sparse, pattern = isinstance(child, SparseLinear), None
        if patterns is not None:
            pattern = patterns.get(id(child)) if isinstance(child, nn.Linear) else None
        elif sparse:
            pattern = child.weight.pattern
        layout = getattr(child, "layout", None)
        # Sums of parts of K are not rows of one product.
        if pattern is not None and not (layout is not None and layout.sums):
            weight: Any = child.weight
            bias: Any = child.bias
            yield (
                name,
                Fact(
                    child.in_features,
                    weight.dtype,
                    weight.device,
                    pattern,
                    weight.values.requires_grad if sparse else weight.requires_grad,
                    None if bias is None else (bias.dtype, bias.device),
                    weight.dense_dtype if sparse else None,
                    layout,
                ),
            )


def _joinable(prefix: str, block: Any, facts: dict[str, Fact], places: Mapping[int, int]) -> Joinable | None:
    reasons: dict[str, str] = {}
    plan: Plan | None = None
    source: Found | None = None
    try:
        source = found(block, facts)
        if not source.inputs:
            return None
    except NotJoinedError as error:
        reasons[next(iter(facts))] = f"not joined: {error}"
    # What the source does not say, a trace of a gated layer may.
    inputs = source.inputs if source else tuple(itertools.combinations(facts, 2))
    pair = next((names for names in inputs if _may_be_gated(block, names)), None)
    if pair is not None:
        try:
            return Joinable(prefix, block, _pair(block, facts, places), {})
        except NotJoinedError as error:
            reasons[_first(pair, facts)] = f"not a gated product: {error}"
    if source is not None:
        try:
            plan = _rows(block, source, facts, places, reasons)
        except NotJoinedError as error:
            reasons[_first(source.inputs[0], facts)] = f"not joined: {error}"
    return Joinable(prefix, block, plan, reasons) if plan is not None or reasons else None


def _first(names: Collection[str], facts: Mapping[str, Fact]) -> str:
    """The first child of these names, whose row of a report has a reason of the block."""
    return next(name for name in facts if name in names)


def _may_be_gated(block: Any, names: Collection[str]) -> bool:
    """Whether the layers may be gate and up projection: two of one shape, and a third child with parameters."""
    shapes = {tuple(block._modules[name].weight.shape) for name in names}
    children = [each for each in block.children() if next(each.parameters(), None) is not None]
    return len(names) == 2 and len(shapes) == 1 and len(children) == 3


def _places(model: nn.Module) -> dict[int, int]:
    """In how many places each module is, by its identity."""
    counts: dict[int, int] = {}
    for module in model.modules():
        for child in module._modules.values():
            counts[id(child)] = counts.get(id(child), 0) + 1
    return counts


def _unfit(block: Any, name: str, places: Mapping[int, int]) -> str | None:
    """Why a layer cannot be a member."""
    child = block._modules[name]
    if places[id(child)] > 1:
        return f"{name} is in {places[id(child)]} places"
    hooked = is_hooked(child) or (isinstance(child, SparseLinear) and is_hooked(child.weight))
    return f"{name} has hooks" if hooked else None


def _pair(block: Any, facts: Mapping[str, Fact], places: Mapping[int, int]) -> Pair:
    """The gated layer that a block is proven to be. Raises NotJoinedError if the two weights cannot be one."""
    pair = proved(block)
    names = (pair.gate, pair.up)
    missing = next((name for name in names if name not in facts), None)
    if missing is not None:
        raise NotJoinedError(f"{missing} is a {type(block._modules[missing]).__name__}")
    unfit = next(filter(None, (_unfit(block, name, places) for name in names)), None)
    hooked = next((name for name, _ in pair.steps if is_hooked(block._modules[name])), None)
    if unfit or hooked:
        raise NotJoinedError(unfit or f"{hooked} has hooks")
    first, second = (facts[name] for name in names)
    rows = [block._modules[name].out_features for name in names]
    if first.differs(second) or rows[0] != rows[1]:
        raise NotJoinedError("gate and up differ in shape, type, device, pattern or training")
    turn = GATE_ROWS if first.layout is None else GATE_ROWS * first.layout.mesh.size()
    if rows[0] % turn:
        raise NotJoinedError(f"{rows[0]} rows are no multiple of {turn}")
    if not has_kernels("gated products", first.pattern, element_type(first.dtype).name):
        raise NotJoinedError(f"there is no gated product of {first.pattern} for {first.dtype}")
    return pair


def _rows(
    block: Any, source: Found, facts: Mapping[str, Fact], places: Mapping[int, int], reasons: dict[str, str]
) -> Rows | None:
    """The plan for layers of one input, if some can be one product. Adds to the reasons."""
    for names, reason in source.reasons:
        reasons.setdefault(_first(names, facts), f"not joined: {reason}")
    regions: list[Region] = []
    for region in source.regions:
        names, alone = list(region.members), dict[str, str]()
        alone |= {name: unfit for name in names if (unfit := _unfit(block, name, places))}
        while left := [
            name for name in names if name not in alone and not any(name in each.members for each in regions)
        ]:
            first = left[0]
            group = [name for name in left if not facts[first].differs(facts[name])]
            # The windows of a pattern of vectors begin with the rows of a layer.
            height = windows_of(1 << 20, facts[first].columns, Pattern.parse(facts[first].pattern)).height
            odd = [name for name in group[:-1] if block._modules[name].out_features % height]
            if odd or len(group) < 2:
                mine = (
                    f"its rows are no multiple of {height}"
                    if odd
                    else "it differs in type, device, pattern or training"
                )
                alone[odd[0] if odd else first] = mine
                continue
            regions.append(region.only(group))
        for name, reason in alone.items():
            reasons.setdefault(name, f"not joined: {reason}")
    if not regions:
        return None
    plan = Rows(tuple(regions), source.steps, source_of(type(block).forward).text)
    _class(type(block), plan)
    return plan


# --- joining --------------------------------------------------------------------------------------------------------------
def join_(blocks: Sequence[Joinable]) -> dict[str, str]:
    """Make one product of the layers of each plan whose layers are all sparse now.

    Returns what became of each layer of these blocks: the text for its row of a report.
    """
    said: dict[str, str] = {}
    for each in blocks:
        children, plan, texts = each.block._modules, each.plan, dict(each.reasons)
        if plan is not None and all(type(children[name]) is SparseLinear for names in each.groups for name in names):
            for group, names in enumerate(each.groups):
                weights = [children[name].weight for name in names]
                joint = JoinedWeight.joined(weights, by_turns=each.by_turns, layout=children[names[0]].layout)
                for part, name in enumerate(names):
                    children[name] = JoinedLinear.member(children[name], joint, part)
                    others = " and ".join(other for other in names if other != name)
                    texts[name] = "; ".join(filter(None, (f"one product with {others}", texts.get(name))))
                each.block.add_module(joint_name(group), joint)
            each.block.__class__ = _class(type(each.block), plan)
        said |= {each.name(name): text for name, text in texts.items()}
    return said


def separate_(model: nn.Module) -> None:
    """Undo `join_`: weights of their own, and the classes of the blocks."""
    modules: list[Any] = list(model.modules())
    for module in modules:
        # An adapter may hold a member.
        for name, child in module._modules.items():
            if type(child) is JoinedLinear:
                module._modules[name] = child.separate()
        if isinstance(module, JoinedBlock):
            for group in range(len(module.groups)):
                del module._modules[joint_name(group)]
            kind: Any = module
            kind.__class__ = module.original


def joints(model: nn.Module) -> Iterator[tuple[JoinedWeight, str | None, bool]]:
    """The joined weights of a model, the activation of gated ones, and whether any member has a bias."""
    for block in model.modules():
        if isinstance(block, JoinedBlock):
            for group, names in enumerate(block.groups):
                joint: Any = block._modules[joint_name(group)]
                members: list[Any] = [block._modules.get(name) for name in names]
                yield joint, block.activation, any(getattr(each, "bias", None) is not None for each in members)
