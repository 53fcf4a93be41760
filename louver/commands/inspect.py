"""`louver inspect`: what a file holds, and whether a pattern holds in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from louver.commands.checkpoint import known_element, read_checkpoint, stored_bytes
from louver.formats.check import CheckReport, check
from louver.formats.file import Tensor
from louver.formats.pattern import Pattern
from louver.formats.tensor import SparseTensor
from louver.report.layers import size_text
from louver.report.result import Result
from louver.report.table import NAME, Column, Table


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor. form: "dense" or the pattern of a sparse tensor. report: None where a pattern makes no sense."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    stored: int
    form: str
    report: CheckReport | None


def inspect_file(file: Path, pattern: str) -> Result:
    """The file's tensors. Raises ValueError and OSError for input that cannot be used."""
    parsed = Pattern.of_elements(pattern)
    checkpoint = read_checkpoint(file)
    entries = [examine(name, tensor, parsed) for name, tensor in checkpoint.tensors.items()]
    data = {
        "file": str(file),
        "pattern": str(parsed),
        "tensors": [entry_json(entry) for entry in entries],
        "total_bytes": sum(entry.stored for entry in entries),
        "metadata": dict(checkpoint.metadata),
    }
    described = [f"{key}: {text}" for key, text in checkpoint.metadata.items()]
    title = f"{file.name}: {len(entries)} tensors"
    return Result("inspect", data, [entries_table(entries, parsed, title), *described])


def examine(name: str, tensor: Tensor, pattern: Pattern) -> Entry:
    """Look at one tensor. The pattern is checked along a sparse tensor's own axis, the last of a dense matrix."""
    if isinstance(tensor, SparseTensor):
        report = check(tensor.dense(), pattern, axis=tensor.axis)
        return Entry(name, tensor.dtype.name, tensor.shape, stored_bytes(tensor), str(tensor.pattern), report)
    element = known_element(tensor)
    report = check(tensor, pattern) if element is not None and tensor.ndim >= 2 else None
    dtype = tensor.dtype.name if element is None else element.name
    return Entry(name, dtype, tensor.shape, stored_bytes(tensor), "dense", report)


def histogram_text(report: CheckReport) -> str:
    """Shares of the groups by their number of non-zeros, such as `1: 3% 2: 97%`; empty counts are left out."""
    shares = ((count, amount / report.groups) for count, amount in enumerate(report.histogram) if amount)
    return " ".join(f"{count}: {share:.3g}%" for count, share in ((c, 100 * s) for c, s in shares))


def entry_json(entry: Entry) -> dict[str, Any]:
    """An entry as JSON values; those about the pattern are null where it makes no sense."""
    report = entry.report
    return {
        "name": entry.name,
        "dtype": entry.dtype,
        "shape": list(entry.shape),
        "form": entry.form,
        "bytes": entry.stored,
        "holds": None if report is None else report.ok,
        "groups": None if report is None else report.groups,
        "offending": None if report is None else report.offending,
        "histogram": None if report is None else list(report.histogram),
    }


def entries_table(entries: list[Entry], pattern: Pattern, title: str) -> Table:
    """The entries and the total of their sizes."""
    columns = (
        Column("tensor", least=NAME),
        Column("type"),
        Column("shape", right=True),
        Column("form"),
        Column("stored", right=True),
        Column(f"{pattern} holds", least=9),
        Column("groups by non-zeros", least=9),
    )
    rows: list[tuple[str, ...]] = []
    for entry in entries:
        shape = "×".join(str(size) for size in entry.shape) or "scalar"
        report = entry.report
        holds = "–" if report is None else "yes" if report.ok else f"no: {report.offending} of {report.groups}"
        groups = "–" if report is None else histogram_text(report)
        rows.append((entry.name, entry.dtype, shape, entry.form, size_text(entry.stored), holds, groups))
    stored = size_text(sum(entry.stored for entry in entries))
    return Table(title, columns, rows, footer=(f"{len(entries)} tensors", "", "", "", stored, "", ""))
