"""Checkpoints written by a cluster of Ray: machines that die, drivers that die, machines that are unfit. Run by `make test-ray`."""

from __future__ import annotations

import os
import platform
import random
import runpy
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import louver
from louver.formats.regular import FormatError
from louver.models import compress, decompress, prune
from louver.models.workers import WorkersError
from support.ray_cluster import NAMESPACE, SECRET, Machines, can_mount, machines
from support.shards import content, layers, scattered

ROOT = Path(__file__).resolve().parents[2]

needs_namespace = pytest.mark.skipif(not can_mount(), reason="this machine has no user namespaces")

PROGRAM = """
import sys
from louver.models import prune
print("ready", flush=True)
prune(sys.argv[1], sys.argv[2], compressed=True, workers="ray", progress=lambda share: print(share, flush=True))
"""


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    # Before Ray is imported, which reads them.
    for name, value in SECRET.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def two() -> Iterator[Machines]:
    """Two machines of a processor each."""
    with machines() as made, made.more():
        yield made


@pytest.fixture
def pair(two: Machines, monkeypatch: pytest.MonkeyPatch) -> Machines:
    """The two machines, as those that a run finds."""
    monkeypatch.setenv("RAY_ADDRESS", two.address)
    return two


@contextmanager
def watched(seen: Machines, act: Callable[[list[tuple[int, int]]], None]) -> Iterator[None]:
    """Act on the tasks that run, again and again."""
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            act(seen.busy())
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("kind", [layers, scattered])
def test_the_bytes_of_a_local_run(kind: Callable[[Path, int], Path], pair: Machines, tmp_path: Path) -> None:
    source = kind(tmp_path / "in", 1)
    found: list[dict[str, bytes]] = []
    told: list[list[tuple[str, ...]]] = []
    errors: list[list[float]] = []
    for workers in (1, "ray"):
        out = tmp_path / str(workers)
        out.mkdir()
        reports = [
            prune(source, out / "dense", workers=workers),
            prune(source, out / "values", compressed=True, workers=workers),
            decompress(out / "values", out / "back", workers=workers),
        ]
        if kind is layers:
            reports.append(compress(out / "dense", out / "bits", to="sparse24_bitmask", workers=workers))
        found.append(content(out))
        told.append([(*each.copied, str(each.nbytes), *(row.name for row in each.rows)) for each in reports])
        errors.append([row.error for each in reports for row in each.rows])
    assert found[0] == found[1] and told[0] == told[1]
    # Processes with other numbers of threads sum in another order.
    assert errors[1] == pytest.approx(errors[0], rel=1e-9)


def test_one_file_by_a_relative_path(pair: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = layers(tmp_path / "in", 2) / "3.safetensors"
    prune(source, tmp_path / "here.safetensors")
    monkeypatch.chdir(tmp_path)
    prune("in/3.safetensors", "there.safetensors", workers="ray")
    assert (tmp_path / "there.safetensors").read_bytes() == (tmp_path / "here.safetensors").read_bytes()


def test_the_example(pair: Machines, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "prune_by_ray.py"))["main"](tmp_path)
    printed = capsys.readouterr().out
    assert "25%\n" in printed and f"16 weights in {tmp_path}/there; the bytes of one process: True" in printed


def test_the_command(pair: Machines, tmp_path: Path) -> None:
    source = layers(tmp_path / "in", 12)
    command = [sys.executable, "-m", "louver", "prune", source, tmp_path / "out", "--workers", "ray"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100)
    # Nothing of Ray's own.
    assert (
        ran.returncode == 0
        and ran.stderr.splitlines()[-1].startswith("wrote ")
        and "ray" not in ran.stderr.replace(str(tmp_path), "")
    ), ran.stderr
    prune(source, tmp_path / "here")
    assert content(tmp_path / "out") == content(tmp_path / "here")


def test_a_client_outside_the_cluster(two: Machines, tmp_path: Path) -> None:
    """With its errors as they are."""
    source = layers(tmp_path / "in", 13)
    prune(source, tmp_path / "here")
    prune(source, tmp_path / "there", workers=two.client)
    assert content(tmp_path / "there") == content(tmp_path / "here")
    shard = bytearray((source / "2.safetensors").read_bytes())
    shard[-1] ^= 1
    (source / "2.safetensors").write_bytes(shard)
    with pytest.raises(FormatError, match=r"2\.safetensors: .* do not have the checksum that was saved") as caught:
        prune(source, tmp_path / "damaged", workers=two.client)
    assert caught.value.__notes__ == [f"(on machine {platform.node()})"]
    assert not (tmp_path / "damaged").exists()


def test_the_cluster_of_the_program(pair: Machines, tmp_path: Path) -> None:
    """It stays connected."""
    import ray

    source = layers(tmp_path / "in", 3)
    ray.init(logging_level="error", log_to_driver=False)
    try:
        prune(source, tmp_path / "out", workers="ray")
        assert ray.is_initialized()
    finally:
        ray.shutdown()
    prune(source, tmp_path / "here")
    assert content(tmp_path / "out") == content(tmp_path / "here")


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=(pytest.mark.slow, pytest.mark.timeout(1500)))])
def test_workers_that_are_killed(kills: int, pair: Machines, tmp_path: Path) -> None:
    moments = random.Random(kills)
    source = layers(tmp_path / "in", 4, count=8, rows=4001, columns=1024)
    prune(source, tmp_path / "here", compressed=True)
    wanted, killed, after = content(tmp_path / "here"), 0, time.monotonic()

    def kill(tasks: list[tuple[int, int]]) -> None:
        nonlocal killed, after
        if killed < kills and tasks and time.monotonic() > after:
            os.kill(moments.choice(tasks)[1], 9)
            killed += 1
            # A task takes about a second, with the start of its process.
            after = time.monotonic() + moments.uniform(0.3, 3)

    runs = 0
    while killed < kills:
        out = tmp_path / f"out{runs}"
        with watched(pair, kill):
            prune(source, out, compressed=True, workers="ray")
        assert content(out) == wanted
        shutil.rmtree(out)
        runs += 1
    print(f"{killed} workers killed in {runs} runs")


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=(pytest.mark.slow, pytest.mark.timeout(1500)))])
def test_a_driver_that_is_killed(kills: int, pair: Machines, tmp_path: Path) -> None:
    moments = random.Random(kills)
    source = layers(tmp_path / "in", 5, count=6, rows=4001, columns=1024)
    prune(source, tmp_path / "here", compressed=True)
    wanted, going_on = content(tmp_path / "here"), 0
    for kill in range(kills):
        out = tmp_path / f"out{kill}"
        program = [sys.executable, "-c", PROGRAM, source, out]
        # After one to all shards; so that files are complete, unfinished, or about to take their places.
        share = moments.uniform(0.1, 1)
        with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as driver:
            assert driver.stdout is not None
            for line in driver.stdout:
                if line != "ready\n" and float(line) >= share:
                    # A user's interruption, or the end of a machine.
                    driver.send_signal(signal.SIGINT if kill % 2 else signal.SIGKILL)
        going_on += any(out.glob(".*journal.part"))
        prune(source, out, compressed=True, workers="ray", force=True)
        assert content(out) == wanted
        shutil.rmtree(out)
    assert going_on


def test_a_task_that_always_crashes(pair: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray gives up. What others wrote stays."""
    monkeypatch.setattr("louver.models.by_ray.RETRIES", 0)
    source = layers(tmp_path / "in", 6, count=6, rows=4001, columns=1024)
    out, shares = tmp_path / "out", list[float]()

    def kill(tasks: list[tuple[int, int]]) -> None:
        for _, pid in tasks if shares else ():
            os.kill(pid, 9)

    with watched(pair, kill), pytest.raises(WorkersError, match=r"Ray lost a task: .*: the same command goes on"):
        prune(source, out, workers="ray", progress=shares.append)
    assert 0 < shares[-1] < 1 and any(out.glob(".*journal.part")) and not any(out.glob("*.safetensors"))
    monkeypatch.undo()
    prune(source, out)
    prune(source, tmp_path / "here")
    assert content(out) == content(tmp_path / "here")


def test_a_machine_that_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = layers(tmp_path / "in", 7, count=8, rows=4001, columns=1024)
    prune(source, tmp_path / "here")
    with machines() as cluster:
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        more = cluster.more()
        machine = more.__enter__()
        down: list[bool] = []

        def end(tasks: list[tuple[int, int]]) -> None:
            if not down and any(raylet == machine for raylet, _ in tasks):
                down.append(True)
                more.__exit__(None, None, None)

        with watched(cluster, end):
            prune(source, tmp_path / "out", workers="ray")
        assert down
    assert content(tmp_path / "out") == content(tmp_path / "here")


def test_a_machine_with_a_gpu_beside_one_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program has the GPU. Tasks need none, and run on both machines."""
    import ray

    source = layers(tmp_path / "in", 8, count=8, rows=2001, columns=1024)
    with machines() as cluster, cluster.more(gpus=1) as second:
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        ray.init(logging_level="error", log_to_driver=False)
        try:

            class Training:
                def ready(self) -> list[int]:
                    return ray.get_gpu_ids()

            training = ray.remote(num_gpus=1, num_cpus=0)(Training).remote()
            assert ray.get(training.ready.remote()) == [0]
            used: set[int] = set()
            with watched(cluster, lambda tasks: used.update(raylet for raylet, _ in tasks)):
                prune(source, tmp_path / "out", workers="ray")
            assert used == set(cluster.raylets()) and second in used
            assert ray.available_resources().get("GPU", 0) == 0
        finally:
            ray.shutdown()
    prune(source, tmp_path / "here")
    assert content(tmp_path / "out") == content(tmp_path / "here")


@needs_namespace
@pytest.mark.parametrize("what", ["another", "none"])
def test_another_louver_on_a_machine(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, other, package = layers(tmp_path / "in", 9), tmp_path / "other", Path(louver.__file__).parent
    other.mkdir()
    if what == "another":
        shutil.copytree(package, other, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        with (other / "models" / "shards.py").open("a") as file:
            file.write("# A later version.\n")
    inside = (*NAMESPACE, f'mount --bind "{other}" "{package}" && exec "$@"', "sh")
    with machines() as cluster, cluster.more(inside=inside):
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        for command, out in ((prune, "out"), (compress, "compressed")):
            with pytest.raises(
                WorkersError, match="Louver is not installed on machine .*, or in another version than here"
            ):
                command(source, tmp_path / out, workers="ray")
            assert not (tmp_path / out).exists()


@needs_namespace
@pytest.mark.parametrize("lacks", ["in", "place"])
def test_a_machine_without_the_file_system(lacks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On it the folder of IN, or the one that OUT is in, is a local one."""
    source, place = layers(tmp_path / "in", 10), tmp_path / "place"
    place.mkdir()
    inside = (*NAMESPACE, f'mount -t tmpfs none "{tmp_path / lacks}" && exec "$@"', "sh")
    with machines() as cluster, cluster.more(inside=inside):
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        with pytest.raises(WorkersError, match="all workers read IN and write OUT in one file system") as caught:
            prune(source, place / "out", workers="ray")
    assert ("is not on this machine" if lacks == "in" else "without the run's journal") in str(caught.value)
    assert any(note.startswith("(on machine ") for note in caught.value.__notes__)
    assert not any(place.iterdir())


@needs_namespace
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster and the driver see a disk that has room for some of the shards."""
    source, place = layers(tmp_path / "in", 11, count=4, rows=1001, columns=1024), tmp_path / "disk"
    place.mkdir()
    program = f"""
import errno, os, sys
sys.path.insert(0, {str(ROOT / "tests")!r})
from pathlib import Path
from louver.models import prune
from support.ray_cluster import SECRET, machines
os.environ.update(SECRET)
place = Path({str(place)!r})
with machines(2) as cluster:
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        prune({str(source)!r}, place / "out", workers="ray")
    except OSError as error:
        print(error.errno == errno.ENOSPC, error.filename, error.__notes__, [*place.iterdir()])
    prune({str(source)!r}, place / "out", compressed=True, dtype="e4m3", workers="ray")
    print(sorted(path.name for path in (place / "out").iterdir()))
"""
    ran = subprocess.run(
        [*NAMESPACE, f'mount -t tmpfs -o size=8m none "{place}" && exec "$@"', "sh", sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    first, second = ran.stdout.splitlines()[-2:]
    assert first.startswith("True ") and ".safetensors ['(on machine " in first and first.endswith(" []"), first
    assert second.count(".safetensors'") == 4
