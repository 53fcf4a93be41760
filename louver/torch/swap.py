"""`prune_`, `compress_` and `decompress_`: change the linear layers of a model in place, and say what was done."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import contextlib
import importlib
import itertools
import sys
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Final

import torch
from torch import Tensor, nn

from louver.advice.product import device_at_hand
from louver.formats.dtypes import SPARSE_TYPES, ElementTypeError, element_type
from louver.formats.pattern import Pattern, has_kernels, without_kernels
from louver.torch.blocks import Joinable, join_, joinable, separate_
from louver.torch.core import DEVICES
from louver.torch.gain import Apart, Gain, Together, element_of, measure, measure_stack, predict
from louver.torch.gated_experts import fuse_stacks_
from louver.torch.held import offending
from louver.torch.layers import Layer, Stack, dense_layers, is_hooked, sparse_layers
from louver.torch.linear import SparseLinear, pack_on_gpus_
from louver.torch.placed import own_part, part_of, summed, undivided
from louver.torch.ready import checked_tokens
from louver.torch.report import Report, Row
from louver.torch.stacks import chosen

PATTERNS: Final = ("2:4", "1:2")
"""Patterns that `compress_` looks for by default."""


def compress_(
    model: nn.Module,
    *,
    tokens: int | Sequence[int] = (1, 16, 2048),
    patterns: Sequence[str | Pattern] = PATTERNS,
    skip: Collection[str] = (),
    force: bool = False,
) -> Report:
    """Swap each linear layer whose weight keeps a pattern for `SparseLinear`, and each stack of experts for `SparseStack`,
    where that is faster. Values stay equal.

    tokens: numbers of tokens of a call. On a GPU, each shape of a weight is timed dense and sparse at these numbers; a
        layer is swapped if the mean of sparse over dense time is under 1. Layers of a block that become one product,
        such as q, k and v, are timed as one product, and swapped all or none.
    patterns: to look for, in this order; those that GPUs multiply in the type of a weight first, such as 1:2 for f32.
    skip: names of layers to leave, with `*` and `?` as in file names.
    force: swap without timing, also on a CPU, where the reference path is slow: for tests, and to make files.

    On a GPU, the indices of 2:4 weights are kept in the order in which products read them alone, see `SparseWeight.pack_`:
    `indices` and `state_dict` give natural ones.

    No dense copy is kept: memory peaks at the dense model and one sparse weight. `decompress_` gives equal weights; a
    -0.0 in a pruned place becomes +0.0, which the report counts. Parameters of swapped layers are new objects: make
    optimizers afterwards. Returns a report with the reason for each layer.

    Raises ValueError if no layer keeps a pattern, and for bad arguments. If an error interrupts the swap, all layers
    are dense again.
    """
    counts = checked_tokens(tokens)
    wanted = [Pattern.parse(pattern) for pattern in patterns]
    choices = choices_of(dense_layers(model), wanted, skip)
    if all(choice.pattern is None for choice in choices):
        raise nothing_kept({choice.layer.name: choice.reason for choice in choices}, wanted)
    blocks = joinable(
        model, {id(choice.layer.module): str(choice.pattern) for choice in choices if choice.pattern is not None}
    )
    swapper = Swapper(counts, force, blocks)
    rows: list[Row] = []
    with _undone_on_error(model, rows):
        # A choice holds its dense layer, so it is dropped before the next one is swapped.
        for _ in range(len(choices)):
            rows.append(swapper.row(choices.pop(0)))
        said = join_(blocks) | fuse_stacks_(model)
        pack_on_gpus_(model)
    describe(model)
    return Report(tuple(_with(row, said.get(row.name)) for row in rows))


def decompress_(model: nn.Module) -> Report:
    """Swap each `SparseLinear` of a model for the dense layer of equal values, of the class that it was before, and each
    `SparseStack` for a dense one.

    Returns a report of these layers. Raises ValueError for weights with hooks, before anything is changed.
    """
    rows: list[Row] = []
    hooked = next((layer.name for layer in sparse_layers(model) if is_hooked(layer.module.weight.owner)), None)
    if hooked is not None:
        raise ValueError(
            f"a weight whose parameters hooks bring stays sparse, got {hooked}.weight: remove the hooks first, those of "
            "accelerate by accelerate.hooks.remove_hook_from_module(model, recurse=True)"
        )
    separate_(model)
    layers = sparse_layers(model)
    # A layer holds its sparse weight, so it is dropped before the next one is swapped.
    for _ in range(len(layers)):
        layer = layers.pop(0)
        sparse = layer.module
        layer.expand()
        kind: torch.dtype = sparse.weight.dense_dtype or sparse.weight.dtype
        shape: torch.Size = sparse.weight.shape
        size = shape.numel() * kind.itemsize
        rows.append(Row(layer.name, "dense", "decompressed", shape, sparse.weight.pattern, (_nbytes(sparse), size)))
    describe(model)
    return Report(tuple(rows))


def _with(row: Row, said: str | None) -> Row:
    return row if said is None else replace(row, reason=f"{row.reason}; {said}")


def describe(model: nn.Module) -> None:
    """Keep the configuration of a model of Transformers true to its layers, so that `save_pretrained` writes it."""
    loaded: Any = sys.modules.get("transformers.modeling_utils")
    if loaded is not None and isinstance(model, loaded.PreTrainedModel):
        importlib.import_module("louver.torch.transformers").describe_(model)


@dataclass(frozen=True, slots=True)
class Choice:
    """A layer, the pattern that its weight keeps, and the reason if there is none."""

    layer: Layer
    pattern: Pattern | None
    reason: str


class Swapper:
    """Swaps layers. Each shape, element type and pattern is timed once; layers that become one product, as one.

    blocks: with such layers.
    """

    def __init__(self, tokens: tuple[int, ...], force: bool, blocks: Sequence[Joinable] = ()) -> None:
        self._tokens, self._force = tokens, force
        self._gains: dict[tuple[Any, ...], Gain] = {}
        # Names of children, not the layers, which end when they are swapped.
        self._groups = {
            id(block.block.get_submodule(name)): (block, group)
            for block in blocks
            for group in block.groups
            for name in group
        }
        self._decided: dict[tuple[int, tuple[str, ...]], Gain] = {}

    def row(self, choice: Choice) -> Row:
        """Swap the layer of a choice if it is worth it, and say so."""
        layer, pattern = choice.layer, choice.pattern
        if pattern is None:
            return row_of(layer, "dense", choice.reason)
        if not self._force and not _multiplies_fast(layer.weight):
            reason = f"{layer.weight.device}: only a GPU multiplies sparse weights fast; force=True swaps anyway"
            return row_of(layer, "dense", reason + self._predicted(layer, pattern), str(pattern))
        reason = f"it keeps {pattern}{self._predicted(layer, pattern) if self._force else ''}; swapped without timing"
        row = row_of(layer, "sparse", reason, str(pattern))
        sparse = None
        if not self._force:
            block, group = self._groups.get(id(layer.module), (None, ()))
            if block is None:
                sparse = layer.sparse(pattern)
                gain = self._alone(layer, sparse)
            else:
                gain = self._together(block, group, pattern)
            slower = gain.relative >= 1
            verb, how = "takes" if slower else "swapped:", "" if block is None else f", as one product of {len(group)}"
            reason = f"{verb} {gain.relative:.2f} of the dense time at {', '.join(map(str, self._tokens))} tokens{how}"
            row = replace(row, reason=reason, dense_us=gain.dense_us, sparse_us=gain.sparse_us)
            if slower:
                return replace(row, done="dense")
        sparse = layer.sparse(pattern) if sparse is None else sparse
        layer.put(sparse)
        return replace(
            row, bytes=(row.bytes[0], _nbytes(sparse)), negative_zeros_dropped=sparse.weight.negative_zeros_dropped
        )

    def _predicted(self, layer: Layer, pattern: Pattern) -> str:
        """What a GPU would gain, where nothing is timed; "" without rates for it."""
        device = device_at_hand()
        gain = predict(layer.weight, str(pattern), self._tokens, device)
        if gain is None:
            return ""
        kind = element_of(layer.weight)
        told = f"predicted in {kind}" if layer.weight.dtype.itemsize == 4 else "predicted"
        return (
            f"; {device}: {gain.relative:.2f} of the dense time at {', '.join(map(str, self._tokens))} tokens, {told}"
        )

    def _alone(self, layer: Layer, sparse: Any) -> Gain:
        key = (sparse.weight.pattern, _key(layer.module, layer.weight))
        if key not in self._gains:
            self._gains[key] = (
                measure_stack(layer.weight, sparse, self._tokens, chosen(layer.experts))
                if isinstance(layer, Stack)
                else self._measured(layer.module, sparse)
            )
        return self._gains[key]

    def _measured(self, dense: Any, sparse: Any) -> Gain:
        own = own_part(dense)
        own_sparse = sparse if own is dense else SparseLinear.of(own, sparse.weight.pattern)
        return measure(own, own_sparse, self._tokens).agreed(dense.weight)

    def _together(self, block: Joinable, group: tuple[str, ...], pattern: Pattern) -> Gain:
        """The gain of the layers of a group as one product, found before the first of them is swapped."""
        known = (id(block.block), group)
        if known not in self._decided:
            layers: list[Any] = [block.block.get_submodule(name) for name in group]
            kinds = (_key(layer, layer.weight) for layer in layers)
            key = (str(pattern), *kinds, block.by_turns, block.activation)
            if key not in self._gains:
                own = [own_part(layer) for layer in layers]
                sparse = [SparseLinear.of(layer, pattern) for layer in own]
                together = Together(sparse, block.by_turns, block.activation)
                self._gains[key] = measure(Apart(own), together, self._tokens).agreed(layers[0].weight)
            self._decided[known] = self._gains[key]
        return self._decided[known]


def _key(module: Any, weight: Tensor) -> tuple[Any, ...]:
    """What the times of a layer depend on."""
    placements = getattr(weight, "placements", None)
    has_bias = getattr(module, "bias", None) is not None
    return weight.shape, placements, weight.dtype, weight.device, has_bias, module.__class__


@contextlib.contextmanager
def _undone_on_error(model: nn.Module, rows: list[Row]) -> Generator[None]:
    """Make the swapped layers dense again if an error ends the block."""
    try:
        yield
    except BaseException:
        if any(row.done == "sparse" for row in rows):
            swapped = {row.name for row in rows if row.done == "sparse"}
            separate_(model)
            for layer in sparse_layers(model):
                if layer.name in swapped:
                    layer.expand()
        raise


def choices_of(layers: Sequence[Layer], patterns: Sequence[Pattern], skip: Collection[str]) -> list[Choice]:
    """For each layer, the first pattern that its weight keeps, or why it keeps none. On a GPU, one wait for a pattern.

    Patterns that GPUs multiply in the type of a weight come first: a weight of f32 that keeps 1:2 keeps 2:4 too.
    """
    reasons: list[list[str]] = [[reason] if (reason := refusal(layer, skip)) else [] for layer in layers]
    left = [place for place, said in enumerate(reasons) if not said]
    found: dict[int, Pattern] = {}
    for multiplied, pattern in itertools.product((True, False), patterns):
        fit: list[int] = []
        for place in left:
            if _has_product(layers[place].weight, pattern) != multiplied:
                continue
            unfit = (
                misfit(layers[place], pattern)
                or _without_product(layers[place].weight, pattern)
                or undivided(layers[place].name, layers[place].weight, pattern)
            )
            if unfit is None:
                fit.append(place)
            else:
                reasons[place].append(unfit)
        weights = [layers[place].weight for place in fit]
        counts = offending([part_of(w).detach() for w in weights], pattern)
        sums = (summed(numbers, weights) for numbers in zip(*counts, strict=True)) if counts else ((), ())
        for place, broken, groups in zip(fit, *(map(int, numbers) for numbers in sums), strict=True):
            if broken:
                reasons[place].append(f"{broken:,} of {groups:,} groups have more non-zeros than {pattern} keeps")
            else:
                found[place] = pattern
        left = [place for place in left if place not in found]
    return [
        Choice(layer, found.get(place), "" if place in found else "; ".join(dict.fromkeys(reasons[place])))
        for place, layer in enumerate(layers)
    ]


def nothing_kept(reasons: Mapping[str, str | None], patterns: Sequence[Pattern]) -> ValueError:
    """The error for a model without a weight that keeps a pattern. reasons: by the layer's name."""
    names = " or ".join(map(str, patterns))
    listed = "\n".join(f"  {name}: {reason}" for name, reason in reasons.items())
    return ValueError(f"no weight keeps {names}: call louver.torch.prune_(model, …) first, got\n{listed}")


def _has_product(weight: Tensor, pattern: Pattern) -> bool:
    """Whether GPUs have products of a weight with this pattern. `misfit` refuses other element types."""
    try:
        return has_kernels("products", str(pattern), element_type(weight.dtype, SPARSE_TYPES).name)
    except ElementTypeError:
        return False


def _without_product(weight: Tensor, pattern: Pattern) -> str | None:
    if weight.is_cuda and not _has_product(weight, pattern):
        return without_kernels("products", str(pattern), element_type(weight.dtype).name)
    return None


def refusal(layer: Layer, skip: Collection[str]) -> str | None:
    """Why a layer stays as it is."""
    skipped = next((text for text in skip if fnmatchcase(layer.name, text)), None)
    return layer.refused if skipped is None else f"skipped by {skipped!r}"


def misfit(layer: Layer, pattern: Pattern, *, loaded: bool = True) -> str | None:
    """Why a weight cannot keep a pattern. loaded: whether its values are needed now."""
    weight = layer.weight
    try:
        element_type(weight.dtype, SPARSE_TYPES)
    except ElementTypeError as error:
        return f"a weight of {weight.dtype}: {error}"
    if weight.is_meta and loaded:
        return "it has no data, it is on the meta device: load the weights first"
    if weight.device.type not in (*DEVICES, "meta"):
        return f"it is on {weight.device}: sparse weights are on the CPU or on a GPU of NVIDIA"
    return "it has no elements" if 0 in weight.shape else layer.unfit(pattern)


def _multiplies_fast(weight: Tensor) -> bool:
    """Whether the device of a weight may gain. Tests without a GPU replace it."""
    return weight.is_cuda


def _nbytes(sparse: Any) -> int:
    return sum(each.nbytes for each in sparse.weight.parameters())


def row_of(layer: Layer, done: str, reason: str, pattern: str = "") -> Row:
    """The row of a layer whose weight keeps its size."""
    weight = layer.weight
    size = weight.numel() * weight.itemsize
    return Row(layer.name, done, reason, tuple(weight.shape), pattern, (size, size))


def as_lines(rows: Sequence[tuple[Layer, str | None]]) -> str:
    """The layers with their reasons, one a line."""
    return _listed({layer.name: reason for layer, reason in rows})


def _listed(reasons: Mapping[str, str | None]) -> str:
    return "\n".join(f"  {name}: {reason}" for name, reason in reasons.items())
