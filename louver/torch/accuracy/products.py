"""The products of a module that runs: which weight is multiplied by what, and which product depends on which.

PyTorch shows each function that a module calls (`TorchFunctionMode`). A product is recognised by the memory of its
weight, so that layers, matrices in a stack of experts, and views of both are found alike.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

_PRODUCTS: Final = {
    "linear": (0, "input", 1, "weight", -1),
    "addmm": (1, "mat1", 2, "mat2", -2),
    "mm": (0, "input", 1, "mat2", -2),
    "matmul": (0, "input", 1, "other", -2),
    "__matmul__": (0, "input", 1, "other", -2),
    "bmm": (0, "input", 1, "mat2", -2),
    "baddbmm": (1, "batch1", 2, "batch2", -2),
    "grouped_mm": (0, "mat_a", 1, "mat_b", -2),
    "_grouped_mm": (0, "input", 1, "mat2", -2),
}
"""Functions that multiply: position and name of x and of the weight, and the axis of the weight that is summed."""

_NUMBER: Final = re.compile(r"(?<=\.)\d+\.|^\d+\.")
"""The place of a member of a list in a parameter's name."""

_ADDS: Final = ("add", "__add__", "__radd__", "add_", "__iadd__")


@dataclass(frozen=True, slots=True)
class Product:
    """One product with a watched weight. x: [..., K]. expert: of a stack, else None. turned: the weight is [K, out]."""

    name: str
    expert: int | None
    x: Tensor
    turned: bool


class Weights:
    """Finds a watched weight by the memory of a tensor. weights: [out, in], [in, out], or stacks of such, by name."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        spans = sorted((w.data_ptr(), w.data_ptr() + w.numel() * w.itemsize, name) for name, w in weights.items())
        self._starts = [start for start, _, _ in spans]
        self._spans, self._weights = spans, weights

    def find(self, w: Any) -> tuple[str, Tensor] | None:
        """The name and the whole of the weight that a tensor is, or is a part of."""
        if not isinstance(w, Tensor) or w.is_meta:
            return None
        at = bisect_right(self._starts, w.data_ptr()) - 1
        if at < 0 or w.data_ptr() >= self._spans[at][1]:
            return None
        name = self._spans[at][2]
        return name, self._weights[name]

    def products(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Product]:
        """The products with watched weights that a call makes: none, one, or one for each expert that has tokens."""
        known = _PRODUCTS.get(getattr(function, "__name__", ""))
        if known is None:
            return []
        x, w = _argument(args, kwargs, *known[:2]), _argument(args, kwargs, *known[2:4])
        found = self.find(w)
        if found is None or not isinstance(x, Tensor):
            return []
        name, whole = found
        turned = w.stride(known[4]) != 1
        if x.shape[-1] != whole.shape[-2 if turned else -1]:
            return []
        if whole.dim() == 2:
            return [Product(name, None, x, turned)]
        if w.dim() == 2:
            expert = (w.data_ptr() - whole.data_ptr()) // (whole.stride(0) * whole.itemsize)
            return [Product(name, expert, x, turned)]
        offsets = _argument(args, kwargs, 2, "offs")
        if isinstance(offsets, Tensor):
            ends = [0, *offsets.tolist()]
            parts = [x[start:end] for start, end in zip(ends, ends[1:], strict=False)]
        else:
            parts = list(x)
        return [Product(name, expert, part, turned) for expert, part in enumerate(parts) if part.numel()]


class Stop(BaseException):
    """Ends a forward pass early: all that was wanted has been seen. value: what was wanted, if anything."""

    def __init__(self, value: Any = None) -> None:
        super().__init__("a forward pass was ended early")
        self.value = value


class Collect(TorchFunctionMode):
    """Shows the wanted products of a forward pass to `see`, and ends the pass behind the last one.

    wanted: how often each weight is multiplied in a pass; None if that depends on the data: then the pass goes on.
    """

    def __init__(self, weights: Weights, wanted: Mapping[str, int | None], see: Callable[[Product], None]) -> None:
        super().__init__()
        self._weights, self._see, self._left = weights, see, dict(wanted)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = [p for p in self._weights.products(func, args, kwargs) if p.name in self._left]
        for product in found:
            self._see(product)
        if found:
            left = self._left[found[0].name]
            self._left[found[0].name] = left if left is None else left - 1
            if all(count == 0 for count in self._left.values()):
                raise Stop
        return func(*args, **kwargs)


class Routes(TorchFunctionMode):
    """Keeps which experts a router chooses in a pass; with those of another pass, makes the router choose them again.

    chosen: the indices that `topk` and `argmax` gave in the other pass, in order; None to keep those of this one.
    """

    def __init__(self, chosen: Sequence[Tensor] | None = None) -> None:
        super().__init__()
        self.chosen: list[Tensor] = []
        self._again = None if chosen is None else iter(chosen)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name not in ("topk", "argmax"):
            return result
        indices = result[1] if name == "topk" else result
        if self._again is None:
            self.chosen.append(indices)
            return result
        other = next(self._again, indices)
        if other.shape != indices.shape or name == "argmax":
            return other if other.shape == indices.shape else result
        dim = _argument(args, kwargs, 2, "dim")
        values = _argument(args, kwargs, 0, "input").gather(-1 if dim is None else dim, other)
        return type(result)((values, other))


class Cut(TorchFunctionMode):
    """Ends a forward pass with the result of its addition number `at`, counted among those of two tensors of `shape`."""

    def __init__(self, shape: Sequence[int], at: int) -> None:
        super().__init__()
        self._shape, self._at, self._count = tuple(shape), at, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if _is_add(func, args, self._shape):
            if self._count == self._at:
                raise Stop(result)
            self._count += 1
        return result


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a block that ends in a residual addition. level: of its last products.

    add: the number of this addition, see `Cut`; None for the part that ends with the block.
    """

    add: int | None
    level: int


class Trace(TorchFunctionMode):
    """Finds on what each product depends, in one or more passes.

    levels: by weight, 1 + the level of the products on which its input depends: products of one level can be pruned
        together. sources: by weight, a number that is equal for weights of one input. counts: products of each weight
        in a pass, None if it depends on the data. turned: whether the weight is [K, out]. selected: weights whose
        input is not one row for each token.
    """

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self._weights = weights
        self.levels: dict[str, int] = {}
        self.sources: dict[str, int] = {}
        self.counts: dict[str, int | None] = {}
        self.turned: dict[str, bool] = {}
        self.selected: set[str] = set()
        self.parts: list[Part] = []
        self._numbers = itertools.count()

    def begin(self, shape: Sequence[int], given: Sequence[Any]) -> None:
        """Begin a pass. shape: of the stream, [..., features]. given: inputs, parameters and buffers of the module."""
        self._shape, self._rows = tuple(shape), _rows(shape)
        self._depths: Any = WeakIdKeyDictionary()
        self._inputs: Any = WeakIdKeyDictionary()
        self._deepest = self._adds = 0
        self._counted: dict[str, int] = {}
        for tensor in _tensors(given):
            self._depths[tensor] = 0

    def end(self) -> None:
        """Keep what the pass showed."""
        for name, count in self._counted.items():
            if self.counts.setdefault(name, count) != count:
                self.counts[name] = None

    def adopt(self, names: Iterable[str]) -> None:
        """Take weights of members of a list that no token reached as those of the other members."""
        seen = {_NUMBER.sub(".", name): name for name in self.levels}
        for name in set(names) - self.levels.keys():
            like = seen.get(_NUMBER.sub(".", name))
            if like is not None:
                self.levels[name], self.turned[name] = self.levels[like], self.turned[like]
                self.sources[name], self.counts[name] = next(self._numbers), 0
                self.selected.add(name)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = self._weights.products(func, args, kwargs)
        operands = list(_tensors((args, kwargs)))
        depth = max((self._depth(tensor) for tensor in operands), default=0)
        if found:
            x = _argument(args, kwargs, *_PRODUCTS[func.__name__][:2])
            depth = self._depth(x) + 1
            self._deepest = max(self._deepest, depth)
            self._note(found, x, depth)
        depths = [self._depth(tensor) for tensor in operands]
        is_add = _is_add(func, args, self._shape)
        result = func(*args, **kwargs)
        if is_add:
            if depths[0] != depths[1] and depth > max((part.level for part in self.parts), default=0):
                self.parts.append(Part(self._adds, depth))
            self._adds += 1
        for tensor in _tensors(result):
            self._depths[tensor] = depth
        if _is_in_place(func):
            for tensor in _tensors((args[0], getattr(args[0], "_base", None))):
                self._depths[tensor] = max(depth, self._depth(tensor))
        return result

    def _note(self, found: list[Product], x: Tensor, depth: int) -> None:
        name = found[0].name
        self.levels[name] = max(depth, self.levels.get(name, 0))
        source = self._inputs.setdefault(x, next(self._numbers))
        # A weight of several inputs shares statistics with no other.
        self.sources[name] = source if self.sources.get(name, source) == source else next(self._numbers)
        self.turned[name] = found[0].turned
        self._counted[name] = self._counted.get(name, 0) + 1
        if found[0].expert is not None and len(found) == 1:
            self.counts[name] = None
        if found[0].expert is not None or _rows(x.shape) != self._rows:
            self.selected.add(name)

    def _depth(self, tensor: Tensor) -> int:
        """Of a tensor of unknown origin: as if it depended on all that ran before."""
        return self._depths.get(tensor, self._deepest)


def _argument(args: Sequence[Any], kwargs: Mapping[str, Any], at: int, name: str) -> Any:
    return args[at] if at < len(args) else kwargs.get(name)


def _tensors(tree: Any) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


def _rows(shape: Sequence[int]) -> int:
    rows = 1
    for size in shape[:-1]:
        rows *= size
    return rows


def _is_add(function: Any, args: Sequence[Any], shape: tuple[int, ...]) -> bool:
    return (
        getattr(function, "__name__", "") in _ADDS
        and len(args) == 2
        and all(isinstance(each, Tensor) and each.shape == shape for each in args)
    )


def _is_in_place(function: Any) -> bool:
    name = getattr(function, "__name__", "")
    return name == "__setitem__" or name.startswith("__i") or (name.endswith("_") and not name.endswith("__"))
