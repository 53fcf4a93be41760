"""Sparse weights of layers with one input, as the rows of one weight, and the layers as members of it."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportIncompatibleVariableOverride=false, reportPrivateUsage=false, reportIncompatibleMethodOverride=false

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from louver.formats.gated import GATE_ROWS
from louver.formats.pattern import Pattern
from louver.isa.fragments import ROWS
from louver.torch.columns import is_packed, windows_of
from louver.torch.linear import SparseLinear, SparseWeight, arrays_of
from louver.torch.operators import OPS, by_turns, in_order, multiply
from louver.torch.placed import beside, is_placed, local, part_of, placed_as, whole_of


class JoinedWeight(SparseWeight):
    """The weights of some layers, [rows of all, K]. Its `MemberRows` read and write a state_dict.

    sizes: rows of each layer, which lie one after the other; by_turns: 8 rows of each of two layers by turns, as gated
    products read them.
    scale: of quantized weights, the elements of each layer one after the other.

    On several ranks, each has its rows of every layer: `sizes` are those of this rank, `whole_sizes` those of the layers,
    and `layout` is the `louver.torch.parallel.layout.Layout` of all layers.
    """

    sizes: tuple[int, ...]
    whole_sizes: tuple[int, ...]
    by_turns: bool
    layout: Any = None
    waiting: dict[int, Any]
    """Layouts of the layers that are to be divided, until all layers have one."""

    @classmethod
    def joined(cls, weights: Sequence[SparseWeight], *, by_turns: bool = False, layout: Any = None) -> JoinedWeight:
        """Copies the weights. layout: of weights on several ranks."""
        first = weights[0]
        sizes = tuple(each.shape[0] for each in weights)
        trains = first.values.requires_grad
        made = cls(sum(sizes), first.shape[1], first.pattern, device="meta", dtype=first.dtype, requires_grad=trains)
        made.by_turns, made.waiting = by_turns, {}
        made.take_(weights, layout)
        return made

    def take_(self, weights: Sequence[SparseWeight], layout: Any) -> None:
        """Become the weight of these layers."""
        first, shapes = weights[0], [self.values.shape, self.places.shape]
        self.layout, self.whole_sizes = layout, tuple(each.shape[0] for each in weights)
        self.sizes = tuple(part_of(each.values).shape[0] for each in weights)
        with torch.inference_mode(False), torch.no_grad():
            values, indices = (
                beside(
                    first.values,
                    torch.stack([x.reshape(-1, GATE_ROWS, x.shape[1]) for x in arrays], 1).flatten(0, 2)
                    if self.by_turns
                    else torch.cat(arrays),
                    shape,
                )
                for arrays, shape in zip(
                    (
                        [part_of(each.values) for each in weights],
                        [part_of(each.natural()) for each in weights],
                    ),
                    shapes,
                    strict=True,
                )
            )
            self.values = nn.Parameter(values, self.values.requires_grad)
            self.indices = nn.Parameter(indices, False)
            scales = [part_of(each.scale) for each in weights if each.scale is not None]
            if scales:
                scale = beside(first.values, torch.cat(scales), shapes[0][:1])
                self.quantized_(self.values, scale, first.dense_dtype)
        if any(is_packed(each.places) for each in weights):
            self.pack_()
        self.negative_zeros_dropped = sum(each.negative_zeros_dropped for each in weights)

    def __call__(self) -> dict[str, Tensor | None]:
        # Programs that offload weights find them by the names of a state_dict, which has those of the members.
        if self.values.is_meta:
            raise RuntimeError(
                "weights of one product are in one storage, which is not offloaded, got it on the meta device: save the "
                "model, and load it with a device_map, which keeps offloaded layers apart"
            )
        return super().__call__()

    def rows(self, x: Tensor, part: int) -> Tensor:
        """What a layer has of `values` or `indices`: a view [rows / 8, 8, …] of turns, else [rows or windows, …]; of packed
        indices, blocks of rows.
        """
        if x.dim() > 2:
            return x[sum(self.sizes[:part]) // ROWS : sum(self.sizes[: part + 1]) // ROWS]
        if self.by_turns:
            return x.view(-1, len(self.sizes), GATE_ROWS, x.shape[1])[:, part]
        count = sum(self.sizes)
        height = 1 if x.shape[0] == count else windows_of(count, self.shape[1], Pattern.parse(self.pattern)).height
        begin, end = (-(-sum(self.sizes[:before]) // height) for before in (part, part + 1))
        return x[begin:end]

    def _can_pack(self) -> bool:
        return super()._can_pack() and not any(size % ROWS for size in self.sizes)

    def scale_of(self, part: int) -> Tensor | None:
        return None if self.scale is None else self.own(self.scale).split(self.sizes)[part]

    def own(self, x: Tensor) -> Tensor:
        """The part of this rank of a tensor that a layout divides; what FSDP divides is whole."""
        return x if self.layout is None else part_of(x)

    def whole(self, x: Tensor, part: int) -> Tensor:
        """Rows of a layer that are this rank's, as a part of those of the layer."""
        if self.layout is None:
            return x
        height = -(-self.sizes[part] // x.shape[0])
        return beside(self.values, x, (self.whole_sizes[part] // height, *x.shape[1:]))

    def products(self, x: Tensor, biases: Sequence[Tensor | None]) -> Sequence[Tensor]:
        """x times the weight of each layer, with its bias, [..., rows] each: one product."""
        if self.layout is None:
            self.check_whole()
            return self.own_products(x, biases)
        parts = self.own_products(self.layout.enter(x), [local(each) for each in biases])
        return [self.layout.leave(y, rows) for y, rows in zip(parts, self.whole_sizes, strict=True)]

    def check_whole(self) -> None:
        """Raises RuntimeError if some of the layers have a style of parallel products, and others none."""
        if self.waiting:
            raise RuntimeError(
                f"layers of one product are divided together, got a style for {len(self.waiting)} of {len(self.sizes)}: give "
                "all of them ColwiseParallel in the plan, or give the styles before compress_"
            )

    def own_products(self, x: Tensor, biases: Sequence[Tensor | None]) -> Sequence[Tensor]:
        """The same by this rank's rows."""
        arrays = arrays_of(self)
        values, indices, scale = (local(arrays[name]) for name in ("values", "indices", "scale"))
        if self.by_turns:
            turned = None if scale is None else by_turns(scale)
            y = multiply(x, values, indices, None, self.pattern, scale=turned)
            turns = y.unflatten(-1, (-1, len(self.sizes), GATE_ROWS))
            parts = [turns[..., part, :].flatten(-2) for part in range(len(self.sizes))]
            return [y if b is None else y + b.to(y.dtype) for y, b in zip(parts, biases, strict=True)]
        y = multiply(x, values, indices, self.bias_of(biases), self.pattern, scale=scale)
        # Not views for autograd: each may be written in place, as the output of a layer may.
        return torch.unsafe_split_with_sizes(y, self.sizes, -1)

    def bias_of(self, biases: Sequence[Tensor | None]) -> Tensor | None:
        """The biases of all layers as one; zeros for those without."""
        some = [each for each in biases if each is not None]
        if not some:
            return None
        return torch.cat([some[0].new_zeros(n) if b is None else b for b, n in zip(biases, self.sizes, strict=True)])

    def gated(self, x: Tensor, biases: Sequence[Tensor | None], activation: str | None) -> Tensor:
        """activation(gate) · up of the two layers by turns."""
        arrays, layout = arrays_of(self), self.layout
        values, indices, scale = (local(arrays[name]) for name in ("values", "indices", "scale"))
        if layout is None:
            self.check_whole()
        else:
            x, biases = layout.enter(x), [local(each) for each in biases]
        bias = self.bias_of(biases)
        y = multiply(x, values, indices, bias, self.pattern, scale=scale, activation=activation, gated=True)
        return y if layout is None else layout.leave(y, self.whole_sizes[0])

    def tensors(self) -> list[tuple[Tensor, Tensor, int]]:
        """The whole weight, and the rows of each layer, which it multiplies by when it is called alone."""
        parts = range(0 if self.by_turns else len(self.sizes))
        whole = super().tensors()
        ((values, indices, _),) = whole
        return [*whole, *((self.rows(values, part), self.rows(indices, part), 0) for part in parts)]

    def rounded(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        values, scale = super().rounded(dtype)
        return values, beside(values, in_order(local(scale)), scale.shape) if self.by_turns else scale

    def row_scales(self, scale: Tensor) -> Tensor:
        return by_turns(scale) if self.by_turns else scale

    def _save_to_state_dict(self, *_: Any, **__: Any) -> None:
        """The members save their rows."""

    def _load_from_state_dict(self, *_: Any, **__: Any) -> None:
        """The members load their rows."""


class MemberRows(SparseWeight):
    """The weight of one layer in a joined one. values and indices are views of the joined weight's, so writes to them
    change it. In a state_dict they are [rows, …], as in every other weight.
    """

    def __init__(self, joint: JoinedWeight, part: int) -> None:
        nn.Module.__init__(self)
        # A tuple, for the joined weight is no child of its members.
        self._joint, self.part = (joint,), part
        self.pattern, self.shape = joint.pattern, torch.Size((joint.whole_sizes[part], joint.shape[1]))
        self.negative_zeros_dropped = 0

    @property
    def joint(self) -> JoinedWeight:
        return self._joint[0]

    @property
    def owner(self) -> JoinedWeight:
        return self.joint

    @property
    def values(self) -> Tensor:
        return self.joint.rows(self.joint.own(self.joint.values), self.part)

    @property
    def indices(self) -> Tensor:
        return self.joint.rows(self.joint.own(self.joint.indices), self.part)

    @property
    def places(self) -> Tensor:
        # Blocks of packed indices have rows of both layers by turns.
        return self.natural() if self.joint.by_turns else self.joint.rows(self.joint.own(self.joint.places), self.part)

    def natural(self) -> Tensor:
        return self.joint.rows(self.joint.own(self.joint.natural()), self.part)

    @property
    def is_transposable(self) -> bool:
        """That of the joined weight, for its product has one gradient of x."""
        return self.joint.is_transposable

    def pack_(self) -> MemberRows:
        self.joint.pack_()
        return self

    def unpack_(self) -> MemberRows:
        self.joint.unpack_()
        return self

    @property
    def scale(self) -> Tensor | None:
        return self.joint.scale_of(self.part)

    @property
    def dense_dtype(self) -> torch.dtype | None:
        return self.joint.dense_dtype

    def _arrays(self) -> Iterator[tuple[str, Tensor]]:
        """To read them: indices may be a copy."""
        yield from (("values", self.values), ("indices", self.natural()))
        if self.scale is not None:
            yield "scale", self.scale

    def separate(self) -> SparseWeight:
        """A weight of its own of these rows."""
        trains = self.joint.values.requires_grad
        made = SparseWeight(
            self.shape[0], self.shape[1], self.pattern, device="meta", dtype=self.dtype, requires_grad=trains
        )
        with torch.inference_mode(False), torch.no_grad():
            values, indices = (self.joint.whole(_flat(x).clone(), self.part) for x in (self.values, self.natural()))
            made.values = nn.Parameter(values, made.values.requires_grad)
            made.indices = nn.Parameter(indices, False)
            if self.scale is not None:
                scale = self.joint.whole(self.scale.clone(), self.part)
                made.quantized_(made.values, scale, self.dense_dtype)
        if is_packed(self.joint.places):
            made.pack_()
        return made

    def dense(self) -> Tensor:
        return (
            self.separate().dense()
            if self.scale is not None or is_placed(self.joint.values)
            else OPS.dense(_flat(self.values), _flat(self.natural()), self.shape[1], self.pattern)
        )

    def refresh_(self) -> MemberRows:
        self.joint.refresh_()
        return self

    def copy_(self, other: SparseWeight) -> MemberRows:
        self.check_like(other)
        codes, was_packed = other.natural(), is_packed(self.joint.places)
        self.unpack_()
        for name, _ in list(self._arrays()):
            self._write(name, _flat(codes if name == "indices" else getattr(other, name)))
        self.refresh_()
        return self.pack_() if was_packed else self

    def rewrite_(self, other: SparseWeight) -> MemberRows:
        self.check_like(other)
        new = copy.deepcopy(self.joint)
        MemberRows(new, self.part).copy_(other)
        self.joint.rewrite_(new)
        return self

    def _write(self, name: str, given: Any) -> None:
        """Write an array of the layer. given: whole, or divided as the layer is."""
        joint, stored = self.joint, getattr(self.joint, name)
        with torch.no_grad():
            if joint.layout is None and is_placed(stored):
                # FSDP divides the rows of all layers, not those of each.
                whole = whole_of(stored)
                rows = whole.split(joint.sizes)[self.part] if name == "scale" else joint.rows(whole, self.part)
                rows.copy_(whole_of(given).reshape(rows.shape))
                part_of(stored).copy_(part_of(placed_as(stored, whole)))
                return
            mine = dict(self._arrays())[name]
            mine.copy_(self._own(given, len(_flat(mine))).reshape(mine.shape))

    def _own(self, given: Any, rows: int) -> Any:
        """What this rank has of an array of the layer, which may be whole. rows: how many these are."""
        layout = self.joint.layout
        if layout is None:
            return given
        if is_placed(given) or len(given) == rows:
            return part_of(given)
        size = -(-len(given) // layout.mesh.size())
        return given[size * layout.mesh.get_local_rank() :][:size]

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, mine in self._arrays():
            rows = self.joint.whole(_flat(mine), self.part)
            destination[prefix + name] = rows if keep_vars else rows.detach()

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        known: set[str] = set()
        was_packed = is_packed(self.joint.places)
        self.unpack_()
        for name, mine in self._arrays():
            key = prefix + name
            known.add(key)
            given, shape = state_dict.get(key), list(_flat(mine).shape)
            if given is None:
                missing_keys.extend([key] if strict else [])
            elif list(self._own(given, shape[0]).shape) != shape:
                error_msgs.append(f"{key} has shape {shape}, got {list(given.shape)} in the state_dict")
            elif mine.is_meta and not given.is_meta:
                error_msgs.append(
                    f"{key} is a part of a joined weight on the meta device, which takes no values: call to_empty first"
                )
            else:
                self._write(name, given)
        if strict:
            unexpected_keys.extend(key for key in state_dict if key.startswith(prefix) and key not in known)
        self.refresh_()
        if was_packed:
            try:
                self.pack_()
            except ValueError as error:
                error_msgs.append(f"{prefix}indices: {error}")


def _flat(x: Tensor) -> Tensor:
    """Rows of turns as rows."""
    return x.flatten(0, 1) if x.dim() > 2 else x


class JoinedLinear(SparseLinear):
    """A layer whose weight is a part of a joined one. Called by itself, it gives its own outputs alone."""

    @classmethod
    def member(cls, layer: SparseLinear, joint: JoinedWeight, part: int) -> JoinedLinear:
        """The layer as a member. They share the bias."""
        made = cls.__new__(cls)
        vars(made).update(vars(layer))
        made._modules, made._parameters = dict(layer._modules), dict(layer._parameters)
        made._modules["weight"] = MemberRows(joint, part)
        return made

    def separate(self) -> SparseLinear:
        """The layer with a weight of its own."""
        made = SparseLinear.__new__(SparseLinear)
        vars(made).update(vars(self))
        made._modules, made._parameters = dict(self._modules), dict(self._parameters)
        rows: Any = self.weight
        made._modules["weight"] = rows.separate()
        return made

    def forward(self, x: Tensor) -> Tensor:
        rows: Any = self._modules["weight"]
        joint, bias = rows.joint, self._parameters["bias"]
        if joint.by_turns:
            # Kernels read no turns apart, so both layers are multiplied.
            biases: list[Any] = [None, None]
            biases[rows.part] = bias
            return joint.products(x, biases)[rows.part]
        arrays, layout = arrays_of(joint), joint.layout
        values, indices = (joint.rows(local(arrays[name]), rows.part) for name in ("values", "indices"))
        if layout is None:
            joint.check_whole()
            return multiply(x, values, indices, bias, joint.pattern, scale=rows.scale)
        y = multiply(layout.enter(x), values, indices, local(bias), joint.pattern, scale=rows.scale)
        return layout.leave(y, self.out_features)
