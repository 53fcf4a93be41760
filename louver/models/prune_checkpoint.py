"""`louver prune` for checkpoints of any size: works in pieces, resumes after an interruption, writes all files or none."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver
from louver.formats.checkpoint import Checkpoint, StoredTensor, TensorReader, open_checkpoint
from louver.formats.compress import compress
from louver.formats.container import type_name
from louver.formats.dtypes import element_type
from louver.formats.index import Index
from louver.formats.pattern import Pattern
from louver.formats.regular import TOKEN_DIGITS, Target
from louver.formats.schema import DenseForm, Form, SparseForm
from louver.formats.select import Norm
from louver.formats.writer import FileWriter, arranged, writing
from louver.models.journal import Journal, Run, Written, finish_interrupted, journal_path
from louver.models.layer_row import LayerRow
from louver.models.selection import Selection
from louver.models.weights import layer_row, prune_piece, selected, written_element

Progress = Callable[[float], object]
"""Called with the finished share of the bytes."""


@dataclass(frozen=True, slots=True)
class PruneOptions:
    """Which tensors are pruned, and the form of the output.

    dtype: element type of pruned weights; None: unchanged, unless compressed (see `COMPRESSED`). compressed: write
    values and indices instead of dense tensors with zeros. force: replace files. norm: see `louver.prune`.
    """

    pattern: Pattern
    dtype: str | None
    selection: Selection
    compressed: bool
    force: bool
    norm: Norm = "l2"

    def form(self, form: DenseForm) -> Form:
        element = written_element(form, self.dtype, self.compressed)
        if self.compressed:
            return SparseForm(self.pattern, element, form.shape, 1)
        return DenseForm(type_name(element.numpy), form.shape)


@dataclass(frozen=True, slots=True)
class PruneResult:
    """The written files. target: file or index. rows: pruned weights. copied: other tensors. nbytes: of all tensors.
    notes: what a user should know about the input.
    """

    target: Path
    rows: tuple[LayerRow, ...]
    copied: int
    nbytes: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Output:
    """Files to write. names: in `folder`, with the index last if there is one. forms: of each source's tensors."""

    folder: Path
    names: tuple[str, ...]
    forms: tuple[Mapping[str, Form], ...]
    index: Index | None


def prune_checkpoint(source: Path, out: Path, options: PruneOptions, progress: Progress) -> PruneResult:
    """Prune the selected weights of a checkpoint along their last axis, and write all its tensors.

    out: a file, or a folder for files of the source's names. For a sharded checkpoint: the index, or a folder, which is
    made. It may be the source. The same call continues an interrupted run. Raises ValueError and OSError.
    """
    request = _digits(
        louver.__version__, str(source.resolve()), str(out.resolve()), repr(replace(options, force=False))
    )
    finished = finish_interrupted(out)
    checkpoint = open_checkpoint(source)
    is_folder = out.is_dir() or (checkpoint.index is not None and out.suffix != ".json")
    target = out / checkpoint.path.name if is_folder else out
    key = _digits(request, repr(checkpoint.index), *(repr(file.identity) for file in checkpoint.files))
    for journal in finished:
        assert journal.run is not None
        # A file that replaced its source has another source now.
        in_place = journal.run.request == request and checkpoint.path.samefile(target)
        if in_place or journal.run.key == key:
            return _result(target, journal, checkpoint)
    output = _output(checkpoint, target, options)
    made = _make_folder(checkpoint, output.folder)
    journal: Journal | None = None
    try:
        targets = [Target.of(output.folder / name) for name in output.names]
        _check_targets(targets, options.force)
        journal = Journal(journal_path(output.folder, output.names[-1]))
        journal.begin(Run(key, request, output.names))
        _write_files(checkpoint, output, targets, options, journal, progress)
        journal.finish()
    except Exception:
        if journal is not None and journal.complete:
            # Some files have their final names; the rest is left for the next run.
            journal.close(keep=True)
            raise
        # The next run would fail in the same way. Only an interrupted run can continue.
        if journal is not None:
            journal.remove_parts()
            journal.close(keep=False)
        if made:
            output.folder.rmdir()
        raise
    return _result(target, journal, checkpoint)


def _output(checkpoint: Checkpoint, target: Path, options: PruneOptions) -> _Output:
    """The output of the run. Raises ValueError if no weight is selected, or if two tensors need one name."""
    folder, name = target.parent, target.name
    unlisted = set(checkpoint.unlisted)
    listed = {name: tensor.form for name, tensor in checkpoint.tensors.items() if name not in unlisted}
    chosen = set(selected(listed, options.selection))
    forms = tuple(
        {tensor.name: _written_form(tensor, chosen, options) for tensor in file.tensors.values()}
        for file in checkpoint.files
    )
    if checkpoint.index is None:
        arranged(forms[0])
        return _Output(folder, (name,), forms, None)
    shards = [file.path.name for file in checkpoint.files]
    weight_map: dict[str, str] = {}
    total = 0
    for shard, tensors in zip(shards, forms, strict=True):
        arranged(tensors)
        for stored, entry in arranged({name: form for name, form in tensors.items() if name not in unlisted}).items():
            if weight_map.setdefault(stored, shard) != shard:
                raise ValueError(f"two tensors need the stored name {stored!r}: --exclude one")
            total += entry.nbytes
    index = Index({**checkpoint.index.metadata, "total_size": total}, weight_map)
    return _Output(folder, (*shards, name), forms, index)


def _written_form(tensor: StoredTensor, chosen: set[str], options: PruneOptions) -> Form:
    if tensor.name not in chosen:
        return tensor.form
    assert isinstance(tensor.form, DenseForm)
    return options.form(tensor.form)


def _make_folder(checkpoint: Checkpoint, folder: Path) -> bool:
    """Make the folder of a sharded checkpoint. Returns whether it is new."""
    if checkpoint.index is None or folder.is_dir():
        return False
    folder.mkdir()
    return True


def _check_targets(targets: Sequence[Target], force: bool) -> None:
    """Refuse to replace a file without --force."""
    for target in targets:
        if target.status is not None and not force:
            raise ValueError(f"{target.path} exists: choose another name, or replace it with --force")


def _write_files(
    checkpoint: Checkpoint,
    output: _Output,
    targets: Sequence[Target],
    options: PruneOptions,
    journal: Journal,
    progress: Progress,
) -> None:
    assert journal.run is not None
    key = journal.run.key
    for target in targets:
        target.remove_stale(keep=key)
    total = sum(tensor.nbytes for tensor in checkpoint.tensors.values()) or 1
    done = 0
    for source, target, forms in zip(checkpoint.files, targets, output.forms, strict=False):
        with source.open() as reader, writing(target, key, forms, source.metadata) as writer:
            for tensor in source.tensors.values():
                written = journal.written.get(tensor.name)
                if written is None or not writer.has(tensor.name, written.crc32):
                    journal.add(_write_tensor(reader, tensor, writer, forms[tensor.name], options))
                done += tensor.nbytes
                progress(done / total)
            writer.seal({name: _counted(form, journal.written[name]) for name, form in forms.items()})
    if output.index is not None:
        targets[-1].fill_part(key, output.index.text().encode())
    for source in checkpoint.files:
        with source.open():
            """Raises an error if the file changed since it was read."""


def _write_tensor(
    reader: TensorReader, tensor: StoredTensor, writer: FileWriter, form: Form, options: PruneOptions
) -> Written:
    """Prune a tensor to its new form, or copy it."""
    name = tensor.name
    if form is tensor.form:
        writer.write(name, reader.chunks(tensor))
        dropped = form.negative_zeros_dropped if isinstance(form, SparseForm) else 0
        return Written(name, writer.checksums(name), tensor.nbytes, dropped)
    element = form.dtype if isinstance(form, SparseForm) else element_type(form.dtype)
    squares = np.zeros(2)
    dropped = 0

    def pieces() -> Iterator[tuple[NDArray[Any], ...]]:
        nonlocal dropped
        for piece in reader.pieces(tensor, options.pattern):
            pruned = prune_piece(name, np.asarray(piece), options.pattern, element, options.norm)
            squares[:] += pruned.squares
            if isinstance(form, DenseForm):
                yield (pruned.dense,)
            else:
                sparse = compress(pruned.dense, options.pattern)
                dropped += sparse.negative_zeros_dropped
                yield sparse.values, sparse.indices

    writer.write(name, pieces())
    row = layer_row(name, form.shape, element, form.nbytes, (float(squares[0]), float(squares[1])))
    return Written(name, writer.checksums(name), form.nbytes, dropped, row)


def _counted(form: Form, written: Written) -> Form:
    return replace(form, negative_zeros_dropped=written.dropped) if isinstance(form, SparseForm) else form


def _result(target: Path, journal: Journal, checkpoint: Checkpoint) -> PruneResult:
    written = journal.written.values()
    rows = tuple(tensor.row for tensor in written if tensor.row is not None)
    nbytes = sum(tensor.nbytes for tensor in written)
    return PruneResult(target, rows, len(written) - len(rows), nbytes, checkpoint.notes)


def _digits(*texts: str) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:TOKEN_DIGITS]
