"""A folder of one user. Any number of processes can read its files, write them atomically, and lock them."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

PART = ".part"
"""Suffix of the name of a file that is being written."""

_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class OwnFolder:
    """A folder at `path`, and the files directly in it.

    The first write creates the folder, with mode 0700. A folder or file is refused if it belongs to another user, if
    others can write to it, or if it is a symbolic link. All methods raise OSError; FileNotFoundError if the folder or
    file does not exist.
    """

    path: Path

    @contextlib.contextmanager
    def opened(self, *, create: bool = False) -> Generator[int]:
        """The folder's descriptor, for functions of `os` that take `dir_fd`. create: create the folder if it is
        missing.
        """
        if str(self.path).startswith("~"):
            raise PermissionError(f"this user has no home folder, and so no {self.path}")
        if not hasattr(os, "O_DIRECTORY"):
            raise PermissionError("this system opens files by their paths only")
        if create:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                self.path.mkdir(mode=0o700)
        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            _check(os.fstat(handle), self.path)
            yield handle
        finally:
            os.close(handle)

    def read(self, name: str) -> bytes:
        """The content of a file. Sets its modification time to the present, if possible."""
        with self.opened() as folder, os.fdopen(self._open(name, folder), "rb", buffering=0) as file:
            with contextlib.suppress(OSError):
                os.utime(file.fileno())
            return file.readall()

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically. It replaces an existing file."""
        with self.opened(create=True) as folder:
            part = f"{name}.{os.urandom(8).hex()}{PART}"
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(part, dir_fd=folder)
                raise

    def files(self) -> dict[str, os.stat_result]:
        """The status of each regular file that belongs to this user, by name."""
        found: dict[str, os.stat_result] = {}
        with self.opened() as folder, os.scandir(folder) as entries:
            for entry in entries:
                # Another process may remove a file between the listing and this call.
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                        found[entry.name] = status
        return found

    def remove(self, name: str) -> None:
        """Remove a file. A missing file is not an error."""
        with self.opened() as folder, contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)

    @contextlib.contextmanager
    def locked(self, name: str, seconds: float) -> Generator[None]:
        """Hold a lock, which one thread of one process can hold at a time. The operating system releases it if the
        process ends in any way.

        The file `name` represents the lock, and is removed at the end. Raises TimeoutError after a wait of `seconds`.
        """
        with self.opened(create=True) as folder:
            handle = _lock(folder, name, seconds)
            try:
                yield
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=folder)
                os.close(handle)

    def _open(self, name: str, folder: int) -> int:
        # Without O_NONBLOCK, opening a FIFO would wait for a writer.
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        try:
            status = os.fstat(handle)
            _check(status, self.path / name)
            if not stat.S_ISREG(status.st_mode):
                raise PermissionError(f"{self.path / name} must be a regular file")
        except BaseException:
            os.close(handle)
            raise
        return handle


def _check(status: os.stat_result, path: Path) -> None:
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{path} must belong to this user ({os.geteuid()}), got one of user {status.st_uid}")
    if status.st_mode & 0o022:
        mode = f"{stat.S_IMODE(status.st_mode):03o}"
        raise PermissionError(f"{path} must not be writable for others, got mode {mode}: chmod go-w {path}")


def _lock(folder: int, name: str, seconds: float) -> int:
    import fcntl

    end = time.monotonic() + seconds
    while True:
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600, dir_fd=folder)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The previous holder may have removed the file after this process opened it. A lock on a removed file is
            # useless.
            if os.fstat(handle).st_nlink:
                return handle
        except BlockingIOError:
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        if time.monotonic() > end:
            raise TimeoutError(f"another process has held the lock {name} for {seconds:g} s")
        time.sleep(_POLL_SECONDS)
