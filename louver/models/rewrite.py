"""Rewrites a checkpoint of any size: tensor by tensor, in pieces, whole or not at all, from where an interruption left it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Protocol

import louver
from louver.formats.checkpoint import Checkpoint, CheckpointFile, open_checkpoint
from louver.formats.index import Index
from louver.formats.regular import TOKEN_DIGITS, RegularFile, Target
from louver.formats.schema import Form, SparseForm
from louver.formats.writer import FileWriter, arranged, writing
from louver.models.config_after import config_after
from louver.models.evidence.config import NAME, read_config
from louver.models.journal import Journal, Place, Run, Written, finish_moving, journal_path, refuse_others
from louver.models.layer_row import LayerRow
from louver.models.output import Output, output_of
from louver.models.source import Source
from louver.models.stamp import Stamp
from louver.models.steps import Copy, Step, Tally

Progress = Callable[[float], object]
"""Called with the finished share of the bytes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done with a checkpoint. steps: by name; all other tensors are copied. notes: what a user should know."""

    steps: Mapping[str, Step]
    notes: tuple[str, ...] = ()


class Request(Protocol):
    """What a user asks for. Its `repr` says all that the plan depends on beside the source."""

    def plan(self, checkpoint: Checkpoint) -> Plan:
        """The steps for a checkpoint. Raises ValueError if there is nothing to do."""
        ...


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The written files. target: file or index. rows: of tensors in a new form. copied: names of the other tensors.

    nbytes: of all tensors. notes: what a user should know.
    """

    target: Path
    rows: tuple[LayerRow, ...]
    copied: tuple[str, ...]
    nbytes: int
    notes: tuple[str, ...]


def rewrite(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    request: Request,
    *,
    force: bool = False,
    progress: Progress = lambda share: None,
) -> Rewritten:
    """Write all tensors of a checkpoint, those of the request's steps in a new form.

    source: a safetensors file, an index, or a folder with one of them. out: see `output_of`; it may be the source.
    force: replace files. The same call continues an interrupted run. Raises ValueError, FormatError and OSError.
    """
    source, out = (_named(path) for path in (source, out))
    asked = _digits(louver.__version__, str(source.resolve()), str(out.resolve()), repr(request))
    finished = finish_moving(out)
    checkpoint = open_checkpoint(source)
    output = output_of(source, checkpoint, out)
    for journal in finished:
        assert journal.run is not None
        # A file that replaced its source has another source now.
        if journal.run.request == asked and output.target.exists() and checkpoint.path.samefile(output.target):
            return _result(output, journal, ())
    planned = request.plan(checkpoint)
    if source.is_dir():
        output = output.with_texts(_texts_after(checkpoint, planned.steps))
    files = [repr(file.identity) for file in checkpoint.files]
    others = [repr((name, Stamp.of(x) if isinstance(x, Path) else x)) for name, x in output.beside.items()]
    key = _digits(asked, repr(checkpoint.index), *files, *others, repr(planned.steps))
    notes = (*checkpoint.notes, *planned.notes, *output.notes)
    for journal in finished:
        assert journal.run is not None
        if journal.run.key == key:
            return _result(output, journal, notes)
    journal = _Run(checkpoint, output, planned, progress).write(Run(key, asked, output.names), force)
    return _result(output, journal, notes)


class _Run:
    """One run: the plan's steps for every tensor, and the files that it writes."""

    def __init__(self, checkpoint: Checkpoint, output: Output, plan: Plan, progress: Progress) -> None:
        self.checkpoint = checkpoint
        self.source = Source.of(checkpoint)
        self.output = output
        self.plan = plan
        self.progress = progress
        self.steps: dict[str, Step] = {
            name: plan.steps.get(name) or Copy(tensor.form) for name, tensor in checkpoint.tensors.items()
        }
        self.index = self._index()
        self.total = sum(tensor.nbytes for tensor in checkpoint.tensors.values()) or 1
        self.done = 0

    def write(self, run: Run, force: bool) -> Journal:
        """Write the files, and give them their names. Returns the closed journal."""
        made = _make_folders(self.output)
        journal: Journal | None = None
        with ExitStack() as held:
            try:
                self.output.check(force)
                targets = [Target.of(self.output.folder / name) for name in run.names]
                before = [Stamp.of(target.path) for target in targets]
                journal = Journal(journal_path(self.output.folder, run.names[-1]))
                refuse_others(journal, run)
                complete = journal.run == run and journal.sealed is not None and set(journal.places()) == {Place.WAITS}
                if not complete:
                    journal.begin(run)
                    self._write_files(dict(zip(run.names, targets, strict=True)), journal, held)
                    journal.seal(before)
                if os.name == "nt":
                    # Open files have no other names there.
                    held.close()
                journal.place()
            except BlockingIOError:
                if journal is not None:
                    journal.close(keep=journal.run is not None)
                raise
            except Exception:
                if journal is not None and journal.sealed is not None and journal.is_moving:
                    # Some files have their final names; the rest is left for the next run.
                    journal.close(keep=True)
                    raise
                # The next run would fail in the same way. Only an interrupted run can continue.
                if journal is not None:
                    journal.remove_parts()
                    journal.close(keep=False)
                for folder in reversed(made):
                    # Another program may have put a file there.
                    with suppress(OSError):
                        folder.rmdir()
                raise
        return journal

    def _index(self) -> Index | None:
        """The index of the output. Raises ValueError if two tensors need one name."""
        if self.checkpoint.index is None:
            arranged({name: step.form for name, step in self.steps.items()})
            return None
        unlisted = set(self.checkpoint.unlisted)
        weight_map: dict[str, str] = {}
        total = 0
        for file in self.checkpoint.files:
            forms = {name: self.steps[name].form for name in file.tensors}
            arranged(forms)
            for stored, entry in arranged({name: forms[name] for name in forms if name not in unlisted}).items():
                if weight_map.setdefault(stored, file.path.name) != file.path.name:
                    raise ValueError(f"two tensors need the stored name {stored!r}: --exclude one")
                total += entry.nbytes
        return Index({**self.checkpoint.index.metadata, "total_size": total}, weight_map)

    def _write_files(self, targets: Mapping[str, Target], journal: Journal, held: ExitStack) -> None:
        """Write the unfinished files. `held` keeps them open and locked."""
        assert journal.run is not None
        key = journal.run.key
        for target in targets.values():
            target.remove_stale(keep=key)
        for name, content in self.output.beside.items():
            if isinstance(content, bytes):
                held.enter_context(targets[name].fill_part(key, content))
            else:
                _copy(content, held.enter_context(targets[name].open_part(key)), targets[name])
        for file, shard in zip(self.checkpoint.files, self.output.shards, strict=True):
            forms = {name: self.steps[name].form for name in file.tensors}
            writer = held.enter_context(writing(targets[shard], key, forms, file.metadata))
            self._write_file(file, writer, journal)
        if self.index is not None:
            assert self.output.index is not None
            held.enter_context(targets[self.output.index].fill_part(key, self.index.text().encode()))
        for file in self.checkpoint.files:
            with file.open():
                """Raises an error if the file changed since it was read."""

    def _write_file(self, file: CheckpointFile, writer: FileWriter, journal: Journal) -> None:
        forms: dict[str, Form] = {}
        for name, tensor in file.tensors.items():
            written = journal.written.get(name)
            if written is None or not self._is_current(writer, written):
                written = self._write_tensor(writer, name)
                journal.add(written)
            forms[name] = _counted(self.steps[name].form, written)
            self.done += tensor.nbytes
            self.progress(self.done / self.total)
        writer.seal(forms)

    def _is_current(self, writer: FileWriter, written: Written) -> bool:
        """Whether an interrupted run wrote the tensor, and from what the source holds now."""
        step = self.steps[written.name]
        return writer.has(written.name, written.crc32) and written.source == self.source.checksums(
            (written.name, *step.reads)
        )

    def _write_tensor(self, writer: FileWriter, name: str) -> Written:
        step, tally = self.steps[name], Tally()
        writer.write(name, step.pieces(self.source, name, tally))
        crc32 = writer.checksums(name)
        read = crc32 if isinstance(step, Copy) else self.source.checksums((name, *step.reads))
        return Written(name, crc32, step.form.nbytes, read, tally.negative_zeros, step.row(name, tally))


def _texts_after(checkpoint: Checkpoint, steps: Mapping[str, Step]) -> dict[str, bytes]:
    """The configuration of an output folder, if it must say something else about the stored forms. Raises ValueError
    for forms that it cannot describe.
    """
    config, _ = read_config(checkpoint.path.parent)
    if config.path is None:
        return {}
    forms = {name: steps[name].form if name in steps else each.form for name, each in checkpoint.tensors.items()}
    after = config_after(config.fields, forms)
    return {} if after == config.fields else {NAME: (json.dumps(after, indent=2) + "\n").encode()}


def _named(path: str | os.PathLike[str]) -> Path:
    if not os.fspath(path):
        raise ValueError("IN and OUT are paths, got an empty text: name a file or a folder (is a variable unset?)")
    return Path(path)


def _make_folders(output: Output) -> list[Path]:
    """Make the output's folder and its subfolders. Returns the new ones, the outer ones first."""
    made: list[Path] = []
    if not output.is_folder:
        return made
    for folder in (output.folder, *(parent for name in output.beside for parent in _parents(output.folder, name))):
        if not folder.is_dir():
            folder.mkdir()
            made.append(folder)
    return made


def _parents(folder: Path, name: str) -> Iterable[Path]:
    inner = Path(name).parent.parts
    return (folder.joinpath(*inner[:count]) for count in range(1, len(inner) + 1))


def _copy(path: Path, part: FileIO, target: Target) -> None:
    """Copy a file into the part of a target."""
    part.truncate(0)
    with RegularFile.open(path) as file:
        shutil.copyfileobj(file.raw, part)
    target.adopt(part)


def _counted(form: Form, written: Written) -> Form:
    return replace(form, negative_zeros_dropped=written.dropped) if isinstance(form, SparseForm) else form


def _result(output: Output, journal: Journal, notes: tuple[str, ...]) -> Rewritten:
    written = journal.written.values()
    rows = tuple(tensor.row for tensor in written if tensor.row is not None)
    copied = tuple(tensor.name for tensor in written if tensor.row is None)
    return Rewritten(output.target, rows, copied, sum(tensor.nbytes for tensor in written), notes)


def _digits(*texts: str) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:TOKEN_DIGITS]
