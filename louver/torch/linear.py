"""`SparseLinear`: the module of a linear layer with a sparse weight."""

# pyright: reportUnknownMemberType=false
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from louver.formats.codes import index_bytes
from louver.formats.pattern import Pattern
from louver.torch.columns import are_words_of, can_pack, is_packed, natural, packed, windows_of
from louver.torch.core import compressed, cores
from louver.torch.operators import OPS, multiply
from louver.torch.placed import beside, is_placed, local, part_of, parts_of_columns, replicated, take_placing
from louver.torch.tokens import quantized_rows
from louver.torch.turned import compressed_both_ways, is_transposable


class SparseWeight(nn.Module):
    """A sparse weight [rows, columns] as two plain parameters, named as in Louver's files.

    values: [rows, kept]. indices: uint8 (`louver.formats.codes`), without gradient. pattern: as text.
    places: the parameter `indices` as it is, natural or packed by `pack_`. A state_dict always has natural ones.
    negative_zeros_dropped: -0.0 of the dense matrix that `of` made +0.0.
    scale: f32 [rows] of a quantized weight, whose elements are value · scale, else None. dense_dtype: of such a weight
    before.

    Parameters may be DTensors, see `louver.torch.parallel`: `shape` is that of the whole weight, and each rank multiplies
    by its part of it.

    Device forms of the weight follow `load_state_dict`, `to`, `copy_` and every write that PyTorch counts. Writes
    through `.data`, DLPack or a replayed graph are not counted: call `refresh_` after them.
    """

    values: nn.Parameter
    scale: nn.Parameter | None
    dense_dtype: torch.dtype | None

    def __init__(
        self,
        rows: int,
        columns: int,
        pattern: str | Pattern = "2:4",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        requires_grad: bool = True,
    ) -> None:
        super().__init__()
        found = Pattern.parse(pattern)
        self.pattern, self.shape, self.negative_zeros_dropped = str(found), torch.Size((rows, columns)), 0
        windows = windows_of(rows, columns, found)
        codes = index_bytes(found, windows.groups, windows.height)
        values = torch.empty(rows, windows.groups * found.n, device=device, dtype=dtype)
        self.values = nn.Parameter(values, requires_grad and values.is_floating_point() and values.itemsize > 1)
        self.indices = nn.Parameter(torch.empty(windows.count, codes, device=device, dtype=torch.uint8), False)
        self.register_parameter("scale", None)
        self.dense_dtype = None

    @classmethod
    def of(cls, w: Tensor, pattern: str | Pattern, *, prune: bool = False) -> Self:
        """The weight of a dense one. It requires grad if `w` does.

        prune: prune the matrix first, by magnitude.

        Raises ValueError for a group of too many non-zeros.
        """
        # A stack has an axis more.
        kind: Any = cls
        made: Self = kind(*w.shape, pattern, device="meta", dtype=w.dtype, requires_grad=w.requires_grad)
        # A tensor that is made in inference mode counts no writes.
        with torch.inference_mode(False), torch.no_grad():
            own = part_of(w)
            values, indices, made.negative_zeros_dropped = (
                None if prune else compressed_both_ways(own, made.pattern)
            ) or compressed(own, made.pattern, prune=prune)
            if is_placed(w):
                values, indices = (
                    beside(w, x, like.shape) for x, like in ((values, made.values), (indices, made.indices))
                )
            made.values = nn.Parameter(values.reshape(made.values.shape), made.values.requires_grad)
            made.indices = nn.Parameter(indices.reshape(made.indices.shape), False)
        return made

    @classmethod
    def like(cls, w: Tensor, pattern: str | Pattern, *, dtype: torch.dtype | None = None, scaled: bool = False) -> Self:
        """The weight of a dense one, with parameters on the meta device, to be loaded.

        dtype: of the values, by default that of `w`. scaled: whether the weight is quantized, with scales.
        """
        # A stack has an axis more.
        kind: Any = cls
        made: Self = kind(*w.shape, pattern, device="meta", dtype=dtype or w.dtype)
        if scaled:
            scale = torch.empty(made.values.shape[:-1], dtype=torch.float32, device="meta")
            made.quantized_(made.values, scale, w.dtype)
        return made

    @property
    def indices(self) -> nn.Parameter:
        """Natural indices. Asking for them ends packing."""
        found = self._parameters.get("indices")
        if found is None:
            raise AttributeError("a weight without indices of its own")
        if is_packed(found):
            self.unpack_()
        return cast("nn.Parameter", self._parameters["indices"])

    @indices.setter
    def indices(self, new: nn.Parameter) -> None:
        self.register_parameter("indices", new)

    @property
    def places(self) -> Tensor:
        return cast("Tensor", self._parameters["indices"])

    def natural(self) -> Tensor:
        """Natural indices: a new tensor if they are packed, else the parameter."""
        places = self.places
        if is_packed(places) and hasattr(places, "placements"):
            raise RuntimeError(
                f"packed indices are not divided among processes, got {type(places).__name__}: call unpack_() on the weight "
                "before fully_shard"
            )
        return natural(places, math.prod(self.shape[:-1]), self.shape[-1])

    def pack_(self) -> SparseWeight:
        """Keep the indices in the order in which products on a GPU read them, and no longer in natural order: a GPU then
        needs no second form, 1/16 of a dense bf16 weight. For 2:4 weights of 16 and 8 bits; others stay as they are.

        `indices`, `state_dict` and `to("cpu")` give natural ones; those of a `state_dict` are a copy. Pack before a product is
        captured in a graph. Raises ValueError for illegal indices.
        """
        places = self.places
        if not is_packed(places) and self._can_pack():
            with torch.inference_mode(False), torch.no_grad():
                self.refresh_()
                self._parameters["indices"] = nn.Parameter(packed(places.detach(), self.shape[-1], self.dtype), False)
        return self

    def unpack_(self) -> SparseWeight:
        """The inverse of `pack_`. Products go on with the packed form, as captured graphs do."""
        if is_packed(self.places):
            before = self.tensors()
            with torch.inference_mode(False), torch.no_grad():
                # `register_parameter` asks for `indices`.
                self._parameters["indices"] = nn.Parameter(self.natural(), False)
            if self.values.is_cuda:
                for (values, old, _), (_, new, _) in zip(before, self.tensors(), strict=True):
                    cores().move(values, old, new)
        return self

    def _can_pack(self) -> bool:
        plain = type(self.places) is nn.Parameter and not self.places.is_meta
        return plain and self.ndim == 2 and can_pack(self.shape[0], self.shape[1], self.pattern, self.dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        return self.values.device

    @property
    def is_transposable(self) -> bool:
        """Whether the kept places keep the pattern along the rows too, so that the gradient of x is a sparse product.
        Masks of `louver.prune(w, "2:4", transposable=True)` do. The first call reads the indices. False for a stack, whose
        gradients are dense.
        """
        return self.ndim == 2 and is_transposable(
            part_of(self.values), part_of(self.places), self.pattern, self.columns
        )

    @property
    def columns(self) -> int:
        """The columns that this rank multiplies by: all, unless the weight is divided along K."""
        return self.shape[-1] // parts_of_columns(self.values)

    def dense(self) -> Tensor:
        """The dense weight [rows, columns], differentiable. Of a quantized weight in the type that it had before. Placed as
        the values are.
        """
        part = OPS.dense(local(self.values), local(self.places), self.columns, self.pattern)
        dense = beside(self.values, part, self.shape)
        if self.scale is None:
            return dense
        return (dense.float() * self.row_scales(self.scale)[:, None]).to(self.dense_dtype)

    @property
    def owner(self) -> SparseWeight:
        """The weight whose parameters hold this one."""
        return self

    def rounded(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The values in 8 bits, and the scales, as `quantized_` takes them."""
        if parts_of_columns(self.values) > 1:
            # DTensor finds the greatest magnitudes among the ranks.
            values, scale = quantized_rows(self.values.detach(), dtype)
            return values, replicated(scale)
        values, scale = quantized_rows(part_of(self.values).detach(), dtype)
        return beside(self.values, values, self.values.shape), beside(self.values, scale, self.values.shape[:1])

    def row_scales(self, scale: Tensor) -> Tensor:
        """Scales in the order of the rows of `values`."""
        return scale

    def quantized_(self, values: Tensor, scale: Tensor, dense_dtype: torch.dtype | None) -> None:
        """Become the weight of these values of 8 bits, with a scale for each row."""
        was_packed = is_packed(self.places)
        self.unpack_()
        self.values = nn.Parameter(values.detach(), False)
        self.scale = nn.Parameter(scale.detach(), False)
        self.dense_dtype = dense_dtype
        if was_packed:
            self.pack_()

    def refresh_(self) -> SparseWeight:
        """Make all device forms anew at the next product. For writes that PyTorch does not count."""
        if not self.values.is_meta:
            cores().forget(*(array for values, indices, _ in self.tensors() for array in (values, indices)))
        return self

    def tensors(self) -> list[tuple[Tensor, Tensor, int]]:
        """Values, indices and entries of each tensor that products read, see `louver.torch.core.core_of`."""
        return [(part_of(self.values), part_of(self.places), 0)]

    def copy_(self, other: SparseWeight) -> SparseWeight:
        """Take the values and indices of a weight of the same shape and pattern. Raises ValueError for another one."""
        self.check_like(other)
        with torch.no_grad():
            places = self._as_mine(other)
            self.values.copy_(other.values.reshape(self.values.shape))
            self.places.copy_(places)
            if self.scale is not None and other.scale is not None:
                self.scale.copy_(other.scale)
        return self.refresh_()

    def rewrite_(self, other: SparseWeight) -> SparseWeight:
        """The same, in the memory of this weight and of all that is derived from it: captured graphs then read the new one.

        Raises RuntimeError if a captured graph has sparse gradients of x, which keep their mask.
        """
        self.check_like(other)
        for values, indices, _ in self.tensors():
            cores().check_rewrite(values, indices)
        with torch.inference_mode(False), torch.no_grad():
            new = {
                name: self._as_mine(other) if name == "indices" else getattr(other, name)
                for name, _ in self.named_parameters()
            }
            for name, mine in self.named_parameters():
                # Not counted: a counted write would make other forms at the next product.
                mine.data.copy_(new[name].reshape(mine.shape))
        for values, indices, _ in self.tensors():
            cores().rewrite(values, indices)
        return self

    def _as_mine(self, other: SparseWeight) -> Tensor:
        """The indices of a weight of this shape, pattern and width, natural or packed as mine are."""
        codes = other.natural()
        if not is_packed(self.places):
            return codes.reshape(self.places.shape)
        # Those of a member of a gated pair have an axis more.
        return packed(codes.detach().reshape(self.shape[0], -1), self.shape[-1], self.dtype)

    def check_like(self, other: SparseWeight) -> None:
        """Raises ValueError unless this weight can be copied from the other one."""
        kinds = [(list(each.shape), each.pattern, each.scale is not None) for each in (self, other)]
        if kinds[0] != kinds[1]:
            mine, given = (f"{shape} {pattern}{' with scales' if scaled else ''}" for shape, pattern, scaled in kinds)
            raise ValueError(f"a weight is copied from one of its shape and pattern, {mine}, got {given}")

    def forward(self) -> dict[str, Tensor | None]:
        """The parameters. Products call the weight where hooks bring its parameters from elsewhere."""
        return dict(self._parameters)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> SparseWeight:
        scale = self._parameters.get("scale")

        def keeps_type(x: Tensor) -> Tensor:
            y = fn(x)
            # The type of a quantized weight is its meaning, and its scales are f32: `half` of a model leaves them.
            kept = x.dtype.itemsize == 1 or x is scale
            return x.to(y.device) if kept and y.dtype != x.dtype else y

        self.refresh_()
        super()._apply(keeps_type, recurse)
        if is_packed(self.places) and not (self.places.is_cuda and are_words_of(self.places, self.dtype)):
            self.unpack_()
        return self.refresh_()

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if is_packed(self.places):
            destination[prefix + "indices"] = self.natural()

    def _load_from_state_dict(self, *arguments: Any) -> None:
        was_packed = is_packed(self.places)
        self.unpack_().refresh_()
        super()._load_from_state_dict(*arguments)
        self.refresh_()
        if was_packed:
            try:
                self.pack_()
            except ValueError as error:
                arguments[-1].append(f"{arguments[1]}indices: {error}")

    def extra_repr(self) -> str:
        return f"{self.pattern}, {list(self.shape)}, {self.dtype}"


def pack_on_gpus_(model: nn.Module) -> None:
    """Pack the indices of all sparse weights of a model that are on a GPU, see `SparseWeight.pack_`."""
    for module in model.modules():
        if isinstance(module, SparseWeight) and module.values.is_cuda:
            module.pack_()


def arrays_of(weight: Any) -> Mapping[str, Any]:
    """`values`, `indices`, natural or packed, and `scale` of a weight for a product."""
    if weight._forward_pre_hooks or weight._forward_hooks or "forward" in weight.__dict__:
        return weight()
    # A module also finds its attributes in this dictionary, which takes 1 to 2 µs for each.
    return weight._parameters


class SparseLinear(nn.Module):
    """`x @ weight.T + bias` with a sparse weight [out_features, in_features], as `torch.nn.Linear`.

    pattern: along in_features, such as "2:4". A new module has a random weight, as `torch.nn.Linear` has, pruned by
        magnitude. `of` takes the weight of a dense layer.

    Parameters are `weight.values`, `weight.indices` and `bias`, so a state_dict has the names of Louver's files.
    Gradients: of x, of values (a pattern never changes) and of bias. A GPU multiplies 2:4 and V:N:M of 16 and 8 bits,
    1:2 of f32, and all other patterns of every type; the CPU computes all of them by the slow reference path. Under
    autocast, x and a weight of more than 8 bits are converted as those of `torch.nn.Linear` are.
    """

    weight: SparseWeight
    bias: nn.Parameter | None
    layout: Any = None
    """Of a layer on several ranks: a `louver.torch.parallel.layout.Layout`."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        pattern: str | Pattern = "2:4",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.dense_class: type[nn.Module] = nn.Linear
        self.weight = SparseWeight(out_features, in_features, pattern, device=device, dtype=dtype)
        made = torch.empty(out_features, device=device, dtype=dtype) if bias else None
        self.register_parameter("bias", None if made is None else nn.Parameter(made))
        if not self.weight.values.is_meta:
            self.reset_parameters()

    @classmethod
    def of(cls, layer: Any, pattern: str | Pattern = "2:4", *, prune: bool = False) -> SparseLinear:
        """The sparse module of a dense layer whose weight keeps a pattern. They share the bias.

        layer: a `torch.nn.Linear`, or Transformers' Conv1D, whose weight is [in, out].

        prune: prune the weight first, by magnitude.

        Raises ValueError for a group of too many non-zeros.
        """
        made = cls.like(layer, pattern)
        turned = made.dense_class is not nn.Linear
        made.weight = SparseWeight.of(layer.weight.t() if turned else layer.weight, pattern, prune=prune)
        made.register_parameter("bias", layer.bias)
        return made

    @classmethod
    def like(
        cls,
        layer: Any,
        pattern: str | Pattern = "2:4",
        *,
        dtype: torch.dtype | None = None,
        scaled: bool = False,
    ) -> SparseLinear:
        """The sparse module of a dense layer, with parameters on the meta device, see `SparseWeight.like`."""
        turned = not isinstance(layer, nn.Linear)
        w = layer.weight.t() if turned else layer.weight
        made = cls(w.shape[1], w.shape[0], layer.bias is not None, pattern, device="meta", dtype=dtype or w.dtype)
        if made.bias is not None:
            made.bias = nn.Parameter(made.bias.to(layer.bias.dtype), layer.bias.requires_grad)
        made.weight = SparseWeight.like(w, pattern, dtype=dtype, scaled=scaled)
        made.dense_class = type(layer)
        if is_placed(layer.weight):
            take_placing(made, layer)
        return made.train(layer.training)

    def linear(self) -> Any:
        """The dense layer of equal values, of the class of the layer that this one was made from. They share the
        bias.
        """
        kind, turned = self.dense_class, self.dense_class is not nn.Linear
        sizes = (self.out_features, self.in_features) if turned else (self.in_features, self.out_features)
        with torch.inference_mode(False), torch.no_grad(), torch.device("meta"):
            made: Any = kind(*sizes)
        with torch.inference_mode(False), torch.no_grad():
            weight = self.weight.dense()
            made.weight = nn.Parameter(weight.t().contiguous() if turned else weight, self.weight.values.requires_grad)
        made.bias = self.bias
        if is_placed(self.weight.values):
            take_placing(made, self)
            if self.layout is not None:
                self.layout.attach_(made)
        return made.train(self.training)

    @property
    def compute_dtype(self) -> torch.dtype:
        """The element type of x and of the products; that of the values, unless they are quantized."""
        return self.weight.dense_dtype or self.weight.dtype

    def reset_parameters(self) -> None:
        """New random values, pruned by magnitude."""
        bound = 1 / math.sqrt(self.in_features) if self.in_features else 0
        w = torch.empty(self.out_features, self.in_features, device=self.weight.device).uniform_(-bound, bound)
        self.weight.copy_(SparseWeight.of(w.to(self.weight.dtype), self.weight.pattern, prune=True))
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in_features], any strides. Returns [..., out_features]."""
        weight: Any = self._modules["weight"]
        arrays = arrays_of(weight)
        values, bias = arrays["values"], self._parameters["bias"]
        if type(values) is not nn.Parameter and is_placed(values):
            return self._on_this_rank(x, arrays, bias)
        return multiply(x, values, arrays["indices"], bias, weight.pattern, scale=arrays["scale"])

    def _on_this_rank(self, x: Any, arrays: Mapping[str, Any], bias: Any) -> Any:
        """The same of a weight that lies on several ranks."""
        from louver.torch.parallel.layout import Layout

        layout = self.layout or Layout.of(arrays["values"])
        values, indices, scale = (local(arrays[name]) for name in ("values", "indices", "scale"))
        y = multiply(layout.enter(x), values, indices, layout.bias(bias), self.weight.pattern, scale=scale)
        return layout.leave(y, self.out_features)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
