"""Rewrites a checkpoint of any size: tensor by tensor, in pieces, whole or not at all, from where an interruption left it.

`config.json` says afterwards in which form the weights are stored.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Final, Protocol, cast

import louver
from louver.formats.checkpoint import Checkpoint, open_checkpoint
from louver.formats.index import Index
from louver.formats.regular import TOKEN_DIGITS, RegularFile, Target
from louver.formats.schema import BITMASK_PARTS, Form
from louver.formats.writer import arranged
from louver.models.evidence.config import NAME, read_config
from louver.models.journal import Journal, Place, Run, Stamp, finish_moving, journal_path, refuse_others
from louver.models.output import Output, output_of
from louver.models.shards import WriteShard
from louver.models.steps import Copy, LayerRow, Source, Step
from louver.models.workers import Workers, WorkersError, workers_of

Progress = Callable[[float], object]
"""Called with the finished share of the bytes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done with a checkpoint. steps: by name; all other tensors are copied. notes: what a user should know."""

    steps: Mapping[str, Step]
    notes: tuple[str, ...] = ()


class Request(Protocol):
    """What a user asks for. Its `repr` says all that the plan depends on beside the source."""

    def plan(self, checkpoint: Checkpoint, workers: Workers) -> Plan:
        """The steps for a checkpoint. workers: read weights. Raises ValueError if there is nothing to do."""
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
    workers: int | str = 1,
    progress: Progress = lambda share: None,
) -> Rewritten:
    """Write all tensors of a checkpoint, those of the request's steps in a new form.

    source: a safetensors file, an index, or a folder with one of them. out: see `output_of`; it may be the source.
    force: replace files. workers: see `workers_of`; a shard is written by one of them. The same call continues an
    interrupted run, also with other workers. Raises ValueError, FormatError and OSError.
    """
    with workers_of(workers) as them:
        return _rewrite(source, out, request, force, them, progress)


def _rewrite(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    request: Request,
    force: bool,
    workers: Workers,
    progress: Progress,
) -> Rewritten:
    source, out = (_named(path) for path in (source, out))
    asked = _digits(louver.__version__, str(source.resolve()), str(out.resolve()), repr(request))
    finished = finish_moving(out)
    checkpoint = open_checkpoint(source)
    output = output_of(source, checkpoint, out)
    for journal in finished:
        assert journal.run is not None
        # A file that replaced its source has another source now.
        if journal.run.request == asked and output.target.exists() and checkpoint.path.samefile(output.target):
            return _result(checkpoint, output, journal, ())
    planned = request.plan(checkpoint, workers)
    if source.is_dir():
        output = output.with_texts(_texts_after(checkpoint, planned.steps))
    files = [repr(file.identity) for file in checkpoint.files]
    others = [repr((name, Stamp.of(x) if isinstance(x, Path) else x)) for name, x in output.beside.items()]
    key = _digits(asked, repr(checkpoint.index), *files, *others, repr(planned.steps))
    notes = (*checkpoint.notes, *planned.notes, *output.notes)
    for journal in finished:
        assert journal.run is not None
        if journal.run.key == key:
            return _result(checkpoint, output, journal, notes)
    journal = _Run(checkpoint, output, planned, workers, progress).write(Run(key, asked, output.names), force)
    return _result(checkpoint, output, journal, notes)


class _Run:
    """One run: the plan's steps for every tensor, and the files that it writes."""

    def __init__(
        self, checkpoint: Checkpoint, output: Output, plan: Plan, workers: Workers, progress: Progress
    ) -> None:
        self.checkpoint = checkpoint
        self.output = output
        self.plan = plan
        self.workers = workers
        self.progress = progress
        self.sizes = {name: tensor.nbytes for name, tensor in checkpoint.tensors.items()}
        self.steps: dict[str, Step] = {
            name: plan.steps.get(name) or Copy(tensor.form) for name, tensor in checkpoint.tensors.items()
        }
        self.index = self._index()

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
            except Exception as error:
                if journal is not None and _is_kept(journal, error):
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
        self._write_shards(targets, journal, held)
        if self.index is not None:
            assert self.output.index is not None
            held.enter_context(targets[self.output.index].fill_part(key, self.index.text().encode()))
        for file in self.checkpoint.files:
            with file.open():
                """Raises an error if the file changed since it was read."""

    def _write_shards(self, targets: Mapping[str, Target], journal: Journal, held: ExitStack) -> None:
        assert journal.run is not None
        source, run = Source.of(self.checkpoint.files), (journal.path, journal.run.key)
        tasks = [
            WriteShard.of(file, source, self.steps, targets[shard], run, journal.written)
            for file, shard in zip(self.checkpoint.files, self.output.shards, strict=True)
        ]
        self.workers.everywhere(tasks[0].seen)
        total, complete = sum(self.sizes.values()) or 1, 0
        with closing(self.workers.each(tasks)) as finished:
            for number, facts in finished:
                for written in facts:
                    if journal.written.get(written.name) != written:
                        journal.add(written)
                    complete += self.sizes[written.name]
                    self.progress(complete / total)
                held.enter_context(tasks[number].hold(journal.written))


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


def _is_kept(journal: Journal, error: Exception) -> bool:
    """Whether unfinished files are left for the next run: some have their final names, or the workers alone failed."""
    if journal.sealed is not None:
        return journal.is_moving
    return isinstance(error, WorkersError) and bool(journal.written)


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


def _result(checkpoint: Checkpoint, output: Output, journal: Journal, notes: tuple[str, ...]) -> Rewritten:
    # Workers end in any order.
    written = [journal.written[name] for name in checkpoint.tensors]
    rows = tuple(tensor.row for tensor in written if tensor.row is not None)
    copied = tuple(tensor.name for tensor in written if tensor.row is None)
    return Rewritten(output.target, rows, copied, sum(tensor.nbytes for tensor in written), notes)


def _digits(*texts: str) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:TOKEN_DIGITS]


_ENTRIES: Final = ("quantization_config", "compression_config")
"""Where compressed-tensors describes a checkpoint; its first releases used the second name."""

_DENSE: Final = "dense"

_FORMATS: Final = {True: ("sparse-24-bitmask", "2:4"), False: ("sparse-bitmask", "unstructured")}
"""The format of `sparsity_config` and its structure, by whether two of four elements are kept."""

_ABOUT: Final = ("quant_method", "version", "sparsity_config", "transform_config", "format")
"""Fields that stand in an entry without a quantization, too."""


def config_after(config: Mapping[str, Any], forms: Mapping[str, Form]) -> dict[str, Any]:
    """The contents of `config.json` for a checkpoint whose tensors are written in these forms.

    Every command that writes a checkpoint calls this before it writes, with the `config.json` that it copies: loaders of
    compressed-tensors decompress what `sparsity_config` announces, and fail on a model that holds something else.

    - Tensors with bitmasks are announced: `targets` are their modules.
    - Without them, a `sparsity_config` that announces bitmasks is removed. One of the format "dense" stays: it says that
      dense weights with zeros keep a pattern. An entry that then describes nothing is removed too.
    - A quantization and all else stay as they are.
    Raises ValueError for bitmasks in a checkpoint that another library describes, and for those of two formats.
    """
    where = next((name for name in _ENTRIES if config.get(name)), _ENTRIES[0])
    entry = dict(cast("Mapping[str, Any]", config.get(where) or {}))
    method = entry.get("quant_method", "compressed-tensors")
    bitmasks = _bitmasks(forms)
    if bitmasks and method != "compressed-tensors":
        raise ValueError(
            f"bitmasks are a form of compressed-tensors, got a checkpoint of {method!r}, as its config.json says: write "
            "dense tensors"
        )
    sparsity = cast("Mapping[str, Any]", entry.get("sparsity_config") or {})
    if bitmasks:
        entry = {"quant_method": method, **entry, "sparsity_config": dict(sparsity) | _announced(bitmasks)}
        return {**config, where: entry}
    if not sparsity or sparsity.get("format") == _DENSE:
        return dict(config)
    del entry["sparsity_config"]
    others = any(value for field, value in entry.items() if field not in _ABOUT)
    keeps = others or entry.get("format", _DENSE) != _DENSE or entry.get("transform_config")
    rest = {name: value for name, value in config.items() if name != where}
    return {**rest, where: entry} if keeps else rest


def _bitmasks(forms: Mapping[str, Form]) -> dict[str, bool]:
    """The modules whose weights are stored with a bitmask, also in parts of different files. Of each, whether two of four
    elements are kept: then the values are a matrix.
    """
    arrays = {stored: array for name, form in forms.items() for stored, array in form.arrays(name).items()}
    stems = [stored.removesuffix(BITMASK_PARTS.bits) for stored in arrays if stored.endswith(BITMASK_PARTS.bits)]
    values = {stem: arrays.get(stem + BITMASK_PARTS.values) for stem in stems}
    return {stem: len(array.shape) == 2 for stem, array in values.items() if array is not None}


def _announced(bitmasks: Mapping[str, bool]) -> dict[str, Any]:
    if len({*bitmasks.values()}) > 1:
        names = [next(name for name, each in bitmasks.items() if each is kind) for kind in (True, False)]
        raise ValueError(
            f"a checkpoint's bitmasks have one format, got {_FORMATS[True][0]} and {_FORMATS[False][0]} for {names[0]!r} and "
            f"{names[1]!r}: write dense tensors"
        )
    kind, structure = _FORMATS[next(iter(bitmasks.values()))]
    return {"format": kind, "sparsity_structure": structure, "targets": sorted(bitmasks), "ignore": []}
