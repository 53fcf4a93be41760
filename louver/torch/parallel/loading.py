"""`load_`: each rank reads the bytes of its own parts of a checkpoint, and no others.

Rows lie one after the other in a file, so a part of them is one range of bytes. A part of the columns is a range of each
row. A sparse weight is read from Louver's arrays, or from a dense weight with zeros, of which each rank compresses its part.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.distributed.tensor import Replicate, Shard

from louver.formats.checkpoint import CheckpointFile, open_checkpoint
from louver.formats.container import Entry
from louver.formats.pattern import Pattern
from louver.formats.regular import FormatError, RegularFile
from louver.formats.schema import SparseForm
from louver.torch.core import compressed, fresh
from louver.torch.linear import SparseLinear, SparseWeight
from louver.torch.placed import beside, is_placed, part_of, parts_of_columns
from louver.torch.stacks import SparseStack

_TYPES: Final = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
    "F64": torch.float64,
    "F8_E4M3": torch.float8_e4m3fn,
    "I8": torch.int8,
    "U8": torch.uint8,
    "I32": torch.int32,
    "I64": torch.int64,
    "BOOL": torch.bool,
}


@dataclass(frozen=True, slots=True)
class Stored:
    """An array of a checkpoint. pattern: of the sparse tensor that it belongs to."""

    file: CheckpointFile
    entry: Entry
    pattern: Pattern | None


def load_(model: nn.Module, path: str | os.PathLike[str]) -> int:
    """Fill the parameters and buffers of a model from a checkpoint, and return the bytes that this rank read of its arrays.

    model: with memory; layers may be divided among ranks by `parallelize_module`. Call `to_empty` on one that was made on
        the meta device.
    path: a safetensors file, an index of several, or a folder with one.

    Only a whole array can be compared with its checksum; `louver inspect` compares those of a file. Sparse parts are
    checked for illegal indices.

    Raises ValueError, before anything is changed, for names that the checkpoint lacks, for other shapes and types and for
    parameters without memory; later for a dense weight that does not keep the pattern of its layer.
    """
    arrays, read, turned = _arrays(path), 0, _turned(model)
    jobs = [
        (
            prefix,
            owner,
            {name: (each, _found(f"{prefix}{name}", owner, each, arrays, turned)) for name, each in own.items()},
        )
        for prefix, owner, own in _owners(model)
    ]
    for prefix, owner, own in jobs:
        parts: dict[str, Tensor] = {}
        for name, (tensor, stored) in own.items():
            if stored.entry.shape == tuple(tensor.shape):
                parts[name] = _part(stored, tensor)
                read += parts[name].nbytes
            elif name == "values" and isinstance(owner, SparseWeight):
                parts["values"], parts["indices"], size = _of_dense(prefix[:-1], owner, tensor, stored)
                read += size
        if isinstance(owner, SparseWeight):
            _fill(owner, prefix[:-1], parts)
            continue
        with torch.no_grad():
            for name, part in parts.items():
                part_of(own[name][0]).copy_(part)
    return read


def _arrays(path: str | os.PathLike[str]) -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    for file in open_checkpoint(path).files:
        for tensor in file.tensors.values():
            pattern = tensor.form.pattern if isinstance(tensor.form, SparseForm) else None
            found |= {array.name: Stored(file, array.entry, pattern) for array in tensor.arrays}
    return found


def _owners(model: nn.Module) -> Iterator[tuple[str, nn.Module, dict[str, Any]]]:
    """The modules with something to fill: the start of its names, and each by its own name."""
    seen: set[int] = set()
    for place, module in model.named_modules():
        if isinstance(module, SparseWeight):
            # A member of a joined weight has its rows there, and the joined weight nothing.
            own: dict[str, Any] = dict(module.state_dict())
        else:
            kept = {**module._parameters, **module._buffers}
            own = {name: each for name, each in kept.items() if name not in module._non_persistent_buffers_set}
        own = {name: each for name, each in own.items() if each is not None and id(each) not in seen}
        seen |= {id(each) for each in own.values()}
        if own:
            yield f"{place}." if place else "", module, own


def _turned(model: nn.Module) -> set[nn.Module]:
    """The sparse weights [out, in] of layers whose dense weights are [in, out]."""
    layers: list[Any] = [each for each in model.modules() if isinstance(each, SparseLinear)]
    return {layer.weight for layer in layers if layer.dense_class is not nn.Linear}


def _found(
    name: str, owner: nn.Module, tensor: Any, arrays: Mapping[str, Stored], turned: Collection[nn.Module]
) -> Stored:
    """The array of a parameter, or the dense one of a sparse weight. Raises ValueError for none, and for another one."""
    if tensor.is_meta:
        raise ValueError(
            f"parameters to fill have memory, got {name} on the meta device: call to_empty(device=…) first"
        )
    if is_placed(tensor) and any(type(each) not in (Shard, Replicate) for each in tensor.placements):
        raise ValueError(
            f"parts to read are those of Shard and Replicate, got {name} with placements {tensor.placements}: call load_ before "
            "fully_shard"
        )
    prefix = name.rpartition(".")[0]
    own = arrays.get(name)
    sparse = isinstance(owner, SparseWeight)
    stored = own or (arrays.get(prefix) if sparse else None)
    if stored is None:
        dense = f" and no {prefix}" if sparse else ""
        raise ValueError(
            f"a checkpoint to load has every parameter, got one without {name}{dense}: is it another model's?"
        )
    if own is None and owner in turned:
        raise ValueError(
            f"a dense weight is read as [out, in], got {prefix} of a layer whose dense weight is [in, out]: load it into the "
            "dense model, and call compress_ afterwards"
        )
    shape = list(tensor.shape if own is not None else owner.shape)  # pyright: ignore[reportArgumentType]
    kind = _TYPES.get(stored.entry.dtype)
    if list(stored.entry.shape) != shape or kind is None:
        raise ValueError(
            f"{name} is {tensor.dtype} of shape {shape}, got {stored.entry.dtype} of {list(stored.entry.shape)}"
        )
    same = kind == tensor.dtype or (not sparse and kind.is_floating_point and tensor.is_floating_point())
    if own is not None and not same:
        raise ValueError(f"{name} is {tensor.dtype}, got {kind} in the checkpoint: convert the model first")
    if (
        own is not None
        and isinstance(owner, SparseWeight)
        and stored.pattern not in (None, Pattern.parse(owner.pattern))
    ):
        raise ValueError(f"{name} keeps {owner.pattern}, got {stored.pattern} in the checkpoint")
    if own is None and isinstance(owner, SparseWeight) and (owner.scale is not None or isinstance(owner, SparseStack)):
        raise ValueError(
            f"a dense weight is compressed for a layer that is not quantized, and no stack, got {prefix} for {name}: load it, "
            "and quantize afterwards"
        )
    return stored


def _part(stored: Stored, like: Any) -> Tensor:
    """The part of this rank of an array, placed as another tensor is. On the host."""
    shape = stored.entry.shape
    ranges = [(0, size) for size in shape]
    if is_placed(like):
        mesh = like.device_mesh
        for axis, placement in enumerate(like.placements):
            if placement.is_shard():
                begin, end = ranges[placement.dim]
                size = -(-(end - begin) // mesh.size(axis))
                start = min(begin + mesh.get_local_rank(axis) * size, end)
                ranges[placement.dim] = (start, min(start + size, end))
    return _read(stored, ranges)


def _read(stored: Stored, ranges: list[tuple[int, int]]) -> Tensor:
    """A part of an array, which is whole in all axes between the first and the last."""
    entry, kind = stored.entry, _TYPES[stored.entry.dtype]
    counts = [end - begin for begin, end in ranges]
    data = bytearray(math.prod(counts) * kind.itemsize)
    with RegularFile.open(stored.file.path) as file:
        start = stored.file.data_start + entry.start
        whole = counts[1:] == list(entry.shape[1:])
        row = math.prod(entry.shape[1:]) * kind.itemsize
        if not counts or whole:
            _fill_bytes(file, start + (ranges[0][0] * row if ranges else 0), memoryview(data))
        else:
            inner = entry.shape[-1] * kind.itemsize
            size, offset = counts[-1] * kind.itemsize, ranges[-1][0] * kind.itemsize
            lines = math.prod(entry.shape[1:-1])
            first, last = ranges[0][0] * lines, ranges[0][1] * lines
            if len(counts) == 1:
                _fill_bytes(file, start + offset, memoryview(data))
            for place, line in enumerate(range(first, last) if len(counts) > 1 else ()):
                _fill_bytes(file, start + line * inner + offset, memoryview(data)[place * size : (place + 1) * size])
    return torch.frombuffer(data, dtype=kind).reshape(counts) if data else torch.empty(counts, dtype=kind)


def _fill_bytes(file: RegularFile, offset: int, into: memoryview) -> None:
    if file.read_into(offset, into) != len(into):
        raise FormatError(
            f"{file.path}: the file ended inside an array: it is truncated, or was changed while it was read"
        )


def _of_dense(prefix: str, owner: SparseWeight, values: Any, stored: Stored) -> tuple[Tensor, Tensor, int]:
    """Values and indices of this rank's part of a dense weight, and the bytes of that part."""
    part = _part(stored, beside(values, torch.empty(0), owner.shape) if is_placed(values) else torch.empty(0))
    kind = part_of(values).dtype
    try:
        mine, indices, _ = compressed(part.to(kind), owner.pattern)
    except ValueError as error:
        raise ValueError(f"{Path(stored.file.path).name}: {prefix} does not keep {owner.pattern}: {error}") from error
    return mine, indices, part.nbytes


def _fill(weight: SparseWeight, prefix: str, parts: dict[str, Tensor]) -> None:
    """Give a sparse weight what was read. Raises ValueError for illegal indices."""
    values, indices = (parts[name].flatten(0, -2) for name in ("values", "indices"))
    columns = weight.shape[-1] // parts_of_columns(weight.state_dict()["values"])
    try:
        fresh(values, indices, weight.pattern, columns).validate()
    except ValueError as error:
        raise FormatError(f"{prefix} cannot be read: {error}") from error
    own = weight.state_dict()
    device = part_of(own["values"]).device
    placed = {name: beside(own[name], part.to(device), own[name].shape) for name, part in parts.items()}
    weight.load_state_dict(placed)
