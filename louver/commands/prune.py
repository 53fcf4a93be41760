"""`louver prune`: a checkpoint in, a pruned one out."""

from __future__ import annotations

from pathlib import Path

from louver.commands.checkpoint import prune_weights, read_checkpoint, selected
from louver.commands.notes import note, track
from louver.commands.selection import Selection
from louver.formats.file import Tensor, save
from louver.formats.pattern import Pattern
from louver.report.layers import LayerRow, layers_json, layers_table
from louver.report.result import Result


def prune_file(
    source: Path,
    target: Path,
    pattern: str,
    dtype: str | None,
    selection: Selection,
    *,
    compressed: bool,
    force: bool,
) -> Result:
    """Prune the selected weights of `source` along their last axis and write all tensors to `target`, or nothing.

    compressed: write pruned weights as values and indices instead of dense with zeros. force: `target` may exist.
    Raises ValueError and OSError for input that cannot be used.
    """
    parsed = Pattern.of_elements(pattern)
    check_target(target, force)
    checkpoint = read_checkpoint(source)
    tensors: dict[str, Tensor] = dict(checkpoint.tensors)
    names = selected(tensors, selection)
    rows: list[LayerRow] = []
    work = prune_weights(checkpoint.tensors, names, parsed, dtype)
    for name, weight in track(work, "pruning", len(names)):
        tensors[name] = weight.sparse if compressed else weight.dense
        rows.append(weight.row)
    save(target, tensors, checkpoint.metadata)
    note(f"wrote {target} ({'values and indices' if compressed else 'dense with zeros'})")
    copied = len(tensors) - len(rows)
    data = {
        "source": str(source),
        "target": str(target),
        "pattern": str(parsed),
        "compressed": compressed,
        "copied": copied,
        **layers_json(rows),
    }
    return Result("prune", data, [layers_table(rows, f"{parsed} by magnitude; {copied} tensors copied")])


def check_target(target: Path, force: bool) -> None:
    """Refuse to write over a file unasked, or into a folder that is not there."""
    if target.exists() and not force:
        raise ValueError(f"{target} exists: choose another name, or replace it with --force")
    if not target.parent.is_dir():
        raise ValueError(f"{target.parent} is no folder: make it first")
