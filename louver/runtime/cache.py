"""Compiled kernels kept on disk, by the problem that they solve.

Two levels: a record (which kernel, how to launch it, what it uses) by problem key, and its cubin by the hash of the PTX
that it was assembled from, so that problems with equal PTX share one cubin. Files are written whole or not at all, carry a
checksum, and are never changed, so any number of processes may share a directory; a damaged file counts as missing and is
removed. When the directory outgrows its bound, the files unused for longest go first.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

DEFAULT_BYTES = 512 * 2**20
"""Bound on a cache directory's size. A product kernel takes about 100 KB."""

_MAGIC = b"louver-cache-1\n"
_DIGEST = 32
_PART = ".part"
_PART_SECONDS = 3600


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
            raise ValueError("a record has a kernel's name and its cubin")
        if len(self.ptx_hash) != 64 or not set(self.ptx_hash) <= set("0123456789abcdef"):
            raise ValueError(f"ptx_hash is 64 hexadecimal digits, from ptx_hash(), got {self.ptx_hash!r}")


def cache_directory() -> Path:
    """Where kernels are kept: `LOUVER_CACHE_DIR`, else `louver` below `XDG_CACHE_HOME` or `~/.cache`."""
    named = os.environ.get("LOUVER_CACHE_DIR")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "louver"


def problem_key(*parts: Any, target: str, ptxas: str, source: str | None = None) -> str:
    """The key of a problem: 64 hexadecimal digits.

    parts: what the kernel is made from, such as a problem, its schedule, tile IR's text: JSON values and dataclasses of
    them. target: as PTX names it. ptxas: the assembler's version. source: hash of Louver's own source, `source_hash()`
    by default. Raises TypeError for a part that has no canonical form.
    """
    whole = {"parts": parts, "target": target, "ptxas": ptxas, "source": source or source_hash()}
    return _hash(json.dumps(whole, sort_keys=True, separators=(",", ":"), default=_canonical))


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
    cache = KernelCache()
    path = cache.directory / "sources" / facts[:2] / f"{facts}.txt"
    kept = cache.read(path)
    if kept is not None:
        return kept.decode()
    found = _source_hash(root)
    # Where nothing can be kept, the files are read again next time.
    with contextlib.suppress(OSError):
        cache.write(path, found.encode())
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
    """Records of compiled kernels, in memory and in a directory.

    directory: `cache_directory()` by default; made when first written. One that cannot be written leaves the memory,
    with one warning. max_bytes: bound on the directory's size.
    """

    def __init__(self, directory: Path | None = None, *, max_bytes: int = DEFAULT_BYTES) -> None:
        if max_bytes < 1:
            raise ValueError(f"max_bytes is at least 1, got {max_bytes}")
        self.directory = cache_directory() if directory is None else directory
        self.max_bytes = max_bytes
        self._memory: dict[str, KernelRecord] = {}
        self._lock = threading.Lock()
        self._building: dict[str, threading.Lock] = {}
        self._warned = False

    def get(self, key: str) -> KernelRecord | None:
        """The record of a problem key, or None."""
        with self._lock:
            if key not in self._memory:
                found = self._read_record(key)
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
                if self.read(self._cubin_path(record.ptx_hash)) is None:
                    self.write(self._cubin_path(record.ptx_hash), record.cubin)
                self.write(self._record_path(key), text.encode())
                self._trim()
            except OSError as error:
                self._warn(error)

    def cubin(self, ptx_hash: str) -> bytes | None:
        """The cubin that a PTX text was assembled to before, or None; `ptx_hash` as the function of that name gives it."""
        return self.read(self._cubin_path(ptx_hash))

    def get_or_build(self, key: str, build: Callable[[], KernelRecord]) -> KernelRecord:
        """The record of a key, built and kept when it is missing.

        Threads of this process build a key once; processes may build the same one at the same time, which is harmless.
        """
        found = self.get(key)
        if found is not None:
            return found
        with self._lock:
            building = self._building.setdefault(key, threading.Lock())
        with building:
            found = self.get(key)
            if found is None:
                found = build()
                self.put(key, found)
        return found

    def clear(self) -> None:
        """Forget everything, the directory's files included."""
        with self._lock:
            self._memory.clear()
            for path, _, _ in self._files():
                with contextlib.suppress(OSError):
                    path.unlink()

    def _record_path(self, key: str) -> Path:
        return self.directory / "records" / key[:2] / f"{key}.json"

    def _cubin_path(self, ptx_hash: str) -> Path:
        return self.directory / "cubins" / ptx_hash[:2] / f"{ptx_hash}.cubin"

    def _read_record(self, key: str) -> KernelRecord | None:
        text = self.read(self._record_path(key))
        if text is None:
            return None
        described = json.loads(text)
        cubin = self.read(self._cubin_path(described["ptx_hash"]))
        return None if cubin is None else KernelRecord(cubin=cubin, **described)

    def read(self, path: Path) -> bytes | None:
        """What `write` put into a file; None where there is none, or a damaged one, which is removed."""
        try:
            data = path.read_bytes()
        except OSError:
            return None
        content = data[len(_MAGIC) + _DIGEST :]
        if data != _sealed(content):
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return content

    def write(self, path: Path, content: bytes) -> None:
        """Write a file whole, with a checksum. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=_PART)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_sealed(content))
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _files(self) -> list[tuple[Path, int, float]]:
        found: list[tuple[Path, int, float]] = []
        for level in ("records", "cubins", "sources"):
            for path in (self.directory / level).glob("*/*"):
                # Another process may remove a file between listing and asking.
                with contextlib.suppress(OSError):
                    status = path.stat()
                    found.append((path, status.st_size, status.st_mtime))
        return found

    def _trim(self) -> None:
        # A young partial file is another process's write under way; an old one was left by a crash.
        now = time.time()
        whole = (file for file in self._files() if file[0].suffix != _PART or now - file[2] > _PART_SECONDS)
        files = sorted(whole, key=lambda file: file[2])
        total = sum(size for _, size, _ in files)
        for path, size, _ in files:
            if total <= self.max_bytes:
                return
            path.unlink(missing_ok=True)
            total -= size

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the kernel cache {self.directory} cannot be written ({error.strerror or error}): kernels are kept in "
                "memory only. Set LOUVER_CACHE_DIR to a directory that can be written.",
                stacklevel=4,
            )


@functools.cache
def kernel_cache() -> KernelCache:
    """The process's kernel cache, in `cache_directory()` as it is when this is first called."""
    return KernelCache()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _sealed(content: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(content).digest() + content


def _canonical(part: Any) -> Any:
    if is_dataclass(part) and not isinstance(part, type):
        # The type's name keeps apart records with equal fields, nested ones too.
        return {"type": type(part).__name__, **{f.name: getattr(part, f.name) for f in fields(part)}}
    raise TypeError(f"a problem's key is made of JSON values and dataclasses of them, got {type(part).__name__}")
