"""Tells whether a file is still the one that was seen earlier."""

from __future__ import annotations

import os
import stat
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

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
