"""What a walk over a folder made of each block, in files: each tensor as the checkpoint stores it, under its name there."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

import louver
from louver.formats.checkpoint import open_checkpoint
from louver.models.given import found
from louver.torch.accuracy.folder import Folder
from louver.torch.accuracy.resume import Resume
from louver.torch.accuracy.walk import Done

LOSS: Final = 1e-3
"""Relative rounding error of a weight, above which its row tells it."""


class Written(Resume):
    """Keeps finished blocks in files of the checkpoint's own tensors, one file a block.

    What is kept of a block is what its file stands for: rounded to the checkpoint's types and scales. So the blocks
    behind it are pruned by the inputs that the written model gives.
    """

    def __init__(self, path: str | os.PathLike[str], folder: Folder, key: Mapping[str, str]) -> None:
        super().__init__(path, key)
        self._model = folder

    def files(self) -> list[Path]:
        """The files of the finished blocks, in their order."""
        return [path for path in map(self._path, self._model.chain.names) if path.exists()]

    def _read(self, path: Path, name: str, block: nn.Module) -> tuple[Mapping[str, str], dict[str, Tensor]]:
        return open_checkpoint(path).metadata, self._model.over(name, found([path]))

    def _write(self, path: Path, name: str, done: Done) -> None:
        with torch.no_grad():
            arrays, losses = self._model.back(name, done.weights)
        for parameter, loss in losses.items():
            target = f"{name}.{parameter}"
            row = done.rows.get(target) or done.rows.get(target.removesuffix(".weight"))
            if loss > LOSS and row is not None:
                text = f"rounding to the checkpoint's type adds {loss:.1%}"
                done.rows[row.name] = replace(row, warnings=(*row.warnings, text))
        louver.save(path, arrays, self._about(done))
        if any(losses.values()):
            done.weights |= self._model.over(name, found([path]))
