"""What a walk over a folder made of each block, in files: each tensor as the checkpoint stores it, under its name there."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

import louver
from louver.formats.checkpoint import open_checkpoint
from louver.models.pruning import Given, found
from louver.torch.accuracy.blocks import patched, run
from louver.torch.accuracy.distill import distill_
from louver.torch.accuracy.distill_report import Distillation, Point
from louver.torch.accuracy.folder import Folder
from louver.torch.accuracy.resume import Resume
from louver.torch.accuracy.scores import logits_of
from louver.torch.accuracy.streams import Batch, Streams
from louver.torch.accuracy.text import Evaluation, check_tokens, chunks, evaluation_of, sums_of
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


def evaluate_folder(folder: Folder, given: Mapping[str, Given], tokens: Tensor) -> tuple[Evaluation, Evaluation]:
    """How the folder's model predicts tokens [rows, length], and how it does with given tensors in the place of its own.

    The second one is compared with the first. See `evaluate`.
    """
    text = check_tokens(tokens).long().to(folder.device)
    model, names = folder.model, folder.chain.names
    parts = [Batch(rows, "", False) for rows in chunks(text, folder.vocabulary, folder.device)]
    with torch.no_grad():
        streams = Streams(model, folder.chain, folder, parts, folder.device, dense=True)
        for index, name in enumerate(names[:-1]):
            block = folder.load(index)
            streams.advance(block, folder.over(name, given))
            folder.store(index, block)
        last = len(names) - 1
        block = folder.load(last)
        weights = folder.over(names[last], given)
        sums = torch.zeros(2, 3, dtype=torch.float64, device=folder.device)
        for batch, part in enumerate(parts):
            dense = run(block, {}, streams.arguments(batch, dense=True))
            dense = _scores(folder, part.rows, dense)
            scores = run(block, weights, streams.arguments(batch))
            with folder.outside(given):
                scores = _scores(folder, part.rows, scores)
            sums[0] += sums_of(part.rows, dense, None)
            sums[1] += sums_of(part.rows, scores, dense)
        folder.store(last, block)
    return evaluation_of(sums[0], text, False), evaluation_of(sums[1], text, True)


def _scores(folder: Folder, rows: Tensor, result: Any) -> Tensor:
    """The model's scores for rows, from what its last block gave."""
    blocks = [folder.model.get_submodule(name) for name in folder.chain.names]
    with patched(blocks, lambda index, args, kwargs: result):
        return logits_of(folder.model, rows)


def distill_folder(
    dense: Folder,
    pruned: Folder,
    given: Mapping[str, Given],
    data: Mapping[str, Tensor] | None,
    minutes: float,
    work: Path,
    progress: Callable[[float], object],
) -> tuple[dict[str, Given], Distillation]:
    """Train the folder's model with given tensors to predict as it does without them. See `distill_`.

    dense, pruned: the same folder twice. work: a folder that keeps the state and the result; the same call goes on.
    Returns the tensors with those that training changed, and the report. Raises MemoryError if it does not fit.
    """
    # Another call finds another folder.
    work = work / f"distilled-{_digest(given, data, minutes)}"
    work.mkdir(parents=True, exist_ok=True)
    report = work / "report.json"
    paths = {name: work / f"{name or 'outside'}.block" for name in ("", *pruned.chain.names)}
    if not report.exists():
        with dense.whole() as teacher, pruned.whole() as model:
            with torch.no_grad():
                for name in pruned.chain.names:
                    parameters = dict(model.get_submodule(name).named_parameters())
                    for each, weight in pruned.over(name, given).items():
                        parameters[each].copy_(weight)
            done = distill_(
                model,
                data,
                teacher=teacher,
                minutes=minutes,
                resume=work / "state",
                device=pruned.device,
                progress=lambda point: progress(_share(point, minutes)),
            )
            for name, path in paths.items():
                with torch.no_grad():
                    arrays, _ = pruned.back(name, pruned.own_parameters(name), changed=True)
                louver.save(path, arrays)
        part = report.with_suffix(".part")
        part.write_text(json.dumps(asdict(done)), encoding="utf-8")
        part.replace(report)
    fields: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    fields |= {"curve": tuple(Point(**point) for point in fields["curve"]), "notes": tuple(fields["notes"])}
    return {**given, **found(paths.values())}, Distillation(**fields)


def _digest(given: Mapping[str, Given], data: Mapping[str, Tensor] | None, minutes: float) -> str:
    total = hashlib.sha256(repr((minutes, sorted((name, each.crc32) for name, each in given.items()))).encode())
    for name, rows in (data or {}).items():
        total.update(f"{name} {list(rows.shape)}".encode() + rows.cpu().contiguous().numpy().tobytes())
    return total.hexdigest()[:16]


def _share(point: Point, minutes: float) -> float:
    return min(1.0, point.seconds / (60 * minutes))
