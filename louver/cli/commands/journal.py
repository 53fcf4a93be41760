"""The journal of `louver prune`: the tensors that are written, so that an interrupted run can go on.

A text file beside the output. Its first line says which run it belongs to, each further one that a tensor is complete, and the
last one that all files are, so that only their names are left to change. Lines begin with their CRC-32: one that was cut off does
not count.
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
from louver.measure.report.layers import LayerRow

_TOKEN: Final = "journal"

_COMPLETE: Final = {"complete": True}


@dataclass(frozen=True, slots=True)
class Run:
    """A run. key: digits that differ for other inputs, options or outputs. request: the same without the inputs' content.

    names: the output's files, in its folder; where there are several, the last one is the index.
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
    """A tensor that is complete. crc32: of its stored arrays. dropped: its -0.0 without a slot. row: None if it was copied."""

    name: str
    crc32: tuple[str, ...]
    nbytes: int
    dropped: int = 0
    row: LayerRow | None = None


class Journal:
    """An open journal, which this process alone has until it is closed.

    run: None if it is new. written: complete tensors by name. complete: whether all files are.
    """

    def __init__(self, path: Path) -> None:
        """Open the journal, or begin one. Raises BlockingIOError while another process has it."""
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
            # Of a version that writes other fields.
            self.run, self.complete = None, False

    def begin(self, run: Run) -> None:
        """Go on with a run if the journal is its own; else remove the unfinished files of the other one."""
        if self.run == run:
            return
        self.remove_parts()
        self.file.truncate(0)
        self._stop = 0
        self.written.clear()
        self.run = run
        self._append(asdict(run))

    def add(self, written: Written) -> None:
        """Note that a tensor is complete."""
        self.written[written.name] = written
        self._append(asdict(written))

    def finish(self) -> None:
        """Let all files take their places, and remove the journal. From here on a run that is killed is finished by the next.

        The index goes first and comes last, so that nobody reads some old files and some new ones as one checkpoint.
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
        """Remove the unfinished files of the journal's run."""
        if self.run is not None:
            for name in self.run.names:
                Target.of(self.path.parent / name).part(self.run.key).unlink(missing_ok=True)

    def close(self, keep: bool) -> None:
        """Let others have the journal, or remove it."""
        if not keep:
            self.path.unlink(missing_ok=True)
        self.file.close()

    def _lines(self) -> Iterator[dict[str, Any]]:
        """The lines that are whole; the next one cuts off the rest behind the last of them."""
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
    """The journal of the run that writes the file `name`, an index or the only file, to a folder."""
    return Target(folder / name, None).part(_TOKEN)


def finish_interrupted(out: Path) -> list[Journal]:
    """Finish the runs to a file or a folder that were interrupted when all their files were complete; returns their journals."""
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
