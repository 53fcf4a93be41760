"""`louver prune`, `louver compress` and `louver decompress`: write a checkpoint in another form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from louver.cli.commands.notes import note, progress
from louver.formats.checkpoint import open_checkpoint
from louver.measure.report.layers import layers_json, layers_table, size_text
from louver.measure.report.table import Column, Result, Table, folded
from louver.models.analyze import analyze
from louver.models.compressing import CompressOptions, DecompressOptions
from louver.models.evidence.config import read_config
from louver.models.pruning import PruneOptions, prune_plan
from louver.models.rewrite import Request, Rewritten, rewrite
from louver.models.roles import TensorFacts

RUINED = "magnitude alone ruins a language model: prune it with --method sparsegpt, and measure it with --eval FILE"


def prune_file(source: Path, out: Path, options: PruneOptions, force: bool, workers: str) -> Result:
    """`louver prune` with its results as a table. Raises ValueError and OSError for unusable input."""
    form = "values and indices" if options.compressed else "dense with zeros"
    facts = {"pattern": str(options.pattern), "compressed": options.compressed}
    done = _rewritten("pruning", source, out, options, force, workers)
    if _is_language_model(source):
        done = replace(done, notes=(*done.notes, RUINED))
    return _result("prune", source, done, form, f"{options.pattern} by magnitude", facts)


def _is_language_model(source: Path) -> bool:
    """Whether the folder of a checkpoint describes a causal language model, by its architecture's name."""
    config, _ = read_config(open_checkpoint(source).path.parent)
    names = config.fields.get("architectures")
    return isinstance(names, list) and any(
        "CausalLM" in str(n) or "LMHead" in str(n) for n in cast("list[object]", names)
    )


def compress_file(source: Path, out: Path, options: CompressOptions, force: bool, workers: str) -> Result:
    """`louver compress` with its results as a table. Raises ValueError and OSError for unusable input."""
    facts = {"pattern": str(options.pattern), "to": options.to}
    done = _rewritten("compressing", source, out, options, force, workers)
    return _result("compress", source, done, options.to, f"{options.pattern}, compressed", facts)


def decompress_file(source: Path, out: Path, force: bool, workers: str) -> Result:
    """`louver decompress` with its results as a table. Raises ValueError and OSError for unusable input."""
    done = _rewritten("decompressing", source, out, DecompressOptions(), force, workers)
    return _result("decompress", source, done, "dense with zeros", "decompressed", {})


def _rewritten(verb: str, source: Path, out: Path, request: Request, force: bool, workers: str) -> Rewritten:
    with progress(verb) as shown:
        return rewrite(source, out, request, force=force, workers=workers, progress=shown)


def _result(kind: str, source: Path, done: Rewritten, form: str, title: str, facts: Mapping[str, Any]) -> Result:
    for line in done.notes:
        note(line)
    for row in done.rows:
        if row.nonfinite:
            note(f"warning: {row.name} holds {row.nonfinite} infinities or NaNs: they count as the largest magnitudes")
    dropped = sum(row.negative_zeros for row in done.rows)
    if dropped:
        note(f"{dropped} elements -0.0 that are not stored became +0.0")
    note(f"wrote {done.target} ({form}, {size_text(done.nbytes)})")
    data = {
        "source": str(source),
        "target": str(done.target),
        **facts,
        "copied": len(done.copied),
        "written_bytes": done.nbytes,
        "notes": list(done.notes),
        **layers_json(done.rows),
    }
    return Result(kind, data, [layers_table(done.rows, f"{title}; {len(done.copied)} tensors copied")])


def facts_file(source: Path, options: PruneOptions) -> Result:
    """What `louver prune` would do with each tensor, and why. Raises ValueError as `louver prune`, but not for no weights."""
    facts = analyze(source, options.choice, options.pattern)
    checkpoint = open_checkpoint(source)
    notes = (*checkpoint.notes, *(prune_plan(checkpoint, facts, options).notes if facts.pruned else facts.notes))
    for line in notes:
        note(line)
    rows = [_cells(each) for each in facts.tensors.values()]
    columns = (*folded("tensor"), *map(Column, ("shape", "role", "decision", "reason")))
    footer = (f"{len(rows)} tensors", "", "", "", f"{len(facts.pruned)} are pruned")
    data = {
        "source": str(source),
        "pattern": str(options.pattern),
        "notes": list(notes),
        "tensors": [_fields(each) for each in facts.tensors.values()],
    }
    return Result("facts", data, [Table(f"{source}: {options.pattern}", columns, rows, footer=footer)])


def _cells(facts: TensorFacts) -> tuple[str, ...]:
    shape = "×".join(str(size) for size in facts.form.shape) or "scalar"
    decision = f"pruned along axis {facts.axis}" if facts.prune else "left"
    return facts.name, shape, facts.role, decision, f"{facts.reason} ({facts.evidence})"


def _fields(facts: TensorFacts) -> dict[str, Any]:
    return {
        "name": facts.name,
        "shape": list(facts.form.shape),
        "role": facts.role.value,
        "axis": facts.axis,
        "prune": facts.prune,
        "reason": facts.reason,
        "evidence": facts.evidence.value,
        "ties": list(facts.ties),
        "scale": None if facts.scale is None else facts.scale.name,
    }
