"""The journal of a run that writes a checkpoint: it lists the written tensors, so that an interrupted run can continue.

It is a text file next to the output. The first line identifies the run, further lines list complete tensors, and the
last line says that all files are complete. Lines begin with their CRC-32, so that an incomplete line is ignored.

A complete run gives its files their names only where it finds what it left: its own unfinished files, and at their
places the files that stood there when the run began.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final, Self

from louver.formats.index import is_file_name
from louver.formats.regular import TOKEN_DIGITS, FormatError, Target, open_alone, write_all
from louver.models.steps import LayerRow

START: Final = 1 << 16
"""Bytes at the start of a file that a stamp covers: the header of a small checkpoint, a part of a large one's."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """A file at one time. mtime, ctime: ns of the last change of content and of state. start: CRC-32 of its start."""

    inode: int
    size: int
    mtime: int
    ctime: int
    start: int

    @classmethod
    def of(cls, path: Path) -> Self | None:
        """The stamp of a file, with symlinks followed. None: there is no such file."""
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        start = 0
        if stat.S_ISREG(status.st_mode):
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                start = zlib.crc32(file.read(START))
        return cls(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, start)

    @classmethod
    def of_fields(cls, fields: dict[str, Any] | None) -> Self | None:
        """The inverse of `asdict`."""
        return None if fields is None else cls(**fields)

    def renamed(self, now: Stamp | None) -> bool:
        """Whether `now` can be the same file under another name. Renaming may change only `ctime`."""
        return now is not None and replace(now, ctime=self.ctime) == self


_TOKEN: Final = "journal"


@dataclass(frozen=True, slots=True)
class Run:
    """A run. key: digits of its inputs, options and outputs. request: the same without the inputs' content.

    names: the output's files by their paths in its folder. A reader of several files starts at the last one: the index.
    """

    key: str
    request: str
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        for key in (self.key, self.request):
            if len(key) != TOKEN_DIGITS or set(key) - set("0123456789abcdef"):
                raise ValueError(f"a run's keys have {TOKEN_DIGITS} hexadecimal digits, got {key!r}")
        if not self.names or not all(is_file_name(part) for name in self.names for part in name.split("/")):
            raise ValueError(f"a run's files have plain names in a folder, got {list(self.names)}")


@dataclass(frozen=True, slots=True)
class Written:
    """A complete tensor. crc32: of its stored arrays. source: of the stored arrays that were read to write it.

    dropped: number of -0.0 without a slot. row: None if copied.
    """

    name: str
    crc32: tuple[str, ...]
    nbytes: int
    source: tuple[str, ...]
    dropped: int = 0
    row: LayerRow | None = None


@dataclass(frozen=True, slots=True)
class Sealed:
    """Says that all files are complete. parts: the complete files. before: the files that they replace, None for none."""

    parts: tuple[Stamp, ...]
    before: tuple[Stamp | None, ...]


@dataclass(frozen=True, slots=True)
class _File:
    """A complete file, and the one that it replaces."""

    target: Target
    part: Stamp
    before: Stamp | None


class Place(Enum):
    """Where a complete file is."""

    WAITS = "under its unfinished name; its own name is free, or has the file that it replaces"
    PLACED = "under its own name"
    CHANGED = "another file has one of the two names"


class Journal:
    """An open journal, locked by this process until it is closed.

    run: None if it is new. written: complete tensors by name. sealed: None until all files are complete.
    """

    def __init__(self, path: Path) -> None:
        """Open the journal, or create it. Raises BlockingIOError while another process has it."""
        self.path = path
        self.file = open_alone(path)
        self.run: Run | None = None
        self.written: dict[str, Written] = {}
        self.sealed: Sealed | None = None
        self._stop = 0
        try:
            for line, size in _lines(self.file.readall()):
                self._take(line)
                # The next line that is written replaces an incomplete rest.
                self._stop += size
        except (AttributeError, KeyError, TypeError, ValueError):
            # Another version wrote other fields.
            self.run, self.sealed = None, None

    def begin(self, run: Run) -> None:
        """Continue the run if the journal belongs to it and it is not sealed, else remove what the journal is about."""
        if self.run == run and self.sealed is None:
            return
        self.remove_parts()
        self.file.truncate(0)
        self._stop = 0
        self.written.clear()
        self.run, self.sealed = run, None
        self._append(asdict(run))

    def add(self, written: Written) -> None:
        self.written[written.name] = written
        self._append(asdict(written))

    def seal(self, before: Sequence[Stamp | None]) -> None:
        """Say that all files are complete. before: the files in their places when the run began."""
        parts: list[Stamp] = []
        for target in self._targets():
            stamp = Stamp.of(target.part(self._key))
            if stamp is None:
                raise FormatError(f"{target.part(self._key)}: the unfinished file was removed: start again")
            parts.append(stamp)
        self.sealed = Sealed(tuple(parts), tuple(before))
        self._append(asdict(self.sealed))

    def places(self) -> tuple[Place, ...]:
        """Where the complete files are."""
        return tuple(self._place(file) for file in self._files())

    @property
    def is_moving(self) -> bool:
        """Whether some files have their names and some do not. Without its index a checkpoint counts as moving."""
        assert self.sealed is not None
        left = any(target.part(self._key).exists() for target in self._targets())
        index = len(self.sealed.parts) > 1 and self.sealed.before[-1] is not None
        return left and (Place.PLACED in self.places() or (index and not self._targets()[-1].path.exists()))

    def place(self) -> None:
        """Give all files their names, and remove the journal. If the process is killed here, the next run goes on.

        The index is removed first and added last, so that nobody reads old and new files as one checkpoint. Raises
        FormatError, and replaces no file that was changed.
        """
        files = self._files()
        self._check(files)
        *others, last = files
        if others and last.target.part(self._key).exists():
            last.target.path.unlink(missing_ok=True)
        for file in others:
            self._place_one(file)
        self._check(files)
        self._place_one(last)
        self._check(files)
        self.close(keep=False)

    def remove_parts(self) -> None:
        if self.run is not None:
            for target in self._targets():
                target.part(self._key).unlink(missing_ok=True)

    def close(self, keep: bool) -> None:
        """Release the journal, or remove it."""
        if not keep:
            self.path.unlink(missing_ok=True)
        self.file.close()

    @property
    def _key(self) -> str:
        assert self.run is not None
        return self.run.key

    def _targets(self) -> list[Target]:
        assert self.run is not None
        return [Target.resolved(self.path.parent / name) for name in self.run.names]

    def _files(self) -> list[_File]:
        assert self.sealed is not None
        found = zip(self._targets(), self.sealed.parts, self.sealed.before, strict=True)
        return [_File(target, part, before) for target, part, before in found]

    def _place(self, file: _File) -> Place:
        unfinished, now = Stamp.of(file.target.part(self._key)), Stamp.of(file.target.path)
        if unfinished is None:
            return Place.PLACED if file.part.renamed(now) else Place.CHANGED
        return Place.WAITS if unfinished == file.part and now in (None, file.before) else Place.CHANGED

    def _place_one(self, file: _File) -> None:
        self._check([file])
        if file.target.part(self._key).exists():
            file.target.replace(self._key)

    def _check(self, files: Sequence[_File]) -> None:
        """Raises FormatError if a file is not the one that this run wrote, or that it was told to replace."""
        for file in files:
            target = file.target
            if self._place(file) is not Place.CHANGED:
                continue
            what = f"{target.path}: another program changed or removed this file, or {target.part(self._key).name}"
            if self.is_moving:
                kept = f"move the complete files {self._key}.part to their names, or remove them"
                raise FormatError(f"{what}, while its checkpoint was replaced: {kept}, then remove {self.path}")
            raise FormatError(f"{what}, while it was written: start again")

    def _take(self, line: dict[str, Any]) -> None:
        if self.run is None:
            self.run = Run(line["key"], line["request"], tuple(line["names"]))
        elif "parts" in line:
            parts = tuple(Stamp(**stamp) for stamp in line["parts"])
            before = tuple(Stamp.of_fields(stamp) for stamp in line["before"])
            if not len(parts) == len(before) == len(self.run.names):
                raise ValueError("a complete run has stamps of all files")
            self.sealed = Sealed(parts, before)
        else:
            line["crc32"], line["source"] = tuple(line["crc32"]), tuple(line["source"])
            if line["row"] is not None:
                line["row"]["shape"] = tuple(line["row"]["shape"])
                line["row"] = LayerRow(**line["row"])
            self.written[line["name"]] = Written(**line)

    def _append(self, fields: dict[str, Any]) -> None:
        text = json.dumps(fields).encode() + b"\n"
        line = b"%08x " % zlib.crc32(text) + text
        self.file.truncate(self._stop)
        write_all(self.file, self._stop, memoryview(line))
        self._stop += len(line)


def _lines(data: bytes) -> Iterator[tuple[dict[str, Any], int]]:
    """The complete lines and their sizes in bytes."""
    for line in data.splitlines(keepends=True):
        crc, _, text = line.partition(b" ")
        if not line.endswith(b"\n") or crc != b"%08x" % zlib.crc32(text):
            return
        yield json.loads(text), len(line)


def journal_path(folder: Path, name: str) -> Path:
    """The journal of the run that writes the file `name` to a folder. `name` is the index or the only file."""
    return Target(folder / name, None).part(_TOKEN)


def key_of(path: Path) -> str | None:
    """The key of the run that a journal is about. None: there is no such journal."""
    try:
        with path.open("rb") as file:
            line, _ = next(_lines(file.readline()))
    except (FileNotFoundError, NotADirectoryError, StopIteration):
        return None
    return line.get("key")


def finish_moving(out: Path) -> list[Journal]:
    """Finish interrupted runs to a file or folder that have replaced a part of their files. Returns their journals, and
    those of runs that were killed just before their end. Raises FormatError if a file was changed since.
    """
    paths = sorted(out.glob(f".*{_TOKEN}.part")) if out.is_dir() else [journal_path(out.parent, out.name)]
    finished: list[Journal] = []
    for path in paths:
        if not path.exists():
            continue
        try:
            journal = Journal(path)
        except BlockingIOError:
            # Its process is alive. `refuse_others` looks whether it is in the way.
            continue
        placed = journal.sealed is not None and set(journal.places()) == {Place.PLACED}
        if placed or (journal.sealed is not None and journal.is_moving):
            journal.place()
            finished.append(journal)
        else:
            journal.close(keep=True)
    return finished


def refuse_others(journal: Journal, run: Run) -> None:
    """Raises BlockingIOError while another process writes one of the run's files under another index. Removes the
    remains of such a run that ended.
    """
    for path in sorted(journal.path.parent.glob(f".*{_TOKEN}.part")):
        if path == journal.path:
            continue
        try:
            other = Journal(path)
        except BlockingIOError:
            lines = list(_lines(path.read_bytes()))
            # A journal without a first line is of a run that begins now.
            if not lines or set(lines[0][0].get("names", ())) & set(run.names):
                raise
            continue
        if other.run is not None and not set(other.run.names) & set(run.names):
            other.close(keep=True)
            continue
        if other.sealed is not None and other.is_moving:
            other.place()
        else:
            other.remove_parts()
            other.close(keep=False)
