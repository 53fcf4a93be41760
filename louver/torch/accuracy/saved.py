"""A run that goes on after a kill: its state in a folder, written whole or not at all."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def fingerprint(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """A hash of names, types, shapes and values of tensors."""
    found = hashlib.sha256()
    for name, tensor in tensors:
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        found.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy().data)
    return found.hexdigest()


class Saved:
    """The state of a run in a folder. key: what must be equal for the run to go on, by name."""

    def __init__(self, folder: str | os.PathLike[str], name: str, key: Mapping[str, Any]) -> None:
        self._path = Path(folder) / f"{name}.pt"
        self._key = dict(key)

    def load(self) -> dict[str, Any] | None:
        """What was saved last; None if nothing was. Raises ValueError if it is of another run."""
        if not self._path.exists():
            return None
        saved = torch.load(self._path, map_location="cpu", weights_only=True)
        other = [name for name, value in self._key.items() if saved["key"].get(name) != value]
        if other:
            raise ValueError(
                f"resume={str(self._path.parent)!r} goes on with a run of the same model, data and options, got other "
                f"{', '.join(other)}: give another folder, or delete {self._path.name} in it"
            )
        return saved["state"]

    def save(self, state: Mapping[str, Any]) -> None:
        """Replace what was saved."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(f".{os.getpid()}.part")
        try:
            torch.save({"key": self._key, "state": dict(state)}, part)
            os.replace(part, self._path)
        finally:
            part.unlink(missing_ok=True)
