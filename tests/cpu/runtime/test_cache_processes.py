"""Processes that start together with nothing compiled, and processes that are killed meanwhile."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from louver.ptx.assembler import find_ptxas
from louver.runtime import cache as module
from louver.runtime import folder as folder_module
from louver.runtime.cache import KernelCache, KernelRecord, problem_key, ptx_hash

KEY = problem_key("axpy", target="sm_90a", ptxas="1", source="s")

BUILD = """
import hashlib, sys
from pathlib import Path
from louver.ptx import assembler
assembler.find_ptxas = lambda: Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
"""

AXPY = (
    BUILD.replace(
        "\nprint",
        """
from louver.runtime.cache import KernelRecord, kernel_cache, ptx_hash
from support import kernels
print""",
    )
    + """
def build():
    return KernelRecord("axpy", assembler.assemble(kernels.AXPY).cubin, ptx_hash(kernels.AXPY, ptxas="1"))
record = kernel_cache().get_or_build(sys.argv[2], build)
print(hashlib.sha256(record.cubin).hexdigest())
"""
)

PRODUCT = (
    BUILD.replace(
        "\nprint",
        """
from louver.frontend.problem import Problem
from louver.isa.targets import SM_90A
from louver.library.compiled import record_of
from louver.choose.configure import choose
print""",
    )
    + """
schedule = choose(Problem("linear"), 4096, 8192, SM_90A, 132, aligned_output=True)
print(hashlib.sha256(record_of(Problem("linear"), schedule, "sm_90a").cubin).hexdigest())
"""
)


class Processes:
    """Python processes with a cache directory, a temporary folder and an assembler that counts its runs and takes its time."""

    def __init__(self, root: Path, program: str, seconds: float) -> None:
        self.cache, self.temporary, self.runs = root / "cache", root / "temporary", root / "runs"
        self.temporary.mkdir()
        self.runs.touch()
        self.assembler = root / "ptxas"
        self.assembler.write_text(f'#!/bin/sh\necho run >> {self.runs}\nsleep {seconds}\nexec {find_ptxas()} "$@"\n')
        self.assembler.chmod(0o755)
        self._program = program

    def start(self) -> subprocess.Popen[str]:
        """A process that waits for a line of its standard input."""
        changes = {
            "LOUVER_CACHE_DIR": str(self.cache),
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        made = subprocess.Popen(
            [sys.executable, "-c", self._program, str(self.assembler), KEY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | changes,
            start_new_session=True,
        )
        assert made.stdout is not None
        assert made.stdout.readline() == "ready\n", made.communicate()[1]
        return made

    def together(self, count: int) -> list[str]:
        """The output of so many processes that go at the same time."""
        started = [self.start() for _ in range(count)]
        for each in started:
            self.go(each)
        printed = [each.communicate(timeout=120) for each in started]
        assert not any(each.returncode for each in started), printed
        assert not any(errors for _, errors in printed), printed
        return [out for out, _ in printed]

    def go(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()

    @property
    def count(self) -> int:
        """The number of times that the assembler has been run."""
        return len(self.runs.read_text().splitlines())


def test_sixteen_cold_processes_assemble_a_kernel_once(tmp_path: Path) -> None:
    processes = Processes(tmp_path, AXPY, 0.3)
    printed = processes.together(16)
    assert len(set(printed)) == 1 and len(printed[0]) == 65
    assert processes.count == 1
    assert sorted(path.suffix for path in processes.cache.rglob("*.*")) == [".cubin", ".record"]
    assert not list(processes.temporary.iterdir())


def test_cold_processes_compile_a_product_once(tmp_path: Path) -> None:
    processes = Processes(tmp_path, PRODUCT, 0)
    assert len(set(processes.together(6))) == 1
    assert processes.count == 1
    assert not list(processes.temporary.iterdir())


@pytest.mark.parametrize("group", [False, True])
def test_killed_processes_leave_nothing_that_hinders_the_next(
    tmp_path: Path, group: bool, rng: np.random.Generator
) -> None:
    """Killed while they read, assemble, write, or wait for another; group: with the assembler."""
    processes = Processes(tmp_path, AXPY, 0.1)
    (expected,) = processes.together(1)
    allowed = re.compile(r"[0-9a-f]{64}\.(record|cubin|source|lock|[a-z]+\.[0-9a-f]{16}\.part)")
    for moment in np.linspace(0, 0.25, 6):
        for path in processes.cache.rglob("*.record"):
            path.unlink()
        victims = [processes.start() for _ in range(2)]
        for each in victims:
            processes.go(each)
        time.sleep(float(moment))
        for each in victims:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL) if group else each.kill()
            each.communicate()
        # Were a lock left, this process would wait, warn and build; a warning is an error here.
        assert processes.together(1) == [expected]
        assert not list(processes.temporary.iterdir())
        assert all(allowed.fullmatch(path.name) for path in processes.cache.glob("*/*"))


def record(rng: np.random.Generator) -> KernelRecord:
    return KernelRecord("k", rng.bytes(2000), ptx_hash(rng.bytes(8).hex(), ptxas="1"))


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[KernelCache]:
    """A cache where another holder has the lock of `KEY`."""
    cache = KernelCache(tmp_path / "cache")
    with cache.folder.locked(f"{KEY}.lock", 0):
        yield cache


def test_a_holder_that_takes_too_long_is_not_waited_for(
    locked: KernelCache, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    kept = record(rng)
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.05)
    with pytest.warns(
        UserWarning, match=f"has held the lock {KEY}.lock for 0.05 s: this process builds the kernel too"
    ):
        assert locked.get_or_build(KEY, lambda: kept) is kept
    assert KernelCache(locked.folder.path).get(KEY) == kept


def test_where_files_cannot_be_locked_kernels_are_built_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    def none(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    kept = record(rng)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert KernelCache(tmp_path).get_or_build(KEY, lambda: kept) is kept
        assert KernelCache(tmp_path).get(KEY) == kept


def test_a_directory_that_is_read_only_still_gives_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    kept, opened = record(rng), os.open

    def read_only(path: str, flags: int, *rest: int, **folder: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, "Read-only file system")
        return opened(path, flags, *rest, **folder)

    KernelCache(tmp_path).put(KEY, kept)
    monkeypatch.setattr(folder_module.os, "open", read_only)
    cache = KernelCache(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.get_or_build(KEY, lambda: record(rng)) == kept
    with pytest.warns(UserWarning, match=r"failed \(Read-only file system\): each process compiles again"):
        assert cache.get_or_build(problem_key("another", target="sm_90a", ptxas="1", source="s"), lambda: kept) is kept


def test_a_build_that_fails_releases_the_lock(tmp_path: Path, rng: np.random.Generator) -> None:
    def fails() -> KernelRecord:
        raise OSError("ptxas is gone")

    with pytest.raises(OSError, match="ptxas is gone"):
        KernelCache(tmp_path).get_or_build(KEY, fails)
    kept = record(rng)
    assert KernelCache(tmp_path).get_or_build(KEY, lambda: kept) is kept
    assert {path.suffix for path in tmp_path.iterdir()} == {".record", ".cubin"}
