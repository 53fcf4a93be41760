"""Distillation of a pruned folder: both models in memory, and what training changed in files."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import louver
from louver.models.given import Given, found
from louver.torch.accuracy.distill import distill_
from louver.torch.accuracy.distill_report import Distillation, Point
from louver.torch.accuracy.folder import Folder


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
