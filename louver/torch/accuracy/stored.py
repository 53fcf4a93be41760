"""Tensors in files that all machines of a run see: what passes between its processes, with checksums."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import louver
from louver.formats.checkpoint import open_checkpoint
from louver.formats.torch_tensors import of_host
from louver.models.shards import RULE
from louver.models.workers import WorkersError


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in a file, under a name there."""

    path: Path
    name: str

    def to(self, device: torch.device) -> Tensor:
        """The tensor. Raises WorkersError if this machine has no such file, and FormatError for damage."""
        try:
            (file,) = open_checkpoint(self.path).files
            with file.open() as reader:
                read = of_host(np.asarray(reader.read(file.tensors[self.name])))
        except FileNotFoundError as error:
            raise WorkersError(f"{self.path} is not on this machine: {RULE}") from error
        # Sums may round otherwise where memory begins elsewhere: PyTorch's own does as in a run without files.
        return torch.empty_like(read, device=device).copy_(read)


def store(folder: Path, tensors: Mapping[str, Tensor]) -> dict[str, Stored]:
    """Write tensors to a new file. Raises WorkersError if this machine has no such folder, and OSError for a full disk."""
    if not tensors:
        return {}
    if not folder.is_dir():
        raise WorkersError(f"{folder} is not on this machine: {RULE}")
    # A worker that counts as lost may still write: each attempt has a file of its own.
    path = folder / f"{secrets.token_hex(8)}.safetensors"
    content: dict[str, Any] = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    louver.save(path, content)
    return {name: Stored(path, name) for name in tensors}
