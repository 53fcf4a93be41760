"""The journal of `louver prune`: it lists the written tensors, so that an interrupted run can continue.

It is a text file next to the output. The first line identifies the run, further lines list complete tensors, and the
last line says that all files are complete. Lines begin with their CRC-32, so that an incomplete line is ignored.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from louver.formats.index import is_file_name
from louver.formats.regular import TOKEN_DIGITS, Target, open_alone, write_all
from louver.models.layer_row import LayerRow

_TOKEN: Final = "journal"

_COMPLETE: Final = {"complete": True}


@dataclass(frozen=True, slots=True)
class Run:
    """A run. key: digits of its inputs, options and outputs. request: the same without the inputs' content.

    names: the output's files in its folder. With several files, the last one is the index.
    """

    key: str
    request: str
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        for key in (self.key, self.request):
            if len(key) != TOKEN_DIGITS or set(key) - set("0123456789abcdef"):
                raise ValueError(f"a run's keys have {TOKEN_DIGITS} hexadecimal digits, got {key!r}")
        if not self.names or not all(is_file_name(name) for name in self.names):
            raise ValueError(f"a run's files have plain names, got {list(self.names)}")


@dataclass(frozen=True, slots=True)
class Written:
    """A complete tensor. crc32: of its stored arrays. dropped: number of -0.0 without a slot. row: None if copied."""

    name: str
    crc32: tuple[str, ...]
    nbytes: int
    dropped: int = 0
    row: LayerRow | None = None


class Journal:
    """An open journal, locked by this process until it is closed.

    run: None if it is new. written: complete tensors by name. complete: whether all files are complete.
    """

    def __init__(self, path: Path) -> None:
        """Open the journal, or create it. Raises BlockingIOError while another process has it."""
        self.path = path
        self.file = open_alone(path)
        self.run: Run | None = None
        self.written: dict[str, Written] = {}
        self.complete = False
        self._stop = 0
        try:
            for line in self._lines():
                self._take(line)
        except (AttributeError, KeyError, TypeError, ValueError):
            # Another version wrote other fields.
            self.run, self.complete = None, False

    def begin(self, run: Run) -> None:
        """Continue the run if the journal belongs to it, else remove the unfinished files of the other run."""
        if self.run == run:
            return
        self.remove_parts()
        self.file.truncate(0)
        self._stop = 0
        self.written.clear()
        self.run = run
        self._append(asdict(run))

    def add(self, written: Written) -> None:
        self.written[written.name] = written
        self._append(asdict(written))

    def finish(self) -> None:
        """Give all files their final names, and remove the journal. If the process is killed here, the next run
        finishes the work.

        The index is removed first and added last, so that nobody reads old and new files as one checkpoint.
        """
        if not self.complete:
            self.complete = True
            self._append(_COMPLETE)
        assert self.run is not None
        targets = [Target.of(self.path.parent / name) for name in self.run.names]
        key = self.run.key
        if len(targets) > 1 and targets[-1].part(key).exists():
            targets[-1].path.unlink(missing_ok=True)
        for target in targets:
            if target.part(key).exists():
                target.replace(key)
        self.close(keep=False)

    def remove_parts(self) -> None:
        if self.run is not None:
            for name in self.run.names:
                Target.of(self.path.parent / name).part(self.run.key).unlink(missing_ok=True)

    def close(self, keep: bool) -> None:
        """Release the journal, or remove it."""
        if not keep:
            self.path.unlink(missing_ok=True)
        self.file.close()

    def _lines(self) -> Iterator[dict[str, Any]]:
        """The complete lines. The next line that is written replaces an incomplete rest."""
        for line in self.file.readall().splitlines(keepends=True):
            crc, _, text = line.partition(b" ")
            if not line.endswith(b"\n") or crc != b"%08x" % zlib.crc32(text):
                return
            yield json.loads(text)
            self._stop += len(line)

    def _take(self, line: dict[str, Any]) -> None:
        if self.run is None:
            self.run = Run(line["key"], line["request"], tuple(line["names"]))
        elif line == _COMPLETE:
            self.complete = True
        else:
            line["crc32"] = tuple(line["crc32"])
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


def journal_path(folder: Path, name: str) -> Path:
    """The journal of the run that writes the file `name` to a folder. `name` is the index or the only file."""
    return Target(folder / name, None).part(_TOKEN)


def finish_interrupted(out: Path) -> list[Journal]:
    """Finish interrupted runs to a file or folder whose files are all complete. Returns their journals."""
    paths = sorted(out.glob(f".*{_TOKEN}.part")) if out.is_dir() else [journal_path(out.parent, out.name)]
    finished: list[Journal] = []
    for path in paths:
        if path.exists():
            journal = Journal(path)
            if journal.complete:
                journal.finish()
                finished.append(journal)
            else:
                journal.close(keep=True)
    return finished
