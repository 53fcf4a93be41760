"""Runs by several processes, the checks that tasks make, and what they are sent."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from louver.formats.checkpoint import CheckpointFile
from louver.formats.regular import FormatError, Target, open_alone
from louver.models import compress, decompress, prune, shards, workers
from louver.models.by_ray import Cluster
from louver.models.shards import Seen, WriteShard
from louver.models.workers import ONE, Here, Needs, Task, Workers, WorkersError
from support.killed import KilledError
from support.sent_tasks import Elsewhere, let_run
from support.shards import content, layers, scattered

if TYPE_CHECKING:
    from support.command_line import Cli


@pytest.fixture
def by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Workers], None]:
    """Let any run be done by these workers."""
    return lambda them: let_run(monkeypatch, them, "louver.models.rewrite")


def every(source: Path, out: Path) -> dict[str, dict[str, bytes]]:
    """All commands one after the other. What they write."""
    # `down_proj` is contracted along its last axis.
    experts: dict[str, Any] = {"include": ("*experts*",), "axis": 2} if (source / "c.safetensors").exists() else {}
    prune(source, out / "part", exclude=("*0.*",), **experts)
    prune(source, out / "pruned", compressed=True, **experts)
    compress(out / "part", out / "compressed", **experts)
    decompress(out / "compressed", out / "back")
    return {path.name: content(path) for path in out.iterdir()}


@pytest.mark.parametrize("kind", [layers, scattered])
def test_any_order_and_any_process_give_the_same_bytes(
    kind: Callable[[Path, int], Path], by: Callable[[Workers], None], tmp_path: Path
) -> None:
    source = kind(tmp_path / "in", 1)
    (tmp_path / "here").mkdir()
    wanted = every(source, tmp_path / "here")
    (tmp_path / "there").mkdir()
    by(Elsewhere())
    assert every(source, tmp_path / "there") == wanted


def test_the_report_has_the_order_of_the_checkpoint(by: Callable[[Workers], None], tmp_path: Path) -> None:
    source = layers(tmp_path / "in", 2)
    here = prune(source, tmp_path / "here")
    by(Elsewhere())
    there = prune(source, tmp_path / "there")
    assert (there.rows, there.copied, there.nbytes) == (here.rows, here.copied, here.nbytes)


def test_no_weights_are_sent(by: Callable[[Workers], None], tmp_path: Path) -> None:
    source = layers(tmp_path / "in", 3, count=2, rows=1001, columns=1024)
    sizes: list[int] = []
    by(Elsewhere(sizes=sizes))
    prune(source, tmp_path / "out")
    compress(tmp_path / "out", tmp_path / "compressed")
    assert max(sizes) < 8 << 10 < 1001 * 1024


def test_processes(cli: Cli, tmp_path: Path) -> None:
    source = layers(tmp_path / "in", 4)
    assert cli("prune", source, tmp_path / "one").exit_code == 0
    done = cli("prune", source, tmp_path / "two", "--workers", "2")
    assert done.exit_code == 0, done.output
    assert content(tmp_path / "two") == content(tmp_path / "one")


def test_a_process_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What others wrote stays, and the next run, by other workers, ends it."""
    # So many files that some wait when the first is complete.
    source, out = layers(tmp_path / "in", 5, count=40), tmp_path / "out"
    seen: list[float] = []

    def kill(share: float) -> None:
        if not seen:
            pids = [pid for pool in pools for pid in pool._processes]  # pyright: ignore[reportPrivateUsage]
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
        seen.append(share)

    pools: list[ProcessPoolExecutor] = []

    class Kept(ProcessPoolExecutor):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            pools.append(self)

    monkeypatch.setattr(workers, "ProcessPoolExecutor", Kept)
    with pytest.raises(WorkersError, match="a process of the run was killed or crashed: the same command goes on"):
        prune(source, out, workers=2, progress=kill)
    assert list(out.glob(".*journal.part")) and not list(out.glob("*.safetensors"))
    prune(source, out)
    prune(source, tmp_path / "fresh")
    assert content(out) == content(tmp_path / "fresh")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_process_that_the_user_started_ends(how: signal.Signals, tmp_path: Path) -> None:
    """By the keyboard, which reaches all processes, or by force: its workers end too, and free their files."""
    source, out = layers(tmp_path / "in", 6, count=6, rows=2001, columns=1024), tmp_path / "out"
    command = [sys.executable, "-m", "louver", "prune", source, out, "--workers", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as driver:
        # The journal has a line for the run, then one for each tensor.
        while driver.poll() is None and not any(
            path.read_bytes().count(b"\n") > 1 for path in out.glob(".model*.part")
        ):
            time.sleep(0.02)
        (os.killpg if how == signal.SIGINT else os.kill)(driver.pid, how)
        assert driver.stderr is not None
        # Ends when no worker has it any more.
        said = driver.stderr.read()
    assert driver.returncode == (130 if how == signal.SIGINT else -how) and "Traceback" not in said, said
    assert any(out.glob(".*journal.part"))
    prune(source, out)
    prune(source, tmp_path / "fresh")
    assert content(out) == content(tmp_path / "fresh")


@pytest.mark.parametrize("text", ["x", "0", "-1", "", "ray:", "1.5"])
def test_other_workers(text: str, cli: Cli, checkpoint: Path) -> None:
    done = cli("prune", checkpoint, checkpoint.with_name("out.safetensors"), "--workers", text)
    assert done.exit_code == 2
    assert f"workers are a number of processes from 1, ray, or ray://HOST:PORT, got '{text}'" in done.stderr


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray(cli: Cli, checkpoint: Path) -> None:
    out = checkpoint.with_name("out.safetensors")
    done = cli("decompress", checkpoint, out, "--workers", "ray")
    assert done.exit_code == 1 and not out.exists()
    assert "ray is not installed: pip install 'louver[ray]'" in done.stderr


def test_what_no_machine_has() -> None:
    """Ray would wait for it for ever."""

    class Ray:
        def nodes(self) -> list[dict[str, Any]]:
            gone = {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}
            return [
                gone,
                {"Alive": True, "Resources": {"CPU": 2.0, "GPU": 1.0}},
                {"Alive": True, "Resources": {"CPU": 8.0}},
            ]

    cluster = Cluster(Ray(), None)
    for needs, text in (
        (Needs(9), "a task takes 9 processors, the threads of this process, and 0 GPUs of one machine"),
        (
            Needs(4, 1),
            "a task takes 4 processors, .* and 1 GPUs of one machine, got machines with 2 and 1, 8 and 0: set OMP",
        ),
    ):
        with pytest.raises(WorkersError, match=text):
            next(cluster.each([], needs))
    for needs in (ONE, Needs(8), Needs(2, 1)):
        assert list(cluster.each([], needs)) == []


def test_another_folder_under_the_same_path(by: Callable[[Workers], None], tmp_path: Path) -> None:
    """As on a machine where OUT is a local folder: nothing is left, not even the folder."""
    source, out = layers(tmp_path / "in", 6), tmp_path / "out"

    class Local(Elsewhere):
        def everywhere(self, task: Task[Any]) -> None:
            assert isinstance(task, Seen)
            super().everywhere(replace(task, journal=tmp_path / "local" / task.journal.name))

    by(Local())
    rule = "all workers read IN and write OUT in one file system, under the same paths"
    with pytest.raises(
        WorkersError, match=f"local is another folder on this machine, without the run's journal: {rule}"
    ):
        prune(source, out)
    assert not out.exists()


@pytest.mark.parametrize("command", [prune, compress])
def test_no_source(command: Callable[..., Any], by: Callable[[Workers], None], tmp_path: Path) -> None:
    """As on a machine that lacks the file system of IN."""
    prune(layers(tmp_path / "dense", 7), tmp_path / "in")

    def away(file: CheckpointFile) -> CheckpointFile:
        return replace(file, path=Path("/none/such") / file.path.name)

    def changed(task: Any) -> Any:
        if isinstance(task, WriteShard):
            return replace(task, seen=replace(task.seen, files=tuple(map(away, task.seen.files))))
        return replace(task, file=away(task.file))

    by(Elsewhere(changed))
    with pytest.raises(WorkersError, match=r"/none/such/4\.safetensors is not on this machine: all workers read IN"):
        command(tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_was_written_stays_when_a_machine_is_unfit(by: Callable[[Workers], None], tmp_path: Path) -> None:
    """The next run is refused too, and the one after it goes on from where the first was killed."""
    source, out = layers(tmp_path / "in", 8), tmp_path / "out"

    def kill(share: float) -> None:
        if share > 0.5:
            raise KilledError

    with pytest.raises(KilledError):
        prune(source, out, progress=kill)
    kept = content(out)

    def unfit(task: WriteShard) -> Any:
        raise WorkersError("no")

    by(Elsewhere(unfit))
    with pytest.raises(WorkersError, match="no"):
        prune(source, out)
    assert content(out).keys() == kept.keys()
    by(Here())
    read: list[str] = []
    real = WriteShard._write_tensor  # pyright: ignore[reportPrivateUsage]

    def counted(self: WriteShard, *arguments: Any) -> Any:
        read.append(arguments[-1])
        return real(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WriteShard, "_write_tensor", counted)
        prune(source, out)
    assert 0 < len(read) < 15
    prune(source, tmp_path / "fresh")
    assert content(out) == content(tmp_path / "fresh")


def test_a_full_disk_of_one_worker(by: Callable[[Workers], None], tmp_path: Path) -> None:
    source, out = layers(tmp_path / "in", 9), tmp_path / "out"

    def full(task: WriteShard) -> Any:
        if not task.target.path.name.startswith("2"):
            return task

        @dataclass
        class Full:
            def run(self) -> Generator[Any]:
                facts = task.run()
                yield next(facts)
                raise OSError(errno.ENOSPC, "No space left on device while writing 'w'", str(task.target.path))

        return Full()

    by(Elsewhere(full))
    with pytest.raises(OSError, match="No space left on device"):
        prune(source, out)
    assert not out.exists()


def test_a_worker_that_wrote_elsewhere(by: Callable[[Workers], None], tmp_path: Path) -> None:
    source, out = layers(tmp_path / "in", 10), tmp_path / "out"
    (tmp_path / "local").mkdir()
    by(Elsewhere(lambda task: replace(task, target=Target.of(tmp_path / "local" / task.target.path.name))))
    with pytest.raises(FormatError, match=r"4\.safetensors.*the unfinished file was removed: start again"):
        prune(source, out)
    assert not out.exists()


def test_a_file_that_changed_after_its_worker_ended(tmp_path: Path, by: Callable[[Workers], None]) -> None:
    source, out = layers(tmp_path / "in", 11), tmp_path / "out"

    class Late(Elsewhere):
        def each(self, tasks: Sequence[Task[Any]], needs: Needs = ONE) -> Generator[tuple[int, Iterable[Any]]]:
            for number, facts in super().each(tasks, needs):
                task = tasks[number]
                if isinstance(task, WriteShard) and number == 2:
                    # A complete file of another run with the same tensors.
                    other = tmp_path / "other" / task.target.path.name
                    os.replace(other, task.target.part(task.seen.key))
                yield number, facts

    prune(layers(tmp_path / "else", 12), tmp_path / "other")
    by(Late())
    with pytest.raises(FormatError, match="the file does not hold what its worker wrote: it was changed, start again"):
        prune(source, out)
    assert not out.exists()


@pytest.mark.parametrize("lease", [20.0, 0.2])
def test_a_lock_that_a_lost_worker_left(lease: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of files ends it after a while. The task waits for it, but not for ever."""
    monkeypatch.setattr(shards, "LEASE", lease)
    source, out = layers(tmp_path / "in", 13), tmp_path / "out"
    held: list[Any] = []
    real = WriteShard.run

    def locked(self: WriteShard) -> Generator[Any]:
        if not held:
            held.append(open_alone(self.target.part(self.seen.key)))
            if lease > 1:
                threading.Timer(0.3, held[0].close).start()
        yield from real(self)

    monkeypatch.setattr(WriteShard, "run", locked)
    if lease < 1:
        with pytest.raises(BlockingIOError, match="another process is writing this file: wait for it"):
            prune(source, out)
        held[0].close()
    prune(source, out)
    prune(source, tmp_path / "fresh")
    assert content(out) == content(tmp_path / "fresh")
