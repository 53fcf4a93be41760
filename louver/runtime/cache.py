"""Compiled kernels on disk, by the problem that they solve.

Two levels: a record (which kernel, how to launch it, what it uses) by problem key, and its cubin by the hash of the PTX
that it was assembled from, so that problems with equal PTX share one cubin. Each file is sealed: a checksum covers its
content and its name. A file that is damaged, or was made under another name, counts as missing and is replaced. When the
folder outgrows its bound, the files unused for longest go first.
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
"""Bound on a cache directory's size. A product kernel takes about 100 KB."""

WAIT_SECONDS = 120
"""The time that a process waits for another one that builds the same kernel, before it builds the kernel too."""

_FAMILY = b"louver-cache-"
_MAGIC = _FAMILY + b"2\n"
"""The first bytes of a sealed file: `_FAMILY` in every version, `_MAGIC` in this one."""

_SEAL_BYTES = len(_MAGIC) + 32
_ENTRY = re.compile(r"[0-9a-f]{64}\.(record|cubin|source)")
_LEFT_OVER = re.compile(rf"[0-9a-f]{{64}}\.(lock|[a-z]+\.[0-9a-f]{{16}}{re.escape(PART)})")
_LEFT_OVER_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """A compiled kernel.

    kernel: the entry's name. cubin: machine code. ptx_hash: from `ptx_hash()`. launch: facts that a launch needs
    (threads, cluster, bytes of shared memory, parameters, …). resources: what the assembler reported (registers,
    spills, warnings, version, …). Both hold JSON values only.
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
    """The folder of kernels and measured schedules: `louver-cache` below `LOUVER_CACHE_DIR`, `XDG_CACHE_HOME` or `~/.cache`."""
    base = os.environ.get("LOUVER_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    # os.path leaves the "~" of a user without a home folder, which OwnFolder refuses.
    return Path(os.path.expanduser(base)) / "louver-cache"


def problem_key(*parts: Any, target: str, ptxas: str, source: str | None = None) -> str:
    """The key of a problem: 64 hexadecimal digits.

    parts: the things that the kernel is made from, such as a problem, its schedule, tile IR's text: JSON values and dataclasses of
    them. target: as PTX names it. ptxas: the assembler's version. source: hash of Louver's own source, `source_hash()`
    by default. Raises TypeError for a part that has no canonical form.
    """
    whole = {"parts": parts, "target": target, "ptxas": ptxas, "source": source or source_hash()}
    return _hash(json.dumps(whole, sort_keys=True, separators=(",", ":"), default=by_fields))


def ptx_hash(ptx: str, *, ptxas: str) -> str:
    """The key of a cubin: 64 hexadecimal digits for a PTX text and the version of the assembler that reads it."""
    return _hash(f"{ptxas}\0{ptx}")


@functools.cache
def source_hash() -> str:
    """SHA-256 over Louver's Python files, their names included: a change makes all keys new.

    Once a process; the files are read only if their names, sizes, times and inodes are not those of a hash in the cache directory.
    """
    root = Path(__file__).resolve().parents[1]
    facts = _hash(json.dumps([str(root), sorted(_file_facts(str(root)))]))
    folder, name = OwnFolder(cache_directory()), f"{facts}.source"
    # Where nothing can be kept, the files are read again next time.
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
            # Files that are unpacked with a fixed time of change still get a new time of their status.
            yield entry.path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _source_hash(root: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


class KernelCache:
    """Records of compiled kernels, in memory and in an `OwnFolder`.

    directory: `cache_directory()` by default; made when first written. One that cannot be used leaves the memory, with one
    warning. max_bytes: bound on the directory's size.
    """

    def __init__(self, directory: Path | None = None, *, max_bytes: int = DEFAULT_BYTES) -> None:
        if max_bytes < 1:
            raise ValueError(f"max_bytes is at least 1, got {max_bytes}")
        self.folder = OwnFolder(cache_directory() if directory is None else directory)
        self.max_bytes = max_bytes
        self._memory: dict[str, KernelRecord] = {}
        self._lock = threading.Lock()
        self._building: dict[str, threading.Lock] = {}
        self._warned = False

    def get(self, key: str) -> KernelRecord | None:
        """The record of a problem key, or None."""
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

    def put(self, key: str, record: KernelRecord) -> None:
        """Keep a record. Raises TypeError when its facts are not JSON values."""
        described = {
            "kernel": record.kernel,
            "ptx_hash": record.ptx_hash,
            "launch": dict(record.launch),
            "resources": dict(record.resources),
        }
        text = json.dumps(described, sort_keys=True)
        with self._lock:
            self._memory[key] = record
            try:
                _write(self.folder, f"{record.ptx_hash}.cubin", record.cubin)
                _write(self.folder, f"{key}.record", text.encode())
                self._trim()
            except OSError as error:
                self._warn(error)

    def get_or_build(self, key: str, build: Callable[[], KernelRecord]) -> KernelRecord:
        """The record of a key, built and kept when it is missing.

        Of all threads and processes that share the directory, one builds and the others wait. A process builds without waiting
        where files cannot be locked or written, and after `WAIT_SECONDS` with a warning.
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
                # `put` says what is wrong, if it fails too.
                pass
            found = self.get(key)
            if found is None:
                found = build()
                self.put(key, found)
        return found

    def _read_record(self, key: str) -> KernelRecord | None:
        text = _read(self.folder, f"{key}.record")
        if text is None:
            return None
        described = json.loads(text)
        cubin = _read(self.folder, f"{described['ptx_hash']}.cubin")
        return None if cubin is None else KernelRecord(cubin=cubin, **described)

    def _trim(self) -> None:
        files = self.folder.files()
        # A young one is another process's write or lock under way; an old one was left by a process that was killed.
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
            # One that has gone meanwhile, or is refused, is left alone.
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
    """The process's kernel cache, in `cache_directory()` as it is when this is first called."""
    return KernelCache()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read(folder: OwnFolder, name: str) -> bytes | None:
    """The content that `_write` put into a file; None for no file, or a file without the seal of this name and content."""
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
    """A record as JSON values. Raises TypeError for anything else, which a problem is not made of."""
    if is_dataclass(part) and not isinstance(part, type):
        # The type's name keeps apart records with equal fields, nested ones too.
        return {"type": type(part).__name__, **{f.name: getattr(part, f.name) for f in fields(part)}}
    raise TypeError(f"a problem is made of JSON values and dataclasses of them, got {type(part).__name__}")
