"""A calibrated run that is killed: the same call goes on, to the same bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Cli
from support.killed import KilledError
from support.model_folders import saved, tokens_file

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

from louver.models import shards  # noqa: E402
from louver.torch.accuracy import walk  # noqa: E402

TESTS = Path(__file__).resolve().parents[3]
OPTIONS = ("--method", "sparsegpt", "--correct", "--reconstruct", "5", "--tune", "2", "--length", "24")


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_killed_command_goes_on_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = saved(torch, transformers, tmp_path / "in", "llama", num_hidden_layers=3)
    options = (*OPTIONS, "--calibration", tokens_file(torch, tmp_path / "text.npy"))
    call = ("prune", source, tmp_path / "out", *options)
    path = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    line = [sys.executable, "-m", "louver", *map(str, call)]
    first = subprocess.Popen(line, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path})
    work = tmp_path / ".out.blocks"
    block = work / "model.layers.1.block"
    while not block.exists() and first.poll() is None:
        time.sleep(0.002)
    first.send_signal(signal.SIGKILL)
    assert first.wait(60) == -signal.SIGKILL and not (tmp_path / "out").exists()
    computed: list[int] = []
    prune = walk.Walk._block
    monkeypatch.setattr(walk.Walk, "_block", lambda self, index, b: (computed.append(index), prune(self, index, b))[1])
    other = Cli().refused("prune", source, tmp_path / "out", *options, "--swaps", 1)
    assert "goes on with the same call, got" in other and ".out.blocks of a run with another method" in other
    done = Cli()(*call)
    assert done.exit_code == 0, done.output
    assert computed == [2] and not work.exists()
    assert Cli()("prune", source, tmp_path / "whole", *options).exit_code == 0
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_a_command_that_is_killed_while_it_writes_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = saved(torch, transformers, tmp_path / "in", "llama")
    options = ("--method", "wanda", "--length", "24", "--calibration", tokens_file(torch, tmp_path / "text.npy"))
    call = ("prune", source, tmp_path / "out", *options)
    write, done = shards.WriteShard.run, list[object]()

    def killed(self: Any) -> Any:
        done.append(self)
        if len(done) == 2:
            raise KilledError
        yield from write(self)

    with monkeypatch.context() as patch:
        patch.setattr(shards.WriteShard, "run", killed)
        with pytest.raises(KilledError):
            Cli()(*call)
    assert (tmp_path / ".out.blocks").exists() and (tmp_path / "out").exists()
    computed: list[int] = []
    monkeypatch.setattr(walk.Walk, "_block", lambda self, index, block: computed.append(index))
    assert Cli()(*call).exit_code == 0 and not computed
    monkeypatch.undo()
    assert Cli()("prune", source, tmp_path / "whole", *options).exit_code == 0
    assert content(tmp_path / "out") == content(tmp_path / "whole")
