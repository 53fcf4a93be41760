"""`quantize_`: sparse weights in 8 bits with a scale for each row."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import torch
from torch import Tensor, nn

from louver.formats.pattern import has_kernels, without_kernels
from louver.torch.layers import Layer, sparse_layers
from louver.torch.linear import SparseWeight
from louver.torch.report import Report, Row
from louver.torch.swap import describe

Quantized: TypeAlias = Literal["e4m3", "int8"]

_TYPES: Final = {"e4m3": (torch.float8_e4m3fn, "e4m3"), "int8": (torch.int8, "s8")}


def quantize_(model: nn.Module, to: Quantized = "e4m3") -> Report:
    """Round the weights of all sparse layers to 8 bits, with a scale for each row: the greatest magnitude of a row
    becomes the greatest of the type. Calls then quantize x too, with a scale for each token, found in the same call.

    Dense layers stay as they are; prune and compress first. The type of a quantized weight never changes: `to` and
    `half` leave it. Values have no gradient; x and bias have. Returns a report of the sparse layers. `decompress_`
    gives the rounded weights in the type that they had.

    Raises ValueError for another type, for a model without sparse layers that can be quantized, and for weights with
    NaN or infinity; then nothing has changed.
    """
    check_quantized(to)
    dtype, element = _TYPES[to]
    layers = sparse_layers(model)
    if not layers:
        raise ValueError(
            f"sparse layers are quantized, got {type(model).__name__} without one: call prune_ and compress_ first"
        )
    reasons = [_unfit(layer.module.weight, element) for layer in layers]
    if all(reasons):
        listed = "\n".join(f"  {layer.name}: {reason}" for layer, reason in zip(layers, reasons, strict=True))
        raise ValueError(f"no sparse layer is left to quantize, got\n{listed}")
    before = [_nbytes(layer.module.weight) for layer in layers]
    made: dict[SparseWeight, tuple[Tensor, Tensor]] = {}
    for layer, reason in zip(layers, reasons, strict=True):
        owner = layer.module.weight.owner
        if reason is None and owner not in made:
            made[owner] = _parts(layer, owner, dtype)
    for owner, (values, scale) in made.items():
        owner.quantized_(values, scale, owner.dtype)
    describe(model)
    rows = zip(layers, reasons, before, strict=True)
    return Report(tuple(_row(layer, reason, size, to) for layer, reason, size in rows))


def check_quantized(to: object) -> None:
    """Raises ValueError unless weights can be quantized to this type."""
    if to not in _TYPES:
        raise ValueError(f'a weight is quantized to "e4m3" or "int8", got {to!r}')


def _parts(layer: Layer, owner: SparseWeight, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(False), torch.no_grad():
        values, scale = owner.rounded(dtype)
    if not bool(scale.isfinite().all()):
        raise ValueError(f"a weight to quantize is finite, got NaN or infinity in {layer.name}")
    return values, scale


def _unfit(weight: Any, element: str) -> str | None:
    """Why a weight cannot be quantized."""
    if weight.scale is not None or weight.dtype.itemsize == 1:
        return f"it has 8 bits already, {weight.dtype}"
    if weight.values.is_meta:
        return "it has no data, it is on the meta device: load the weights first"
    if not has_kernels("products", weight.pattern, element):
        return without_kernels("products", weight.pattern, element)
    return None


def _nbytes(weight: Any) -> int:
    return weight.values.nbytes + weight.natural().nbytes + (0 if weight.scale is None else weight.scale.nbytes)


def _row(layer: Layer, reason: str | None, before: int, to: str) -> Row:
    module = layer.module
    done = "sparse" if reason else "quantized"
    text = reason or f"{to}, with a scale for each row and token"
    return Row(layer.name, done, text, module.weight.shape, module.weight.pattern, (before, _nbytes(module.weight)))
