"""Calibrated runs on a cluster of Ray: the bytes of one process, after kills of workers and drivers. Run by `make test-ray`."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from support.model_folders import saved, tokens_file
from support.ray_cluster import NAMESPACE, SECRET, Machines, can_mount, machines
from support.shards import content

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

from louver.formats.pattern import Pattern  # noqa: E402
from louver.models.pruning import PruneOptions  # noqa: E402
from louver.models.workers import WorkersError  # noqa: E402
from louver.torch.accuracy import streams  # noqa: E402
from louver.torch.accuracy.files import Calibration, prune_folder  # noqa: E402
from louver.torch.accuracy.matrix import Method  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]

# Ray's processes have one thread by default, and a task claims so many processors as the driver has threads.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRET.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(streams, "TOKENS", 24)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model `in`, a text, and `here`, which one process pruned."""
    place = tmp_path_factory.mktemp("model")
    saved(torch, transformers, place / "in", "llama", num_hidden_layers=3)
    tokens_file(torch, place / "text.npy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "TOKENS", 24)
        pruned(place, place / "here")
    return place


@pytest.fixture(scope="module")
def two() -> Iterator[Machines]:
    """Two machines of a processor each. One has a GPU, which no task needs."""
    with machines() as made, made.more(gpus=1):
        yield made


@pytest.fixture
def pair(two: Machines, monkeypatch: pytest.MonkeyPatch) -> Machines:
    """The two machines, as those that a run finds."""
    monkeypatch.setenv("RAY_ADDRESS", two.address)
    return two


def pruned(place: Path, out: Path, by: int | str = 1) -> None:
    asked = Calibration(Method("sparsegpt", correct=True, reconstruct=4), (str(place / "text.npy"),), length=24)
    prune_folder(place / "in", out, PruneOptions(Pattern.parse("2:4")), asked, workers=by, device="cpu")


@contextmanager
def watched(act: Callable[[], None]) -> Iterator[None]:
    """Act again and again."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            act()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_workers_that_are_killed(
    kills: int, model: Path, pair: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any moment of a task, its imports too. Machines with and without a GPU work, and no task claims it."""
    moments, killed, after, used = random.Random(kills), 0, time.monotonic(), set[int]()
    monkeypatch.setattr("louver.models.by_ray.RETRIES", -1)

    def kill() -> None:
        nonlocal killed, after
        tasks = pair.busy()
        used.update(raylet for raylet, _ in tasks)
        if killed < kills and tasks and time.monotonic() > after:
            with suppress(ProcessLookupError):
                os.kill(moments.choice(tasks)[1], 9)
                killed += 1
            after = time.monotonic() + moments.uniform(1, 15)

    runs = 0
    while killed < kills:
        with watched(kill):
            pruned(model, tmp_path / f"out{runs}", "ray")
        assert content(tmp_path / f"out{runs}") == content(model / "here")
        runs += 1
    assert used == set(pair.raylets()), "both machines worked"
    print(f"{killed} workers killed in {runs} runs")


@pytest.mark.timeout(1500)
def test_a_driver_that_is_killed(model: Path, pair: Machines, tmp_path: Path) -> None:
    """By another kind of workers it goes on behind its last block."""
    options = ("--method", "sparsegpt", "--correct", "--reconstruct", "4", "--calibration", model / "text.npy")
    line = ("prune", model / "in", tmp_path / "out", *options, "--length", "24", "--device", "cpu", "--workers", "ray")
    program = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n" + PROGRAM, *map(str, line)]
    block = tmp_path / ".out.blocks" / "model.layers.0.block"
    with subprocess.Popen(program, stderr=subprocess.DEVNULL) as driver:
        while driver.poll() is None and not block.exists():
            time.sleep(0.01)
        driver.send_signal(signal.SIGKILL)
    assert driver.returncode == -signal.SIGKILL and not (tmp_path / "out").exists()
    made = block.stat().st_mtime_ns
    seen: list[int] = []

    def look() -> None:
        with suppress(FileNotFoundError):
            seen.append(block.stat().st_mtime_ns)

    with watched(look):
        pruned(model, tmp_path / "out", pair.client)
    assert {*seen} == {made}
    assert content(tmp_path / "out") == content(model / "here")


PROGRAM = """
import torch
from louver.torch.accuracy import streams
streams.TOKENS = 24
torch.set_num_threads(1)
from louver.cli import main
main()
"""


def test_more_threads_than_a_machine_has(model: Path, pair: Machines, tmp_path: Path) -> None:
    torch.set_num_threads(3)
    try:
        with pytest.raises(
            WorkersError,
            match=r"a task takes 3 processors, .* got machines with 1 and [01], 1 and [01]: set OMP_NUM_THR",
        ):
            pruned(model, tmp_path / "out", "ray")
    finally:
        torch.set_num_threads(1)
    assert not (tmp_path / "out").exists() and not [*tmp_path.glob(".out.blocks/passing-*")]


@pytest.mark.skipif(not can_mount(), reason="this machine has no user namespaces")
@pytest.mark.timeout(900)
def test_a_full_disk(model: Path, tmp_path: Path) -> None:
    """The cluster and the driver see a disk that has no room for what passes, then one that has."""
    place = tmp_path / "disk"
    place.mkdir()
    program = f"""
import errno, os, subprocess, sys
sys.path[:0] = [{str(ROOT / "tests")!r}, {str(ROOT)!r}, {str(Path(__file__).parent)!r}]
from pathlib import Path
from support.ray_cluster import SECRET, machines
os.environ.update(SECRET)
import torch
import test_calibrated_by_ray as test
test.streams.TOKENS = 24
place, model = Path({str(place)!r}), Path({str(model)!r})
with machines(2) as cluster:
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        test.pruned(model, place / "out", "ray")
    except OSError as error:
        print(error.errno == errno.ENOSPC, error.filename, error.__notes__, [*place.glob(".out.blocks/passing-*")])
    subprocess.run(["mount", "-o", "remount,size=64m", place], check=True)
    test.pruned(model, place / "out", "ray")
    print(test.content(place / "out") == test.content(model / "here"))
"""
    command = f'mount -t tmpfs -o size=200k none "{place}" && exec "$@"'
    ran = subprocess.run(
        [*NAMESPACE, command, "sh", sys.executable, "-c", program], capture_output=True, text=True, timeout=800
    )
    assert ran.returncode == 0, ran.stderr
    first, second = ran.stdout.splitlines()[-2:]
    assert first.startswith("True ") and "/passing-" in first and first.endswith(" []"), first
    assert second == "True"
