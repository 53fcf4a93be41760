"""The tasks that write a checkpoint: a shard each, from the files that it needs to an unfinished file with checksums."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Final, TypeVar

from louver.formats.checkpoint import CheckpointFile, open_checkpoint
from louver.formats.regular import FormatError, Target
from louver.formats.writer import FileWriter, with_dropped, writing
from louver.models.journal import Written, key_of
from louver.models.steps import Copy, Source, Step, Tally
from louver.models.workers import WorkersError

LEASE: Final = 120.0
"""Seconds for which a task waits for a file that another process locks. A worker that is gone leaves its lock with a
server of files until the lease ends: 90 s by default for NFS.
"""

RULE: Final = "all workers read IN and write OUT in one file system, under the same paths"

T = TypeVar("T")


def seen_here(file: CheckpointFile) -> CheckpointFile:
    """The file as this machine sees it. Raises WorkersError for another file, or none."""
    try:
        return file.here()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise WorkersError(f"{file.path} is not on this machine: {RULE}") from error


@dataclass(frozen=True, slots=True)
class Seen:
    """A task that compares what a machine sees with what the process of the run sees: source files, and the journal."""

    files: tuple[CheckpointFile, ...]
    journal: Path
    key: str

    def run(self) -> Generator[CheckpointFile]:
        """The files as this machine sees them. Raises WorkersError if they, or the folder of the output, are others."""
        if key_of(self.journal) != self.key:
            raise WorkersError(
                f"{self.journal.parent} is another folder on this machine, without the run's journal: {RULE}"
            )
        yield from map(seen_here, self.files)


@dataclass(frozen=True, slots=True)
class WriteShard:
    """A task that writes the unfinished file of a shard, and yields each tensor that is complete.

    seen: the shard, other files that its steps read with the tensors that they read there, and the run's journal. steps:
    of the shard's tensors. written: those that an interrupted run wrote; what they hold is compared first.
    """

    seen: Seen
    steps: Mapping[str, Step]
    target: Target
    written: Mapping[str, Written]

    @classmethod
    def of(
        cls,
        shard: CheckpointFile,
        source: Source,
        steps: Mapping[str, Step],
        target: Target,
        run: tuple[Path, str],
        written: Mapping[str, Written],
    ) -> WriteShard:
        """run: path of the journal, and key of its run. steps, written: of all shards, or of this one."""
        own = {name: steps[name] for name in shard.tensors}
        others: dict[Path, list[str]] = {}
        for name in sorted({name for step in own.values() for name in step.reads} - own.keys()):
            others.setdefault(source.files[name].path, []).append(name)
        read = [_with_tensors(source.files[names[0]], names) for names in others.values()]
        # Workers have other working directories.
        files = [replace(file, path=file.path.absolute()) for file in (shard, *read)]
        journal, key = run
        seen = Seen(tuple(files), journal.absolute(), key)
        return cls(seen, own, target, {name: written[name] for name in own if name in written})

    def run(self) -> Generator[Written]:
        """Write the file, and sync it. Raises WorkersError, FormatError and OSError; BlockingIOError if another process
        keeps the file.
        """
        files = tuple(self.seen.run())
        source, (shard, *_) = Source.of(files), files
        forms = {name: step.form for name, step in self.steps.items()}
        with ExitStack() as stack:
            key = self.seen.key
            writer = _patiently(lambda: stack.enter_context(writing(self.target, key, forms, shard.metadata)))
            for name in shard.tensors:
                written = self.written.get(name)
                if written is None or not self._is_current(source, writer, written):
                    written = self._write_tensor(source, writer, name)
                forms[name] = with_dropped(forms[name], written.dropped)
                yield written
            writer.seal(forms)

    def hold(self, written: Mapping[str, Written]) -> FileIO:
        """Lock the complete file, after its checksums were compared with those that the workers told. Raises FormatError."""
        part = self.target.part(self.seen.key)
        if not part.exists():
            raise FormatError(f"{part}: the unfinished file was removed: start again")
        file = _patiently(lambda: self.target.open_part(self.seen.key))
        try:
            told = {
                array: crc32
                for name, step in self.steps.items()
                for array, crc32 in zip(step.form.arrays(name), written[name].crc32, strict=True)
            }
            (found,) = open_checkpoint(part).files
            if told != {array.name: array.crc32 for tensor in found.tensors.values() for array in tensor.arrays}:
                raise FormatError(f"{part}: the file does not hold what its worker wrote: it was changed, start again")
        except BaseException:
            file.close()
            raise
        return file

    def _is_current(self, source: Source, writer: FileWriter, written: Written) -> bool:
        """Whether an interrupted run wrote the tensor, and from what the source holds now."""
        step = self.steps[written.name]
        return writer.has(written.name, written.crc32) and written.source == source.checksums(
            (written.name, *step.reads)
        )

    def _write_tensor(self, source: Source, writer: FileWriter, name: str) -> Written:
        step, tally = self.steps[name], Tally()
        writer.write(name, step.pieces(source, name, tally))
        crc32 = writer.checksums(name)
        read = crc32 if isinstance(step, Copy) else source.checksums((name, *step.reads))
        return Written(name, crc32, step.form.nbytes, read, tally.negative_zeros, step.row(name, tally))


def _with_tensors(file: CheckpointFile, names: Iterable[str]) -> CheckpointFile:
    return replace(file, tensors={name: file.tensors[name] for name in names})


def _patiently(opened: Callable[[], T]) -> T:
    """Open a locked file. Raises BlockingIOError if another process holds it for longer than `LEASE`."""
    until = time.monotonic() + LEASE
    while True:
        try:
            return opened()
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
        time.sleep(0.1)
