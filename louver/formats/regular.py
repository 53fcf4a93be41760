"""Regular files: opened without blocking, and replaced atomically."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import zlib
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Final, Self

_KINDS: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISSOCK, "a socket"),
)

_FLAGS: Final = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)

TOKEN_DIGITS: Final = 16
"""Hexadecimal digits that distinguish the unfinished files of different runs."""


def file_name(text: str) -> str:
    """A name for a file or folder, made of any text such as a kernel's name: never a path, hidden or empty. Two texts may
    have one name.
    """
    return re.sub(r"[^\w.-]|^[.-]", "_", text, flags=re.ASCII)[:80] or "_"


class FormatError(ValueError):
    """A file that cannot be used as its format requires. The message names the file."""


@dataclass(frozen=True, slots=True)
class RegularFile:
    """An open regular file. path: its name in messages. status: its state when it was opened."""

    raw: FileIO
    path: str
    status: os.stat_result

    @classmethod
    @contextmanager
    def open(cls, path: str | os.PathLike[str]) -> Generator[Self]:
        """Open for reading without blocking. Raises FormatError for a FIFO, a device or a directory, and OSError."""
        name = os.fspath(path)
        # Opening a device may have effects, so the type is checked first. The second check sees a file that was swapped
        # in between.
        check_regular(name, os.stat(name))
        with FileIO(os.open(name, os.O_RDONLY | _FLAGS | getattr(os, "O_NONBLOCK", 0)), "r") as raw:
            status = os.fstat(raw.fileno())
            check_regular(name, status)
            yield cls(raw, name, status)

    @property
    def size(self) -> int:
        """Bytes of the file when it was opened."""
        return self.status.st_size

    def read(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes from `offset`, fewer at the end of the file."""
        data = bytearray(min(count, max(0, self.size - offset)))
        return bytes(data[: self.read_into(offset, memoryview(data))])

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer of bytes from `offset`. Returns the number of bytes read. Raises OSError with the file's name."""
        done = 0
        try:
            self.raw.seek(offset)
            while done < len(buffer) and (count := self.raw.readinto(buffer[done:])):
                done += count
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from error
        return done


@dataclass(frozen=True, slots=True)
class Target:
    """A file to write. path: with symlinks followed. status: of the existing file, or None."""

    path: Path
    status: os.stat_result | None

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Self:
        """The target of a user's path. Raises ValueError unless it is a regular file or new, OSError without a folder."""
        target = cls.resolved(path)
        if not target.path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "no such folder: make it first", str(target.path.parent))
        try:
            status = target.path.stat()
        except FileNotFoundError:
            return target
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is {_kind(status)}: only a regular file is replaced, choose another name")
        return cls(target.path, status)

    @classmethod
    def resolved(cls, path: str | os.PathLike[str]) -> Self:
        """The target of a path, without looking at the file. Raises ValueError for an empty path."""
        if not os.fspath(path):
            raise ValueError("a file to write has a name, got an empty path: name a file")
        return cls(Path(os.path.realpath(path)), None)

    def part(self, token: str) -> Path:
        """The path of the unfinished file, beside the target. The length of its name is bounded."""
        digits = f"{zlib.crc32(os.fsencode(self.path.name)):08x}{token}"
        return self.path.with_name(f".{self.path.name[:40]}.{digits}.part")

    def open_part(self, token: str) -> FileIO:
        """Open the part for reading and writing, and keep its contents. This process holds it alone until it is closed.
        Raises BlockingIOError while another process holds it.
        """
        mode = 0o666 if self.status is None else stat.S_IMODE(self.status.st_mode)
        return open_alone(self.part(token), mode)

    def fill_part(self, token: str, data: bytes) -> FileIO:
        """Write the part's content, and return the part, which is open and locked."""
        part = self.open_part(token)
        try:
            part.truncate(len(data))
            write_all(part, 0, memoryview(data))
            self.adopt(part)
        except BaseException:
            part.close()
            raise
        return part

    def adopt(self, part: FileIO) -> None:
        """Give the part the mode and the owner of the file that it will replace, and sync it to the disk."""
        if self.status is not None and os.name == "posix":
            now = os.fstat(part.fileno())
            owner = self.status.st_uid, self.status.st_gid
            if (now.st_uid, now.st_gid) != owner:
                try:
                    os.fchown(part.fileno(), *owner)
                except PermissionError as error:
                    rule = "its owner cannot be kept: remove it first, or choose another name"
                    raise PermissionError(error.errno, rule, str(self.path)) from error
            os.fchmod(part.fileno(), stat.S_IMODE(self.status.st_mode))
        os.fsync(part.fileno())

    def replace(self, token: str) -> None:
        """Move the complete part to the target's path, durably."""
        self.part(token).replace(self.path)
        _sync_folder(self.path.parent)

    @contextmanager
    def replaced(self) -> Generator[str]:
        """The token of a part. The part replaces the target at the end of the block, and is removed if the block fails."""
        token = secrets.token_hex(TOKEN_DIGITS // 2)
        self.remove_stale()
        try:
            yield token
            self.replace(token)
        finally:
            self.part(token).unlink(missing_ok=True)

    def write(self, data: bytes) -> None:
        """Write the file atomically."""
        with self.replaced() as token:
            self.fill_part(token, data).close()

    def remove_stale(self, keep: str = "") -> None:
        """Remove parts of this target that no process holds, except the part with the token `keep`."""
        prefix = self.part("").name.removesuffix(".part")
        ours = re.compile(re.escape(prefix) + f"([0-9a-f]{{{TOKEN_DIGITS}}})\\.part")
        for path in self.path.parent.iterdir():
            match = ours.fullmatch(path.name)
            if match and match[1] != keep and _is_abandoned(path):
                path.unlink(missing_ok=True)


def open_alone(path: Path, mode: int = 0o666) -> FileIO:
    """Open or create a file for reading and writing. This process holds it alone until it is closed. Raises
    BlockingIOError while another process holds it.
    """
    flags = os.O_RDWR | os.O_CREAT | _FLAGS | getattr(os, "O_NOFOLLOW", 0)
    while True:
        file = FileIO(os.open(path, flags, mode), "r+")
        if _lock(file.fileno()) is False:
            file.close()
            raise BlockingIOError(errno.EAGAIN, "another process is writing this file: wait for it", str(path))
        # Another process may have removed the file before it was locked.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path, follow_symlinks=False)):
                return file
        file.close()


def write_all(part: FileIO, offset: int, data: memoryview) -> None:
    """Write all bytes at an offset. The system may accept only some in each call."""
    part.seek(offset)
    while data:
        data = data[part.write(data) :]


def _sync_folder(folder: Path) -> None:
    """Make a rename durable. Only POSIX systems can open a folder for this."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def check_regular(path: str, status: os.stat_result) -> None:
    """Raises FormatError for a FIFO, a device, a directory or a socket."""
    if not stat.S_ISREG(status.st_mode):
        raise FormatError(f"{path}: a regular file is needed, got {_kind(status)}: copy its content to a file first")


def _kind(status: os.stat_result) -> str:
    return next((name for test, name in _KINDS if test(status.st_mode)), "no regular file")


def _is_abandoned(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | _FLAGS | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return False
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode) and _lock(descriptor) is True
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool | None:
    """Lock a file until the descriptor is closed. False: another process holds it. None: locks are not available."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True
