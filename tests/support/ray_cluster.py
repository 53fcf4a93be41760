"""Ray's processes of several machines on this one, as `ray start` starts them, each in a namespace of its own if that is asked for."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

STORE = 80 << 20
"""Bytes of shared memory of a machine, about the least that Ray takes. A checkpoint of the tests' sizes would fill it."""

START = (sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--object-store-memory", str(STORE))

# Other programs of this machine may not send tasks.
SECRET = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
"""What the environment of each process of the cluster says, drivers included. Ray reads it once a process."""

NAMESPACE = ("unshare", "--map-root-user", "--mount", "sh", "-c")
"""A command in a shell with mounts of its own."""

AGENTS = (b"ray::IDLE", b"ray::DashboardAgent", b"ray::RuntimeEnvAgent", b"ray::SPILL", b"ray::RESTORE")


def can_mount() -> bool:
    """Whether this machine gives a shell mounts of its own."""
    return (
        shutil.which("unshare") is not None and not subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode
    )


@dataclass
class Machines:
    """A cluster. address: of its head. client: for programs on machines outside of it."""

    address: str
    client: str
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])

    @contextmanager
    def more(self, cpus: int = 1, gpus: int = 0, inside: Sequence[str] = ()) -> Iterator[int]:
        """Another machine, until the end of the block. inside: a command that runs another one. Yields the raylet's pid."""
        known = set(self.raylets())
        options = ("--address", self.address, "--num-cpus", str(cpus), "--num-gpus", str(gpus))
        # A free port: agents of several machines meet here.
        process = _started((*inside, *START, *options, "--dashboard-agent-listen-port", "0"))
        self.processes.append(process)
        try:
            (raylet,) = set(self.raylets()) - known
            yield raylet
        finally:
            _stopped(process)
            self.processes.remove(process)

    def raylets(self) -> list[int]:
        """The processes that stand for machines."""
        found = [pid for process in self.processes for pid in _descendants(process.pid)]
        return [pid for pid in found if b"raylet/raylet" in _command(pid)]

    def busy(self) -> list[tuple[int, int]]:
        """Machine and process of each task that runs now."""
        return [
            (raylet, pid)
            for raylet in self.raylets()
            for pid in _children(raylet)
            if _command(pid).startswith(b"ray::") and not _command(pid).startswith(AGENTS)
        ]


@contextmanager
def machines(cpus: int = 1) -> Iterator[Machines]:
    """A cluster of one machine, until the end of the block."""
    with socket.socket() as one, socket.socket() as other:
        for free in (one, other):
            free.bind(("127.0.0.1", 0))
        port, client = (str(free.getsockname()[1]) for free in (one, other))
    ports = ("--port", port, "--ray-client-server-port", client)
    process = _started(
        (*START, "--head", *ports, "--num-cpus", str(cpus), "--num-gpus", "0", "--include-dashboard", "false")
    )
    made = Machines(f"127.0.0.1:{port}", f"ray://127.0.0.1:{client}", [process])
    try:
        yield made
    finally:
        _stopped(process)


def _started(command: Sequence[str], tries: int = 3) -> subprocess.Popen[bytes]:
    """A machine that has joined its cluster. Ray gives a machine 30 s, which a busy one may not keep: then it starts again."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command, env={**os.environ, **SECRET}, stdout=said, stderr=said, start_new_session=True
        )
        until = time.monotonic() + 60
        while time.monotonic() < until and process.poll() is None:
            if b"Ray runtime started" in os.pread(said.fileno(), 1 << 20, 0):
                return process
            time.sleep(0.05)
        _stopped(process)
        text = os.pread(said.fileno(), 1 << 20, 0)
    if b"timed out during startup" in text and tries > 1:
        return _started(command, tries - 1)
    raise AssertionError(text.decode())


def _stopped(process: subprocess.Popen[bytes]) -> None:
    """End a machine as a power cut does: Ray's own end waits for tasks."""
    for pid in _descendants(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _descendants(pid: int) -> list[int]:
    below = _children(pid)
    return [pid, *(each for child in below for each in _descendants(child))]


def _children(pid: int) -> list[int]:
    try:
        text = "".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    except OSError:
        return []
    return [int(child) for child in text.split()]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
