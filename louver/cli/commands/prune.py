"""`louver prune`: writes a pruned copy of a checkpoint."""

from __future__ import annotations

from pathlib import Path

from louver.cli.commands.notes import note, progress
from louver.measure.report.layers import layers_json, layers_table, size_text
from louver.measure.report.result import Result
from louver.models.prune_checkpoint import PruneOptions, prune_checkpoint


def prune_file(source: Path, out: Path, options: PruneOptions) -> Result:
    """`prune_checkpoint` with its results as a table. Raises ValueError and OSError for unusable input."""
    with progress("pruning") as shown:
        done = prune_checkpoint(source, out, options, shown)
    for line in done.notes:
        note(line)
    form = "values and indices" if options.compressed else "dense with zeros"
    note(f"wrote {done.target} ({form}, {size_text(done.nbytes)})")
    data = {
        "source": str(source),
        "target": str(done.target),
        "pattern": str(options.pattern),
        "compressed": options.compressed,
        "copied": done.copied,
        "written_bytes": done.nbytes,
        **layers_json(done.rows),
    }
    return Result(
        "prune", data, [layers_table(done.rows, f"{options.pattern} by magnitude; {done.copied} tensors copied")]
    )
