"""A cache of compiled kernels on disk, by the problem that they solve.

| file | key | content |
|---|---|---|
| record | problem | the kernel, the data of its launch, the resources that it uses |
| cubin | hash of the PTX | machine code. Problems with equal PTX share a cubin |
| needs | problem | what a call must fulfil, of a kernel that was not compiled because a call did not |

A checksum covers the content and the name of each file. A file that is damaged, or that has another name than at its
creation, counts as missing and is replaced. If the folder exceeds its size limit, the least recently used files are
removed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from louver.runtime.folder import PART, OwnFolder

DEFAULT_BYTES = 512 * 2**20
"""Size limit of a cache directory, in bytes. A product kernel takes about 100 KB."""

WAIT_SECONDS = 120
"""Time for which a process waits for another process that builds the same kernel. After it, the process builds the
kernel too.
"""

_FAMILY = b"louver-cache-"
_MAGIC = _FAMILY + b"3\n"
"""The first bytes of a file in the cache: `_FAMILY` in every version of the format, `_MAGIC` in this version."""

_SEAL_BYTES = len(_MAGIC) + 32
_ENTRY = re.compile(r"[0-9a-f]{64}\.(record|cubin|needs|source)")
_LEFT_OVER = re.compile(rf"[0-9a-f]{{64}}\.(lock|[a-z]+\.[0-9a-f]{{16}}{re.escape(PART)})")
_LEFT_OVER_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """A compiled kernel.

    kernel: name of the kernel's entry point.
    cubin: machine code.
    ptx_hash: the result of `ptx_hash()`.
    launch: data for a launch: threads, cluster, bytes of shared memory, parameters, and others. JSON values only.
    resources: the assembler's report: registers, spills, warnings, version, and others. JSON values only.
    """

    kernel: str
    cubin: bytes
    ptx_hash: str
    launch: Mapping[str, Any] = field(default_factory=dict[str, Any])
    resources: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if not self.kernel or not self.cubin:
            raise ValueError("a record needs a kernel's name and its cubin")
        if len(self.ptx_hash) != 64 or not set(self.ptx_hash) <= set("0123456789abcdef"):
            raise ValueError(f"ptx_hash is 64 hexadecimal digits, from ptx_hash(), got {self.ptx_hash!r}")


def cache_directory() -> Path:
    """The folder of kernels and measured schedules: `louver-cache` below `LOUVER_CACHE_DIR`, `XDG_CACHE_HOME` or
    `~/.cache`.
    """
    base = os.environ.get("LOUVER_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    # For a user without a home folder, os.path keeps the "~". OwnFolder refuses such a path.
    return Path(os.path.expanduser(base)) / "louver-cache"


def problem_key(*parts: Any, target: str, ptxas: str, source: str | None = None) -> str:
    """The key of a problem: 64 hexadecimal digits.

    parts: everything that determines the kernel, such as a problem, its schedule, the text of tile IR. JSON values, and
        dataclasses of such values.
    target: PTX target.
    ptxas: version of the assembler.
    source: hash of Louver's source, by default `source_hash()`.

    Raises TypeError for a part that has no canonical form.
    """
    whole = {"parts": parts, "target": target, "ptxas": ptxas, "source": source or source_hash()}
    return _hash(json.dumps(whole, sort_keys=True, separators=(",", ":"), default=by_fields))


def ptx_hash(ptx: str, *, ptxas: str) -> str:
    """The key of a cubin: 64 hexadecimal digits for a PTX text and the version of the assembler that reads it."""
    return _hash(f"{ptxas}\0{ptx}")


@functools.cache
def source_hash() -> str:
    """SHA-256 of the names and contents of Louver's Python files. A change of the source changes all keys.

    Computed once a process. The cache directory keeps the hash by the names, sizes, times and inodes of the files. If
    these are unchanged, the files are not read.
    """
    root = Path(__file__).resolve().parents[1]
    facts = _hash(json.dumps([str(root), sorted(_file_facts(str(root)))]))
    folder, name = OwnFolder(cache_directory()), f"{facts}.source"
    # If the hash cannot be kept, the next process reads the files again.
    with contextlib.suppress(OSError):
        kept = _read(folder, name)
        if kept is not None:
            return kept.decode()
    found = _source_hash(root)
    with contextlib.suppress(OSError):
        _write(folder, name, found.encode())
    return found


def _file_facts(folder: str) -> Iterator[tuple[str, int, int, int, int]]:
    for entry in os.scandir(folder):
        if entry.is_dir():
            yield from _file_facts(entry.path)
        elif entry.name.endswith(".py"):
            status = entry.stat()
            # Archives can set the modification time of unpacked files to a fixed value, but not the status change time.
            yield entry.path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _source_hash(root: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


class KernelCache:
    """Records of compiled kernels, and what others need of a call, in memory and in an `OwnFolder`.

    directory: by default `cache_directory()`. The first write creates it. If it cannot be used, the cache is in memory
        only, with one warning.
    max_bytes: size limit of the directory.
    """

    def __init__(self, directory: Path | None = None, *, max_bytes: int = DEFAULT_BYTES) -> None:
        if max_bytes < 1:
            raise ValueError(f"max_bytes is at least 1, got {max_bytes}")
        self.folder = OwnFolder(cache_directory() if directory is None else directory)
        self.max_bytes = max_bytes
        self._memory: dict[str, KernelRecord] = {}
        self._needs: dict[str, Mapping[str, Any]] = {}
        self._lock = threading.Lock()
        self._building: dict[str, threading.Lock] = {}
        self._warned = False

    def get(self, key: str) -> KernelRecord | None:
        """The record of a problem key; None if there is none."""
        with self._lock:
            if key not in self._memory:
                try:
                    found = self._read_record(key)
                except OSError as error:
                    self._warn(error)
                    return None
                if found is None:
                    return None
                self._memory[key] = found
            return self._memory[key]

    def with_text(self, text: str) -> KernelRecord | None:
        """A record in memory whose cubin is of a PTX text, given by its `ptx_hash`."""
        with self._lock:
            return next((record for record in self._memory.values() if record.ptx_hash == text), None)

    def put(self, key: str, record: KernelRecord) -> None:
        """Keep a record. Raises TypeError if `launch` or `resources` are not JSON values."""
        described = {
            "kernel": record.kernel,
            "ptx_hash": record.ptx_hash,
            "launch": dict(record.launch),
            "resources": dict(record.resources),
        }
        text = json.dumps(described, sort_keys=True)
        with self._lock:
            self._memory[key] = record
            self._write({f"{record.ptx_hash}.cubin": record.cubin, f"{key}.record": text.encode()})

    def needs(self, key: str) -> Mapping[str, Any] | None:
        """What a call of a problem key must fulfil, as it was given to `put_needs`; None if that is unknown."""
        with self._lock:
            if key not in self._needs:
                try:
                    found = _read(self.folder, f"{key}.needs")
                except OSError as error:
                    self._warn(error)
                    return None
                if found is None:
                    return None
                self._needs[key] = json.loads(found)
            return self._needs[key]

    def put_needs(self, key: str, needs: Mapping[str, Any]) -> None:
        """Keep what a call must fulfil. Raises TypeError unless these are JSON values."""
        text = json.dumps(dict(needs), sort_keys=True)
        with self._lock:
            self._needs[key] = needs
            self._write({f"{key}.needs": text.encode()})

    def get_or_build(self, key: str, build: Callable[[], KernelRecord]) -> KernelRecord:
        """The record of a key. If it is missing, it is built and kept.

        Of all threads and processes that share the directory, one builds and the others wait. If files cannot be locked
        or written, a process builds without waiting. After `WAIT_SECONDS`, a waiting process warns and builds.
        """
        found = self.get(key)
        if found is not None:
            return found
        with self._lock:
            building = self._building.setdefault(key, threading.Lock())
        with building, contextlib.ExitStack() as held:
            try:
                held.enter_context(self.folder.locked(f"{key}.lock", WAIT_SECONDS))
            except TimeoutError as error:
                warnings.warn(f"{error}: this process builds the kernel too", stacklevel=3)
            except OSError:
                # If `put` also fails, it warns.
                pass
            found = self.get(key)
            if found is None:
                found = build()
                self.put(key, found)
        return found

    def _write(self, files: Mapping[str, bytes]) -> None:
        try:
            for name, content in files.items():
                _write(self.folder, name, content)
            self._trim()
        except OSError as error:
            self._warn(error)

    def _read_record(self, key: str) -> KernelRecord | None:
        text = _read(self.folder, f"{key}.record")
        if text is None:
            return None
        described = json.loads(text)
        cubin = _read(self.folder, f"{described['ptx_hash']}.cubin")
        return None if cubin is None else KernelRecord(cubin=cubin, **described)

    def _trim(self) -> None:
        files = self.folder.files()
        # Another process may be using a recent part or lock. An old one was left by a process that was killed.
        oldest = time.time() - _LEFT_OVER_SECONDS
        for name, status in files.items():
            if _LEFT_OVER.fullmatch(name) and status.st_mtime < oldest:
                self.folder.remove(name)
        entries = {name: status for name, status in files.items() if _ENTRY.fullmatch(name)}
        total = sum(status.st_size for status in entries.values())
        for name, status in sorted(entries.items(), key=lambda entry: entry[1].st_mtime):
            if total <= self.max_bytes:
                return
            total -= status.st_size
            # A file may be gone by now, or refused. Both cases are ignored.
            with contextlib.suppress(OSError):
                if self.folder.read(name).startswith(_FAMILY):
                    self.folder.remove(name)

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the kernel cache {self.folder.path} failed ({error.strerror or error}): each process compiles again what it "
                "does not find there. Set LOUVER_CACHE_DIR to a folder of this user's own.",
                stacklevel=4,
            )


@functools.cache
def kernel_cache() -> KernelCache:
    """The kernel cache of the process. The first call decides the folder, by `cache_directory()`."""
    return KernelCache()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read(folder: OwnFolder, name: str) -> bytes | None:
    """The content of a file that `_write` wrote. None if there is no file, or if its checksum is wrong."""
    try:
        data = folder.read(name)
    except FileNotFoundError:
        return None
    seal, content = data[:_SEAL_BYTES], data[_SEAL_BYTES:]
    return content if seal == _seal(name, content) else None


def _write(folder: OwnFolder, name: str, content: bytes) -> None:
    folder.write(name, _seal(name, content) + content)


def _seal(name: str, content: bytes) -> bytes:
    digest = hashlib.sha256(f"{name}\0".encode())
    digest.update(content)
    return _MAGIC + digest.digest()


def by_fields(part: Any) -> Any:
    """A dataclass as JSON values. Raises TypeError for any other type, which a problem must not contain."""
    if is_dataclass(part) and not isinstance(part, type):
        # The type's name distinguishes dataclasses with equal fields, also nested ones.
        return {"type": type(part).__name__, **{f.name: getattr(part, f.name) for f in fields(part)}}
    raise TypeError(f"a problem is made of JSON values and dataclasses of them, got {type(part).__name__}")
