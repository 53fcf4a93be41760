"""What a walk has finished, in a folder: a run that was killed goes on behind its last finished block."""

# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from louver.torch.accuracy.walk import Done
from louver.torch.report import Row

_SAMPLE: Final = 4096
"""Elements of each tensor that its digest reads."""


class Resume:
    """A folder with a file for each finished block, written at once or not at all.

    key: what must be equal for a run to go on, by what it is: it is kept in a file. Raises ValueError, with the
    names of what differs, for a folder of another run.
    """

    def __init__(self, folder: str | os.PathLike[str], key: Mapping[str, str]) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / "run.key"
        if path.exists():
            before: dict[str, str] = torch.load(path, weights_only=True)
            other = [name for name in {**before, **key} if before.get(name) != key.get(name)]
            if other:
                raise ValueError(
                    f"resume goes on with the same call, got {self._folder} of a run with another {', another '.join(other)}: "
                    "repeat that call with the dense model, remove the folder, or give another one"
                )
        else:
            write(path, dict(key))
        self._digest = ""

    def finished(self, name: str, block: nn.Module) -> Done | None:
        """What an earlier run made of block `name`. Raises ValueError if the block was another one then."""
        self._digest = digest([*block.named_parameters(), *block.named_buffers()])
        path = self._path(name)
        if not path.exists():
            return None
        about, weights = self._read(path, name, block)
        if about["digest"] != self._digest:
            raise ValueError(
                f"resume needs the weights that the run began with, got others in {name}: load the dense model again"
            )
        rows = {row: _row(fields) for row, fields in json.loads(about["rows"]).items()}
        return Done(weights=weights, rows=rows)

    def keep(self, name: str, done: Done) -> None:
        """Save what was made of the block that `finished` was asked for last."""
        self._write(self._path(name), name, done)

    def _read(self, path: Path, name: str, block: nn.Module) -> tuple[Mapping[str, str], dict[str, Tensor]]:
        """What `_about` said, and the block's new weights."""
        device = next((p.device for p in block.parameters()), torch.device("cpu"))
        saved: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        return saved, saved["weights"]

    def _write(self, path: Path, name: str, done: Done) -> None:
        write(path, {**self._about(done), "weights": done.weights})

    def _about(self, done: Done) -> dict[str, str]:
        rows = json.dumps({row: asdict(fields) for row, fields in done.rows.items()})
        return {"digest": self._digest, "rows": rows}

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.block"


def digest(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """A short name for tensors: of their names, types, shapes and a sample of their elements. Cheap, so no proof."""
    total = hashlib.sha256()
    for name, tensor in tensors:
        total.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        if tensor.is_meta or not tensor.numel():
            continue
        flat = tensor.detach().reshape(-1)
        sample = flat[:: max(1, len(flat) // _SAMPLE)].contiguous().view(torch.uint8)
        total.update(sample.cpu().numpy().tobytes())
    return total.hexdigest()


def _row(fields: dict[str, Any]) -> Row:
    named: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    return Row(**named)


def write(path: Path, content: Any) -> None:
    """Write a file that `torch.load` reads, as a whole or not at all."""
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
