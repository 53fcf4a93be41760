"""Save and load sparse and dense tensors in a safetensors file; docs/files.md describes the format."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from louver.formats.checkpoint import open_checkpoint
from louver.formats.dynamo import opaque
from louver.formats.regular import Target
from louver.formats.schema import KEY, MARK, Tensor, form_of
from louver.formats.tensor import SparseTensor
from louver.formats.torch_tensors import host_array, is_torch_tensor
from louver.formats.writer import writing


@opaque
def save(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write sparse tensors and dense arrays to a safetensors file. A failed write changes nothing.

    path: may be a symlink. The mode and the owner of an existing file are kept.
    tensors: also PyTorch tensors and parameters, of any type that safetensors has; `load` gives NumPy arrays.
    metadata: text to store with Louver's own, such as {"format": "pt"}. "louver" and "louver_crc32" are reserved keys.
    Tensors on a GPU are copied to the host one at a time. Raises ValueError for tensors, names and metadata that a file
    cannot hold, for two tensors with the same stored name, and for other than regular files.
    """
    if not isinstance(cast("object", tensors), Mapping):
        raise TypeError(
            f'save takes tensors by name, got {type(tensors).__name__}: give {{"w": …}}, a name for each tensor'
        )
    for key in (KEY, MARK):
        if key in (metadata or {}):
            raise ValueError(f"the metadata key {key!r} is Louver's own: leave it out")
    forms = {name: form_of(name, tensor) for name, tensor in tensors.items()}
    target = Target.of(path)
    with target.replaced() as token, writing(target, token, forms, metadata or {}) as file:
        for name, tensor in tensors.items():
            file.write(name, [_arrays(tensor)])
        file.seal(forms)


def _arrays(tensor: Tensor) -> tuple[NDArray[Any], ...]:
    if is_torch_tensor(tensor):
        return (host_array(cast("Any", tensor).cpu()),)
    if not isinstance(tensor, SparseTensor):
        return (np.asarray(tensor),)
    host = tensor.to("cpu")
    return host.values, host.indices


@opaque
def load(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name: `SparseTensor` for those that Louver compressed, else arrays.

    path: a safetensors file, the index of a sharded checkpoint (`*.index.json`), or a folder with one of these.
    Any safetensors file can be read; a file that Louver did not write has dense arrays only.
    Raises FormatError (a ValueError) for a file that is truncated, corrupt or of an unknown version.
    """
    tensors: dict[str, Tensor] = {}
    for file in open_checkpoint(path).files:
        with file.open() as reader:
            tensors |= {name: reader.read(tensor) for name, tensor in file.tensors.items()}
    return tensors
