"""The dense weights of a stream of stored arrays, for loaders that know dense ones only. Knows nothing of vLLM."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from louver.formats.bitmask import PATTERN
from louver.formats.checkpoint import open_checkpoint
from louver.formats.index import find
from louver.formats.pattern import Pattern
from louver.formats.regular import FormatError
from louver.formats.schema import BITMASK_PARTS, WEIGHT, BitmaskForm, Form, SparseForm
from louver.torch.columns import check_arrays, expanded

E4M3 = "float8_e4m3fn"
"""PyTorch's name of it, which configurations have."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored weight [rows, columns]. pattern: that it keeps, None for any places.

    columns: None if the checkpoint does not say. scaled: whether it has 8 bits and a scale for each row.
    bitmask: whether its places are bits, as compressed-tensors stores them.
    """

    pattern: Pattern | None
    columns: int | None = None
    scaled: bool = False
    bitmask: bool = False

    def check_division(self, name: str, columns: int, part: int, rows: list[int]) -> None:
        """Raises ValueError if a part of the columns, or of the rows, among GPUs cuts groups of the pattern."""
        if self.pattern is None:
            return
        m, height = self.pattern.m, self.pattern.length
        if part != columns and part % m:
            fits = [size for size in range(1, columns // part) if columns % size == 0 and columns // size % m == 0]
            use = (
                f"use {' or '.join(map(str, fits))}"
                if fits
                else "serve the dense weights that `louver decompress` writes"
            )
            raise ValueError(
                f"tensor_parallel_size {columns // part} divides the {columns} input features of {name} into parts of {part}, which "
                f"cut groups of {self.pattern}: {use}"
            )
        cut = next((size for size in rows if size % height), None)
        if cut is not None:
            raise ValueError(
                f"{name} has a part of {cut} rows, which cuts windows of {height} rows of {self.pattern}: use a smaller "
                "tensor_parallel_size, or serve the dense weights that `louver decompress` writes"
            )


def of_layers(layers: Mapping[str, Mapping[str, str]]) -> dict[str, Stored]:
    """The weights of a model that Transformers has saved, by name. layers: of its configuration.

    Raises ValueError for weights of 8 bits that are not e4m3.
    """
    for name, layer in layers.items():
        if layer.get("scale") == "row" and layer["dtype"] != E4M3:
            raise ValueError(
                f"vLLM serves quantized weights of e4m3, got {name} of {layer['dtype']}: save the model before quantize_, or after "
                'quantize_(model, "e4m3")'
            )
    return {
        name + WEIGHT: Stored(Pattern.parse(layer["pattern"]), None, layer.get("scale") == "row")
        for name, layer in layers.items()
    }


def of_files(folder: str) -> dict[str, Stored]:
    """The weights of the checkpoint in a folder, by name; none for the name of a model elsewhere, and for a folder without
    one checkpoint of safetensors files. Raises FormatError for damage.
    """
    try:
        path = find(Path(folder))
    except FormatError:
        return {}
    if not path.is_file():
        return {}
    forms: dict[str, Form] = {name: each.form for name, each in open_checkpoint(path).tensors.items()}
    stored: dict[str, Stored] = {}
    for name, form in forms.items():
        if isinstance(form, SparseForm):
            stored[name] = Stored(form.pattern, form.shape[-1])
        elif isinstance(form, BitmaskForm):
            stored[name] = Stored(PATTERN if form.kept is None else None, form.shape[-1], bitmask=True)
    return stored


_LOUVER = (".values", ".indices", ".scale")
_BITMASK = (BITMASK_PARTS.values, BITMASK_PARTS.bits, BITMASK_PARTS.shape, BITMASK_PARTS.offsets)


def dense_weights(
    weights: Iterable[tuple[str, Tensor]], stored: Mapping[str, Stored], device: torch.device, dtype: torch.dtype
) -> Iterator[tuple[str, Tensor]]:
    """Arrays of a checkpoint by name, with a dense weight in the place of the arrays of each sparse one. A weight is made
    when its last array comes, and is alive only then.

    A weight of 8 bits that `stored` names is followed by its scales, as NAME_scale [rows, 1]; another one, such as an
    expert's, is given in `dtype`.
    device: where the weights are made.

    Raises ValueError for arrays that do not fit, and at the end for weights of which arrays are missing.
    """
    waiting: dict[str, dict[str, Tensor]] = {}
    for name, array in weights:
        weight, part = _home(name, stored)
        if not part:
            yield name, array
            continue
        parts = waiting.setdefault(weight, {})
        parts[part] = array.to(device)
        if _is_complete(parts, stored.get(weight)):
            yield from _dense(weight, waiting.pop(weight), stored, dtype)
    if waiting:
        name, parts = next(iter(waiting.items()))
        raise ValueError(
            f"a sparse weight has all its arrays, got only {', '.join(sorted(parts))} of {name!r}: the checkpoint is not complete"
        )


def _home(name: str, stored: Mapping[str, Stored]) -> tuple[str, str]:
    """The weight that an array belongs to, and the end of its name; the end is "" for an array of its own."""
    for end in _LOUVER:
        weight = name.removesuffix(end)
        if weight != name and (weight in stored or weight.endswith(WEIGHT)):
            return weight, end
    for end in _BITMASK:
        stem = name.removesuffix(end)
        if stem != name and _of_bitmask(stored.get(stem + WEIGHT)):
            return stem + WEIGHT, end
    return name, ""


def _of_bitmask(stored: Stored | None) -> bool:
    return stored is not None and stored.bitmask


def _is_complete(parts: Mapping[str, Tensor], stored: Stored | None) -> bool:
    if _of_bitmask(stored):
        values = parts.get(BITMASK_PARTS.values)
        return values is not None and len(parts) == (3 if values.dim() == 2 else 4)
    if not {".values", ".indices"} <= parts.keys():
        return False
    scaled = parts[".values"].dtype.itemsize == 1 if stored is None else stored.scaled
    return ".scale" in parts or not scaled


def _dense(
    name: str, parts: Mapping[str, Tensor], stored: Mapping[str, Stored], dtype: torch.dtype
) -> Iterator[tuple[str, Tensor]]:
    own = stored.get(name)
    if _of_bitmask(own):
        yield name, _unpacked(name, *(parts[end] for end in _BITMASK[:3]))
        return
    values, indices, scale = parts[".values"], parts[".indices"], parts.get(".scale")
    pattern = _pattern(name, values, indices, stored)
    columns = (own and own.columns) or values.shape[1] // pattern.n * pattern.m
    try:
        w = expanded(values, indices, pattern, columns)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if scale is None:
        if w.dtype.itemsize == 1:
            raise ValueError(
                f"sparse weights of 8 bits have a scale for each row, got {name!r} without: serve the files that "
                "`save_pretrained` writes after louver.torch.quantize_, or weights of 16 bits with to='e4m3'"
            )
        yield name, w
    elif own is not None:
        yield name, w
        yield f"{name}_scale", scale.float()[:, None]
    else:
        yield name, (w.float() * scale.float()[:, None]).to(dtype)


def _pattern(name: str, values: Tensor, indices: Tensor, stored: Mapping[str, Stored]) -> Pattern:
    """The pattern of a weight: that of its name, else the only one of the checkpoint that fits its arrays."""
    own = stored.get(name)
    if own is not None and own.pattern is not None:
        return own.pattern
    fits: list[Pattern] = []
    for pattern in {each.pattern: None for each in stored.values() if each.pattern is not None}:
        if values.dim() == 2 and values.shape[1] % pattern.n == 0:
            try:
                check_arrays(values, indices, pattern, values.shape[1] // pattern.n * pattern.m)
            except ValueError:
                continue
            fits.append(pattern)
    if len(fits) != 1:
        raise ValueError(
            f"the configuration of a checkpoint says the pattern of {name!r}, got {len(fits)} that fit values "
            f"{list(values.shape)} and indices {list(indices.shape)}: save the model again with this Louver"
        )
    return fits[0]


def _unpacked(name: str, values: Tensor, bits: Tensor, shape: Tensor) -> Tensor:
    """The dense weight of a bitmask, see `louver.formats.bitmask`."""
    rows, columns = shape.flatten().tolist()
    if list(bits.shape) != [rows, -(-columns // 8)]:
        raise ValueError(
            f"the bits of {name!r} [{rows}, {columns}] are [{rows}, {-(-columns // 8)}], got {list(bits.shape)}"
        )
    places = torch.arange(8, dtype=torch.uint8, device=bits.device)
    every = ((bits[:, :, None] >> places) & 1).bool().reshape(rows, -1)
    mask, kept = every[:, :columns], values.numel()
    wrong = bool(every[:, columns:].any()) or int(mask.sum()) != kept
    if values.dim() == 2 and not columns % PATTERN.m:
        wrong = wrong or bool((mask.sum(1) != values.shape[1]).any())
    if wrong:
        raise ValueError(
            f"the bits of {name!r} do not keep as many elements as there are values, {kept}: the file is corrupt"
        )
    unsigned = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[values.dtype.itemsize]
    dense = torch.zeros(rows, columns, dtype=unsigned, device=bits.device)
    dense[mask] = values.contiguous().view(unsigned).flatten()
    return dense.view(values.dtype)
