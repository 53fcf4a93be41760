"""What a walk over a folder made of each block, in files: each tensor as the checkpoint stores it, under its name there."""

# PyTorch's stubs leave many types unknown.
# pyright: basic

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

import louver
from louver.formats.checkpoint import open_checkpoint
from louver.formats.torch_tensors import of_host
from louver.models.given import found
from louver.torch.accuracy.folder import Folder
from louver.torch.accuracy.requantize import requantized
from louver.torch.accuracy.resume import Resume, digest, row_from
from louver.torch.accuracy.walk import Done

LOSS: Final = 1e-3
"""Relative rounding error of a weight, above which its row names it."""


class Written(Resume):
    """The files of finished blocks, one a block.

    Blocks are named as in the model. What is kept of a block is what its file stands for: elements rounded to the
    checkpoint's types, and scales.
    """

    def __init__(self, path: str | os.PathLike[str], key: Mapping[str, str], folder: Folder) -> None:
        super().__init__(path, key)
        self._model = folder

    def finished(self, name: str, block: nn.Module) -> Done | None:
        self._digest = digest(block.named_parameters())
        path = self._path(name)
        if not path.exists():
            return None
        saved = open_checkpoint(path).metadata
        self._check(name, saved["digest"])
        rows = {row: row_from(fields) for row, fields in json.loads(saved["rows"]).items()}
        return Done(weights=self._standing(name), rows=rows)

    def keep(self, name: str, done: Done) -> None:
        losses: dict[str, float] = {}
        arrays: dict[str, Tensor] = {}
        with torch.no_grad():
            for tensor, new in self._model.back(name, done.weights).items():
                made, losses[tensor] = self._model.stored(tensor, new)
                arrays |= made
        for parameter in done.weights:
            loss = max(losses[tensor] for tensor in self._model.behind[f"{name}.{parameter}"])
            if loss > LOSS:
                row = done.rows[parameter]
        rows = json.dumps({row: asdict(fields) for row, fields in done.rows.items()})
        louver.save(self._path(name), arrays, {"digest": self._digest, "rows": rows})
        if any(losses.values()):
            done.weights |= self._standing(name)
