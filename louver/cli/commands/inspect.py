"""`louver inspect`: lists the tensors of a file, and whether a pattern holds for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from louver.formats.check import CheckReport, check, joined
from louver.formats.checkpoint import StoredTensor, TensorReader, open_checkpoint
from louver.formats.container import DTYPES
from louver.formats.pattern import Pattern
from louver.formats.schema import BitmaskForm, DenseForm, RawForm, SparseForm, Tensor
from louver.formats.tensor import SparseTensor
from louver.measure.report.layers import size_text
from louver.measure.report.table import Column, Result, Table, folded, right
from louver.models.analyze import analyze
from louver.models.roles import Role, TensorFacts
from louver.models.steps import known_element, regions


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor. form: "dense", "bytes", "bitmask" or the pattern of a sparse tensor. axis, report: the axis along which
    the pattern was checked, and what was found; None if no pattern applies.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    stored: int
    form: str
    role: Role
    axis: int | None
    report: CheckReport | None


def inspect_file(file: Path, pattern: str) -> Result:
    """The file's tensors. Raises ValueError and OSError for unusable input."""
    parsed = Pattern.parse(pattern)
    checkpoint = open_checkpoint(file)
    facts = analyze(file)
    notes = (*checkpoint.notes, *facts.notes)
    entries: list[Entry] = []
    for part in checkpoint.files:
        with part.open() as reader:
            entries += [examine(reader, tensor, facts.tensors[name], parsed) for name, tensor in part.tensors.items()]
    data = {
        "file": str(file),
        "pattern": str(parsed),
        "tensors": [entry_json(entry) for entry in entries],
        "total_bytes": sum(entry.stored for entry in entries),
        "metadata": checkpoint.metadata,
        "notes": list(notes),
    }
    described = [f"{key}: {text}" for key, text in checkpoint.metadata.items()]
    files = f" in {len(checkpoint.files)} files" if checkpoint.index is not None else ""
    title = f"{checkpoint.path.name}: {len(entries)} tensors{files}"
    return Result("inspect", data, [entries_table(entries, parsed, title), *described, *notes])


def examine(reader: TensorReader, tensor: StoredTensor, facts: TensorFacts, pattern: Pattern) -> Entry:
    """Read one tensor in pieces. The pattern is checked along the axis that products contract, or a sparse tensor's own.
    A tensor of unknown use is checked along its last axis.
    """
    form = tensor.form
    axis = facts.axis if facts.role is not Role.UNKNOWN or len(form.shape) < 2 else len(form.shape) - 1
    if isinstance(form, SparseForm):
        dtype, kind, axis = form.dtype.name, str(form.pattern), form.axis
    elif isinstance(form, RawForm):
        dtype, kind, axis = form.dtype, "bytes", None
    else:
        element = known_element(form)
        dtype = DTYPES[form.dtype].name if element is None else element.name
        kind = "bitmask" if isinstance(form, BitmaskForm) else "dense"
        axis = len(form.shape) - 1 if kind == "bitmask" else axis if element is not None else None
    report = None
    if axis is not None:
        report = joined(reports(reader, tensor, axis, pattern), pattern)
    else:
        reader.verify(tensor)
    return Entry(tensor.name, dtype, form.shape, tensor.nbytes, kind, facts.role, axis, report)


def reports(reader: TensorReader, tensor: StoredTensor, axis: int, pattern: Pattern) -> Iterator[CheckReport]:
    """Reports on the pieces of a tensor along an axis."""
    if axis == len(tensor.form.shape) - 1 or not isinstance(tensor.form, DenseForm):
        yield from (check(dense_of(piece), pattern, listed=0) for piece in reader.pieces(tensor, pattern))
        return
    reader.verify(tensor)
    for region in regions(tensor.form.shape, axis, pattern, by_rows=False):
        yield check(region.read(reader, tensor), pattern, axis=region.axis, listed=0)


def dense_of(tensor: Tensor) -> NDArray[Any]:
    """The tensor as a dense array."""
    return tensor.dense() if isinstance(tensor, SparseTensor) else tensor


def histogram_text(report: CheckReport) -> str:
    """Shares of the groups by their number of non-zeros, such as `1: 3% 2: 97%`, without empty counts."""
    shares = ((count, amount / report.groups) for count, amount in enumerate(report.histogram) if amount)
    return " ".join(f"{count}: {share:.3g}%" for count, share in ((c, 100 * s) for c, s in shares))


def entry_json(entry: Entry) -> dict[str, Any]:
    """An entry as JSON values. Values about the pattern are null if none applies."""
    report = entry.report
    found: dict[str, Any] = dict.fromkeys(("holds", "groups", "offending", "histogram"))
    if report is not None:
        found = {
            "holds": report.ok,
            "groups": report.groups,
            "offending": report.offending,
            "histogram": list(report.histogram),
        }
    facts = {"name": entry.name, "dtype": entry.dtype, "shape": list(entry.shape)}
    used = {"role": entry.role.value, "axis": entry.axis}
    return {**facts, "form": entry.form, "bytes": entry.stored, **used, **found}


def entries_table(entries: list[Entry], pattern: Pattern, title: str) -> Table:
    """The entries and the total of their sizes."""
    facts = (*folded("tensor"), Column("type"), *right("shape"), Column("form"), Column("role"))
    found = (Column(f"{pattern} holds", least=9), Column("groups by non-zeros", least=9))
    columns = (*facts, *right("axis", "stored"), *found)
    rows: list[tuple[str, ...]] = []
    for entry in entries:
        shape = "×".join(str(size) for size in entry.shape) or "scalar"
        report = entry.report
        axis = "–" if entry.axis is None else str(entry.axis)
        holds = "–" if report is None else "yes" if report.ok else f"no: {report.offending} of {report.groups}"
        groups = "–" if report is None else histogram_text(report)
        rows.append(
            (entry.name, entry.dtype, shape, entry.form, entry.role, axis, size_text(entry.stored), holds, groups)
        )
    stored = size_text(sum(entry.stored for entry in entries))
    return Table(title, columns, rows, footer=(f"{len(entries)} tensors", "", "", "", "", "", stored, "", ""))
