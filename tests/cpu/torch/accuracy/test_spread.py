"""Calibrated runs by workers: the bytes of one process, in any order, after kills, and what is refused."""

from __future__ import annotations

import errno
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Cli
from support.killed import KilledError
from support.model_folders import quantized, saved, tokens_file
from support.sent_tasks import Elsewhere, let_run
from support.shards import content

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

from louver.formats.pattern import Pattern  # noqa: E402
from louver.models import workers  # noqa: E402
from louver.models.pruning import PruneOptions  # noqa: E402
from louver.models.workers import Workers, WorkersError  # noqa: E402
from louver.torch.accuracy import passes, spread, streams  # noqa: E402
from louver.torch.accuracy.files import Calibration, Pruning, prune_folder  # noqa: E402
from louver.torch.accuracy.matrix import Method  # noqa: E402
from louver.torch.accuracy.passes import CollectBatch, Fit, Site  # noqa: E402
from louver.torch.accuracy.stored import Stored, store  # noqa: E402
from louver.torch.accuracy.walk import Walk  # noqa: E402

TESTS = Path(__file__).resolve().parents[3]
FULL = Method("sparsegpt", correct=True, reconstruct=4)
RULE = "all workers read IN and write OUT in one file system, under the same paths"


@pytest.fixture(autouse=True)
def _many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four rows. 24 rows are five batches to calibrate on and one that is held out."""
    monkeypatch.setattr(streams, "TOKENS", 24)


@pytest.fixture
def by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Workers], None]:
    return lambda them: let_run(monkeypatch, them, "louver.torch.accuracy.files", "louver.models.rewrite")


def pruned(
    source: Path, out: Path, method: Method = FULL, by: int | str = 1, pattern: str = "2:4", **more: Any
) -> Pruning:
    text = source.parent / "text.npy"
    if not text.exists():
        tokens_file(torch, text)
    asked = Calibration(method, (str(text),), length=24, **more)
    return prune_folder(source, out, PruneOptions(Pattern.parse(pattern)), asked, workers=by)


@pytest.mark.parametrize(
    ("kind", "dtype", "method", "more"),
    [
        ("llama", "bfloat16", FULL, {"tune": 2, "permute": True}),
        ("gpt2", "float16", Method("sparsegpt"), {}),
        ("qwen2_moe", "float32", FULL, {}),
        ("gemma3", "bfloat16", Method("wanda"), {}),
    ],
)
def test_any_order_gives_the_bytes_of_one_process(
    kind: str, dtype: str, method: Method, more: dict[str, Any], by: Callable[[Workers], None], tmp_path: Path
) -> None:
    source = saved(torch, transformers, tmp_path / "in", kind, dtype)
    here = pruned(source, tmp_path / "here", method, **more)
    by(Elsewhere())
    there = pruned(source, tmp_path / "there", method, **more)
    assert content(tmp_path / "there") == content(tmp_path / "here")
    assert [replace(row, seconds=0.0) for row in there.report] == [replace(row, seconds=0.0) for row in here.report]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "in", "text.npy", "there"]


def test_scaled_weights(by: Callable[[Workers], None], tmp_path: Path) -> None:
    source = quantized(torch, saved(torch, transformers, tmp_path / "plain", "llama"), tmp_path / "in", (16, 16))
    pruned(source, tmp_path / "here")
    by(Elsewhere())
    pruned(source, tmp_path / "there")
    assert content(tmp_path / "there") == content(tmp_path / "here")


def test_a_run_that_is_refused_leaves_nothing(by: Callable[[Workers], None], tmp_path: Path) -> None:
    source = saved(torch, transformers, tmp_path / "in", "llama")
    with pytest.raises(ValueError, match="workers are a number of processes from 1, ray, or ray://HOST:PORT, got 'x'"):
        pruned(source, tmp_path / "out", by="x")
    by(Elsewhere())
    with pytest.raises(ValueError, match="swaps compare up to"):
        pruned(source, tmp_path / "out", replace(FULL, swaps=1), pattern="16:32")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "text.npy"]


def test_weights_that_are_not_paired(by: Callable[[Workers], None], tmp_path: Path) -> None:
    """The dense model sends an expert other rows: the first batch that shows it decides, as in one process."""
    source = saved(torch, transformers, tmp_path / "in", "llama")
    real = passes.Watch.moments
    seen: list[int] = []

    def unpaired(self: Any, block: Any, arguments: Any, device: Any) -> Any:
        seen.append(1)
        for name in ("mlp.up_proj.weight", "mlp.gate_proj.weight", "self_attn.o_proj.weight"):
            if name in self.corrected:
                raise passes.UnpairedError(name)
        return real(self, block, arguments, device)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes.Watch, "moments", unpaired)
        here = pruned(source, tmp_path / "here")
        by(Elsewhere())
        there = pruned(source, tmp_path / "there")
    assert content(tmp_path / "there") == content(tmp_path / "here")
    assert "not corrected" in "".join(there.report.warnings) and there.report.warnings == here.report.warnings


def test_what_is_sent_is_small(by: Callable[[Workers], None], tmp_path: Path) -> None:
    """`Elsewhere` refuses tensors. Files pass, and are removed when they were read."""
    source = saved(torch, transformers, tmp_path / "in", "llama", num_hidden_layers=3)
    sizes, most = list[int](), list[int]()

    def seen(task: Any) -> Any:
        if isinstance(task, CollectBatch):
            place = task.site.place
            most.append(len([path for path in place.iterdir() if path.is_dir()]))
            assert len([*(place / str(task.index)).iterdir()]) < 2 * 6 + 3 * 6
        return task

    by(Elsewhere(seen, sizes))
    pruned(source, tmp_path / "out")
    assert max(sizes) < 16 << 10 and max(most) == 2


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_processes(count: int, tmp_path: Path) -> None:
    source = saved(torch, transformers, tmp_path / "in", "llama")
    tokens_file(torch, tmp_path / "text.npy")
    options = ("--method", "sparsegpt", "--calibration", tmp_path / "text.npy", "--length", 24)
    assert Cli()("prune", source, tmp_path / "here", *options).exit_code == 0
    done = Cli()("prune", source, tmp_path / "there", *options, "--workers", count)
    assert done.exit_code == 0, done.output
    assert content(tmp_path / "there") == content(tmp_path / "here")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_processes_that_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kill ends the run, and the same call goes on behind the last block."""
    source = saved(torch, transformers, tmp_path / "in", "llama", num_hidden_layers=4)
    pruned(source, tmp_path / "here")
    pools: list[ProcessPoolExecutor] = []

    class Kept(ProcessPoolExecutor):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            pools.append(self)

    monkeypatch.setattr(workers, "ProcessPoolExecutor", Kept)
    moments, kills, left = random.Random(5), 0, 4
    real = spread.SpreadStreams._done

    def kill() -> None:
        for pid in [*(pools[-1]._processes or ())]:  # pyright: ignore[reportPrivateUsage]
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def killing(self: Any, tasks: Any) -> Any:
        nonlocal left, kills
        if left and moments.random() < 0.3:
            left -= 1
            threading.Timer(moments.uniform(0, 0.3), kill).start()
        return real(self, tasks)

    monkeypatch.setattr(spread.SpreadStreams, "_done", killing)
    while True:
        try:
            pruned(source, tmp_path / "out", by=2)
            break
        except WorkersError as error:
            assert "a process of the run was killed or crashed: the same command goes on" in str(error)
            kills += 1
            assert not (tmp_path / "out").exists()
    assert kills >= 2
    assert content(tmp_path / "out") == content(tmp_path / "here") and not (tmp_path / ".out.blocks").exists()


def test_a_driver_that_is_killed(tmp_path: Path, by: Callable[[Workers], None]) -> None:
    """By force, in its second block. The next run has the first one, and removes what passed between processes."""
    source = saved(torch, transformers, tmp_path / "in", "llama", num_hidden_layers=3)
    pruned(source, tmp_path / "here")
    line = f"""
from pathlib import Path
from louver.torch.accuracy import streams
from support.model_folders import saved
import test_spread
if __name__ == "__main__":
    streams.TOKENS = 24
    test_spread.pruned(Path({str(source)!r}), Path({str(tmp_path / "out")!r}), by=2)
"""
    (tmp_path / "program.py").write_text(line)
    path = os.pathsep.join([str(TESTS), str(TESTS.parent), str(Path(__file__).parent)])
    program = [sys.executable, str(tmp_path / "program.py")]
    work = tmp_path / ".out.blocks"
    with subprocess.Popen(program, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path}) as driver:
        while driver.poll() is None and not (work / "model.layers.0.block").exists():
            time.sleep(0.01)
        driver.send_signal(signal.SIGKILL)
    assert driver.returncode == -signal.SIGKILL
    assert len([*work.glob("passing-*")]) == 1 and not (tmp_path / "out").exists()
    computed: list[int] = []
    block = Walk._block
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Walk, "_block", lambda self, index, b: (computed.append(index), block(self, index, b))[1])
        by(Elsewhere())
        pruned(source, tmp_path / "out")
    assert 0 not in computed and 2 in computed and not work.exists()
    assert content(tmp_path / "out") == content(tmp_path / "here")


@pytest.mark.parametrize("seed", range(3))
def test_a_run_that_ends_anywhere_goes_on(seed: int, by: Callable[[Workers], None], tmp_path: Path) -> None:
    """Also by one process, and the other way around."""
    source = saved(torch, transformers, tmp_path / "in", "llama", num_hidden_layers=3)
    pruned(source, tmp_path / "here", Method("wanda"))
    moments, ends = random.Random(seed), 0

    def lost(task: Any) -> Any:
        if isinstance(task, CollectBatch) and moments.random() < 0.05:
            raise KilledError
        return task

    while True:
        by(Elsewhere(lost) if ends != 1 else workers.HERE)
        try:
            pruned(source, tmp_path / "out", Method("wanda"))
            break
        except KilledError:
            ends += 1
    assert content(tmp_path / "out") == content(tmp_path / "here")


def test_a_full_disk(by: Callable[[Workers], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the file, what passed is removed to make room, and the same call goes on."""
    source = saved(torch, transformers, tmp_path / "in", "llama")
    pruned(source, tmp_path / "here", Method("wanda"))
    work = tmp_path / ".out.blocks"

    def full(folder: Path, tensors: Any) -> Any:
        if (work / "model.layers.0.block").exists():
            raise OSError(errno.ENOSPC, "No space left on device", str(folder / "x.safetensors"))
        return store(folder, tensors)

    by(Elsewhere())
    with monkeypatch.context() as patch, pytest.raises(OSError, match=r"No space left on device: .*passing-.*x\.safe"):
        patch.setattr(passes, "store", full)
        pruned(source, tmp_path / "out", Method("wanda"))
    assert [path.name for path in work.iterdir() if path.suffix == ".block"] == ["model.layers.0.block"]
    assert not [*work.glob("passing-*")] and not (tmp_path / "out").exists()
    pruned(source, tmp_path / "out", Method("wanda"))
    assert content(tmp_path / "out") == content(tmp_path / "here")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"torch": "1.0"}, "all machines have one PyTorch, got .* here and 1.0 in the run: install the same"),
        ({"source": Path("/none/such")}, f"/none/such is not on this machine: {RULE}"),
        ({"identity": "0"}, f"in/model.safetensors.index.json is another checkpoint on this machine: {RULE}"),
        ({"place": Path("/none/place")}, f"/none/place is not on this machine: {RULE}"),
    ],
)
def test_a_machine_that_cannot_take_part(
    change: dict[str, Any], message: str, by: Callable[[Workers], None], tmp_path: Path
) -> None:
    """Told before any work, and again by a machine that joins later."""
    source = saved(torch, transformers, tmp_path / "in", "llama")

    def joined(task: Any) -> Any:
        return replace(task, site=replace(task.site, **change)) if isinstance(task, CollectBatch) else task

    class Unfit(Elsewhere):
        def everywhere(self, task: Any) -> None:
            assert isinstance(task, Fit)
            super().everywhere(replace(task, site=replace(task.site, **change)))

    for them in (Unfit(), Elsewhere(joined)):
        by(them)
        with pytest.raises(WorkersError, match=message):
            pruned(source, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_a_machine_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path, "", PruneOptions(Pattern.parse("2:4")), "layers", "cuda:3", 2, torch.__version__, tmp_path)
    assert (site.needs.cpus, site.needs.gpus) == (2, 1) and replace(site, device="cpu").needs.gpus == 0
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(
        WorkersError, match=r"computes on cuda:3, got a machine without a GPU: leave it out, or give --dev"
    ):
        passes._place("cuda:3")
    assert passes._place("cpu") == torch.device("cpu")
    # Ray shows a task one GPU.
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert passes._place("cuda:3") == torch.device("cuda:0")


def test_tensors_in_files(tmp_path: Path) -> None:
    tensors = {
        "turned": torch.randn(3, 5).mT,
        "one": torch.tensor(4),
        "mask": torch.ones(1, 1, 4, 4, dtype=torch.bool).tril().expand(3, 1, 4, 4),
        "half": torch.randn(7).bfloat16(),
    }
    stored = store(tmp_path, tensors)
    for name, tensor in tensors.items():
        found = stored[name].to(torch.device("cpu"))
        assert found.dtype == tensor.dtype and torch.equal(found, tensor) and found.data_ptr() % 64 == 0
    assert store(tmp_path, {}) == {} and len([*tmp_path.iterdir()]) == 1
    for what in (
        lambda: Stored(tmp_path / "none.safetensors", "x").to(torch.device("cpu")),
        lambda: store(tmp_path / "none", tensors),
    ):
        with pytest.raises(WorkersError, match=f"none.* is not on this machine: {re.escape(RULE)}"):
            what()
