"""Follows parameters through a model that runs with fake tensors, to the products that contract them.

A tensor that depends on parameters alone has a *lineage*: for each parameter, which of the parameter's axes each of its
own axes comes from. Views, casts, joins, choices of experts, and steps that keep zeros keep a lineage. A tensor that
depends on the model's inputs is *data*. Data remember the products that gave them, until the next product.
"""

# Torch has no complete types.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

Axes: TypeAlias = "tuple[frozenset[int], ...]"
"""For each axis of a tensor, the parameter's axes that it holds."""

Lineage: TypeAlias = "dict[str, Axes]"
"""By the parameter's name."""

_NONE: Final = frozenset[int]()

_REAL: Final = 1 << 20
"""Most elements of a tensor that is computed for real."""

_SAME: Final = frozenset(
    ("alias", "detach", "detach_", "clone", "_to_copy", "lift_fresh", "contiguous", "flip", "roll", "slice", "constant_pad_nd", "requires_grad_",
     "neg", "abs", "sign", "round", "tanh", "relu", "sqrt", "clone_", "narrow", "to", "split", "split_with_sizes", "chunk", "masked_fill", "tril", "triu")
)  # fmt: skip
"""Operations whose results have the axes of their first operand, and zeros where it has zeros."""

_FACTORS: Final = frozenset(("mul", "div", "mul_", "div_"))
_PRODUCTS: Final[Mapping[str, tuple[tuple[int, int], tuple[int, int]]]] = {
    "mm": ((0, 1), (1, 0)),
    "_scaled_mm": ((0, 1), (1, 0)),
    "addmm": ((1, 1), (2, 0)),
    "addmm_": ((1, 1), (2, 0)),
    "bmm": ((0, 2), (1, 1)),
    "baddbmm": ((1, 2), (2, 1)),
    "mv": ((0, 1), (1, 0)),
    "addmv": ((1, 1), (2, 0)),
    "dot": ((0, 0), (1, 0)),
    "_grouped_mm": ((0, 1), (1, 1)),
    "grouped_mm_fallback": ((0, 1), (1, 1)),
    "linear": ((0, -1), (1, 1)),
}
"""For each product, positions of its two operands, and the axes that it contracts."""

_CONVOLUTIONS: Final = frozenset(("convolution", "_convolution", "conv1d", "conv2d", "conv3d"))
_RECURRENT: Final = ("lstm", "gru", "rnn_tanh", "rnn_relu", "mkldnn_rnn_layer")
_LOOKUPS: Final = frozenset(
    ("embedding", "index", "index_select", "gather", "_embedding_bag", "_embedding_bag_forward_only", "take")
)
_CHOICES: Final = frozenset(("topk", "sort", "argmax", "argsort"))
_MADE_ANEW: Final = frozenset(("empty_like", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_empty", "new_full", "sym_size", "sym_stride", "is_contiguous"))  # fmt: skip


@dataclass(slots=True)
class Uses:
    """What a model does with a parameter. contracted, convolved: its axes that products and convolutions contract.

    kinds: other uses: bias, norm, factor, lookup, other. head, router: where the product's result goes.
    """

    contracted: set[frozenset[int]] = field(default_factory=set[frozenset[int]])
    convolved: set[frozenset[int]] = field(default_factory=set[frozenset[int]])
    kinds: set[str] = field(default_factory=set[str])
    head: bool = False
    router: bool = False


class Watch(TorchDispatchMode):
    """Watches operations. uses: by the parameter's name."""

    def __init__(self) -> None:
        super().__init__()
        self.uses: defaultdict[str, Uses] = defaultdict(Uses)
        self._lineages: dict[int, Lineage] = {}
        self._data: set[int] = set()
        self._results: dict[int, frozenset[str]] = {}
        self._kept: list[Any] = []

    def name(self, tensor: torch.Tensor, name: str) -> None:
        """Begin to follow a parameter."""
        self._keep(tensor)
        self._lineages[id(tensor)] = {name: tuple(frozenset((axis,)) for axis in range(tensor.dim()))}

    def names_of(self, tensor: object) -> frozenset[str]:
        """The parameters that a tensor is made of."""
        return frozenset(self._lineages.get(id(tensor), ()))

    def feed(self, tensor: torch.Tensor) -> None:
        """Say that a tensor is an input of the model."""
        self._keep(tensor)
        self._data.add(id(tensor))

    def results(self, value: object) -> frozenset[str]:
        """The parameters whose products gave the tensors in a value."""
        return frozenset().union(*(self._results.get(id(leaf), frozenset()) for leaf in tree_leaves(value)))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        name = func.overloadpacket.__name__
        out = _run(func, args, kwargs, leaves, name)
        outs = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        for leaf in outs:
            self._keep(leaf)
        if name not in _MADE_ANEW:
            self._follow(name, args, leaves, outs)
        return out

    def _keep(self, tensor: object) -> None:
        # An id stays a tensor's own only while the tensor lives.
        self._kept.append(tensor)

    def _follow(self, name: str, args: Sequence[Any], leaves: Sequence[Any], outs: Sequence[Any]) -> None:
        is_data = any(id(leaf) in self._data for leaf in leaves)
        made = [leaf for leaf in leaves if id(leaf) in self._lineages]
        results: frozenset[str] = frozenset()
        if name in _PRODUCTS:
            results = self._product(name, args, outs)
        elif name in _CONVOLUTIONS:
            results = self._convolution(args)
        elif name in _RECURRENT:
            # Matrices of all layers and directions are stored [out, in]; vectors are biases.
            for leaf in made:
                if leaf.dim() == 2:
                    self._contract(leaf, 1, self._uses_contracted)
                else:
                    self._use(leaf, "bias")
        elif made:
            lineage = self._kept_lineage(name, args, made, is_data, outs)
            if lineage is not None:
                for out, each in zip(outs, lineage, strict=True):
                    self._lineages[id(out)] = each
                return
        if name not in _PRODUCTS and name not in _CONVOLUTIONS:
            results = self._passed_on(name, leaves)
        for out in outs:
            if is_data or (made and name in _LOOKUPS):
                self._data.add(id(out))
            if results:
                self._results[id(out)] = results

    def _passed_on(self, name: str, leaves: Sequence[Any]) -> frozenset[str]:
        """The products that an operation's result still comes from. Sums and products of two data end them."""
        data = [leaf for leaf in leaves if id(leaf) in self._data]
        if len(data) != 1:
            return frozenset()
        results = self._results.get(id(data[0]), frozenset())
        if name in _CHOICES:
            for each in results:
                self.uses[each].router = True
        return results

    def _product(self, name: str, args: Sequence[Any], outs: Sequence[Any]) -> frozenset[str]:
        (first, first_axis), (second, second_axis) = _PRODUCTS[name]
        a, b = args[first], args[second]
        if name in ("addmm", "baddbmm", "addmv", "addmm_"):
            self._use(args[0], "bias")
        if name == "linear" and len(args) > 2:
            self._use(args[2], "bias")
        # Of two operands without data the second one is the weight: `linear` multiplies by it from the right.
        if id(b) in self._lineages:
            self._use(a, "other")
            return self._contract(b, second_axis, self._uses_contracted)
        return self._contract(a, first_axis, self._uses_contracted)

    def _convolution(self, args: Sequence[Any]) -> frozenset[str]:
        weight, transposed = args[1], len(args) > 6 and args[6]
        if len(args) > 2:
            self._use(args[2], "bias")
        self._use(args[0], "other")
        return self._contract(weight, 0 if transposed is True else 1, lambda name: self.uses[name].convolved)

    def _uses_contracted(self, name: str) -> set[frozenset[int]]:
        return self.uses[name].contracted

    def _contract(self, tensor: Any, axis: int, uses: Callable[[str], set[frozenset[int]]]) -> frozenset[str]:
        lineage = self._lineages.get(id(tensor), {})
        for name, axes in lineage.items():
            if axes and axes[axis]:
                uses(name).add(axes[axis])
        return frozenset(lineage)

    def _use(self, tensor: Any, kind: str) -> None:
        for name in self._lineages.get(id(tensor), {}):
            self.uses[name].kinds.add(kind)

    def _kept_lineage(
        self, name: str, args: Sequence[Any], made: Sequence[Any], is_data: bool, outs: Sequence[Any]
    ) -> list[Lineage] | None:
        """The lineages of the results, or None if they are not parameters any more."""
        if name in _LOOKUPS:
            return self._looked_up(name, args, outs)
        if name in ("cat", "stack") and not is_data:
            return [self._joined(name, args, outs[0])]
        if name in _FACTORS and not is_data:
            lineage = self._factors(args, outs[0])
            return None if lineage is None else [lineage]
        first: Any = args[0] if args else None
        if id(first) in self._lineages and len(made) == 1:
            own = self._lineages[id(first)]
            moved = [_moved(name, args, own, first.shape, out.shape) for out in outs]
            if all(each is not None for each in moved):
                return [each for each in moved if each is not None]
        kind = (
            "norm"
            if "norm" in name
            else "bias"
            if name.startswith(("add", "sub"))
            else "factor"
            if name in _FACTORS
            else "other"
        )
        for leaf in made:
            self._use(leaf, kind)
        return None

    def _looked_up(self, name: str, args: Sequence[Any], outs: Sequence[Any]) -> list[Lineage] | None:
        """A choice of matrices keeps their lineage; a choice of vectors is a look-up."""
        table, out = args[0], outs[0]
        own = self._lineages.get(id(table))
        if own is None:
            self._use(args[1], "other")
            return None
        axes = _indexed(name, args, table.dim(), out.dim())
        left = [axis for axis in axes if axis is not None]
        if name in ("gather", "take") or len(left) < 2:
            self._use(table, "lookup")
            return None
        return [{name: tuple(_NONE if axis is None else each[axis] for axis in axes) for name, each in own.items()}]

    def _joined(self, name: str, args: Sequence[Any], out: Any) -> Lineage:
        """Of tensors of the same axes: each result's axis holds the operands' axes."""
        joined: Lineage = {}
        axis = int(args[1]) if len(args) > 1 else 0
        for tensor in args[0]:
            for source, axes in self._lineages.get(id(tensor), {}).items():
                if name == "stack":
                    place = axis % (len(axes) + 1)
                    axes = (*axes[:place], _NONE, *axes[place:])
                if len(axes) == out.dim():
                    before = joined.get(source) or (_NONE,) * out.dim()
                    joined[source] = tuple(a | b for a, b in zip(before, axes, strict=True))
        return joined

    def _factors(self, args: Sequence[Any], out: Any) -> Lineage | None:
        """Of a product of parameters: each factor of the result's shape, whose zeros the result keeps."""
        kept: Lineage = {}
        for place, tensor in enumerate(args[:2]):
            if isinstance(tensor, torch.Tensor) and tensor.shape == out.shape and place == 0:
                kept |= self._lineages.get(id(tensor), {})
            elif isinstance(tensor, torch.Tensor):
                if tensor.shape == out.shape and not kept:
                    kept |= self._lineages.get(id(tensor), {})
                else:
                    self._use(tensor, "factor")
        return kept or None


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: Sequence[Any], name: str) -> Any:
    """Run an operation: for real on small real tensors, so that masks, positions and sizes keep their values."""
    if any(isinstance(leaf, FakeTensor) for leaf in leaves):
        if name == "_local_scalar_dense":
            return _scalar(leaves[0].dtype)
        if name == "nonzero":
            return _everywhere(leaves[0])
        if name == "index":
            args = (args[0], [place for index in args[1] for place in _places(index)])
        if name == "split_with_sizes":
            args = (args[0], _fitting(args[1], args[0].shape[(args[2:] or (0,))[0]]), *args[2:])
        return func(*args, **kwargs)
    if leaves:
        with _disable_current_modes():
            return func(*args, **kwargs)
    out = func(*args, **kwargs)
    if isinstance(out, torch.Tensor) and out.numel() <= _REAL and name not in ("empty", "empty_strided"):
        with _disable_current_modes():
            return func(*args, **kwargs)
    return out


def _scalar(dtype: torch.dtype) -> bool | int | float:
    """A number in place of one that depends on weights."""
    return False if dtype is torch.bool else 1.0 if dtype.is_floating_point else 1


def _everywhere(mask: torch.Tensor) -> torch.Tensor:
    """Where a mask that depends on weights holds: everywhere."""
    with _disable_current_modes():
        return torch.ones(mask.shape, dtype=torch.bool).nonzero()


def _places(index: Any) -> tuple[Any, ...]:
    """An index without masks that depend on weights."""
    if isinstance(index, FakeTensor) and index.dtype is torch.bool:
        return _everywhere(index).unbind(1)
    return (index,)


def _fitting(sizes: Sequence[int], total: int) -> list[int]:
    """Sizes of parts with the given sum: sizes that depend on weights are not known."""
    if sum(sizes) == total:
        return list(sizes)
    return [min(1, max(0, total - place)) for place in range(len(sizes) - 1)] + [max(0, total - len(sizes) + 1)]


def _moved(name: str, args: Sequence[Any], own: Lineage, old: Sequence[int], new: Sequence[int]) -> Lineage | None:
    """The lineage behind a view or a step that keeps zeros; None for other operations."""
    order = _order(name, args, len(old), old, new)
    if order is None:
        return None
    return {
        source: tuple(frozenset().union(*(axes[axis] for axis in axes_of)) if axes_of else _NONE for axes_of in order)
        for source, axes in own.items()
    }


def _order(
    name: str, args: Sequence[Any], count: int, old: Sequence[int], new: Sequence[int]
) -> list[tuple[int, ...]] | None:
    """For each axis of the result, the operand's axes that it holds."""
    axes = [(axis,) for axis in range(count)]
    if name in _SAME or (name in _FACTORS and tuple(old) == tuple(new)):
        return axes
    if name == "t":
        return axes[::-1]
    if name in ("transpose", "transpose_"):
        a, b = args[1] % count, args[2] % count
        axes[a], axes[b] = axes[b], axes[a]
        return axes
    if name == "permute":
        return [axes[axis % count] for axis in args[1]]
    if name in ("select", "unbind"):
        dim = (args[1] if len(args) > 1 else 0) % count
        return axes[:dim] + axes[dim + 1 :]
    if name == "unsqueeze":
        dim = args[1] % (count + 1)
        return [*axes[:dim], (), *axes[dim:]]
    if name in ("expand", "repeat"):
        return [()] * (len(new) - count) + axes
    if name in (
        "view",
        "_unsafe_view",
        "reshape",
        "_reshape_alias",
        "squeeze",
        "flatten",
        "unflatten",
        "_reshape_copy",
    ):
        return _regrouped(old, new)
    return None


def _regrouped(old: Sequence[int], new: Sequence[int]) -> list[tuple[int, ...]]:
    """The old axes in each new axis of a reshape: groups of axes with equal products of sizes hold each other."""
    order: list[tuple[int, ...]] = []
    i = j = 0
    while j < len(new):
        start, first = i, j
        left, right = (old[i] if i < len(old) else 1), new[j]
        i, j = i + 1, j + 1
        while left != right and (i < len(old) or j < len(new)):
            if (left < right and i < len(old)) or j >= len(new):
                left, i = left * old[i], i + 1
            else:
                right, j = right * new[j], j + 1
        held = tuple(axis for axis in range(start, min(i, len(old))) if old[axis] != 1)
        same = j - first == 1 and i - start == 1
        order += [held if same or new[axis] != 1 else () for axis in range(first, j)]
    return order


def _indexed(name: str, args: Sequence[Any], count: int, result: int) -> list[int | None]:
    """The table's axis behind each axis of the result; None for an axis of the indices."""
    if name == "embedding":
        return [*(None for _ in range(result - 1)), 1]
    if name == "index_select":
        return [None if axis == args[1] % count else axis for axis in range(count)]
    if name != "index":
        return []
    given = [index is not None for index in args[1]] + [False] * (count - len(args[1]))
    taken = [axis for axis, is_given in enumerate(given) if is_given]
    kept = [axis for axis, is_given in enumerate(given) if not is_given]
    place = taken[0] if taken and taken == list(range(taken[0], taken[-1] + 1)) else 0
    before: list[int | None] = [axis for axis in kept if axis < place]
    after: list[int | None] = [axis for axis in kept if axis >= place]
    return [*before, *(None for _ in range(result - len(kept))), *after]
