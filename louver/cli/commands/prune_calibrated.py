"""`louver prune --method`: prunes a model in a folder by calibration, and tells what it cost."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from louver.cli.commands.notes import note, phases
from louver.formats.regular import Target
from louver.measure.report.layers import layers_json, size_text
from louver.measure.report.table import Column, Result, Table, folded, number, right
from louver.models.pruning import PruneOptions

if TYPE_CHECKING:
    from louver.torch.accuracy.files import Calibration, Pruning
    from louver.torch.report import Row


def prune_calibrated(
    source: Path,
    out: Path,
    options: PruneOptions,
    calibration: Calibration,
    resume: Path | None,
    device: str | None,
    plot: Path | None,
    force: bool,
    workers: str,
) -> Result:
    """`louver prune --method` with its results as tables. Raises ValueError, OSError and ArithmeticError."""
    from louver.torch.accuracy.files import prune_folder

    if plot is not None:
        # Before hours of work.
        importlib.import_module("matplotlib")
        Target.of(plot)
    with phases() as shown:
        done = prune_folder(
            source,
            out,
            options,
            calibration,
            resume=resume,
            device=device,
            force=force,
            workers=workers,
            progress=shown,
        )
    written = done.written
    for line in (*written.notes, *done.notes):
        note(line)
    for line in done.report.warnings:
        note(f"warning: {line}")
    if plot is not None:
        done.report.plot(plot)
        note(f"wrote {plot}")
    form = "values and indices" if options.compressed else "dense with zeros"
    note(f"wrote {written.target} ({form}, {size_text(written.nbytes)})")
    return Result("prune", _json(source, options, calibration, done), [*_tables(done, calibration, options)])


def _json(source: Path, options: PruneOptions, calibration: Calibration, done: Pruning) -> dict[str, Any]:
    written = done.written
    return {
        "source": str(source),
        "target": str(written.target),
        "pattern": str(options.pattern),
        "compressed": options.compressed,
        "method": asdict(calibration.method),
        "copied": len(written.copied),
        "written_bytes": written.nbytes,
        "notes": [*written.notes, *done.notes],
        "warnings": list(done.report.warnings),
        "layers": [asdict(row) for row in done.report],
        "held_out": dict(done.report.held_out),
        "evaluations": [
            {"text": text, "tokens": after.counted, "perplexity": before.perplexity, "pruned": after.perplexity}
            | {"ratio": after.perplexity / before.perplexity, "kl": after.kl, "top1": after.top1}
            for text, (before, after) in done.judged.items()
        ],
        "distillation": None if done.distilled is None else asdict(done.distilled),
        **layers_json(written.rows),
    }


def _tables(done: Pruning, calibration: Calibration, options: PruneOptions) -> list[Table | str]:
    rows = [row for row in done.report if row.done == "pruned"]
    numbers = right("zeros", "error", "damping", "tokens", "s")
    columns = (*folded("layer"), *right("shape"), Column("pattern"), *numbers)
    errors = [row.error for row in rows if row.error is not None]
    mean = sum(errors) / len(errors) if errors else None
    seconds = f"{sum(row.seconds for row in rows):.1f}"
    footer = (f"{len(rows)} of {len(done.report)} layers", "", "", "", number(mean, ".4f"), "", "", seconds)
    copied = len(done.written.copied)
    title = f"{options.pattern} by {calibration.method.name}; error of the outputs, relative; {copied} tensors copied"
    shown: list[Table | str] = [Table(title, columns, [_cells(row) for row in rows], footer=footer)]
    if done.distilled is not None:
        shown += str(done.distilled).splitlines()
    if done.judged:
        columns = (*folded("text"), *right("tokens", "perplexity", "pruned", "ratio", "KL", "same token"))
        shown.append(Table("before and after", columns, [*_judged(done)]))
    return shown


def _cells(row: Row) -> Sequence[str]:
    shape = "×".join(map(str, row.shape))
    numbers = ((row.zeros, ".1%"), (row.error, ".4f"), (row.damping, ".1e"), (row.tokens, ","), (row.seconds, ".1f"))
    return row.name, shape, row.pattern, *(number(value, form) for value, form in numbers)


def _judged(done: Pruning) -> list[Sequence[str]]:
    return [
        (
            text,
            f"{after.counted:,}",
            f"{before.perplexity:.2f}",
            f"{after.perplexity:.2f}",
            f"{after.perplexity / before.perplexity:.3f}",
            number(after.kl, ".4f"),
            number(after.top1, ".1%"),
        )
        for text, (before, after) in done.judged.items()
    ]
