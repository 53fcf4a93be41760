"""Runs of a process that is killed at random moments: the next run gives the bytes of a run that was not interrupted."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import louver

KILLS = 20
PROGRAM = """
import sys
import louver.models.api as api
print("ready", flush=True)
api.prune(sys.argv[1], sys.argv[2], compressed=sys.argv[1] != sys.argv[2], force=True)
"""
"""In place it writes dense tensors, so that a run after a complete one has something to prune and changes nothing."""


def start(source: Path, out: Path) -> subprocess.Popen[bytes]:
    """A process that is about to prune."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, source, out], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    return process


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def model(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A folder with an index of five files and a tokenizer."""
    folder = tmp_path / "model"
    folder.mkdir()
    weight_map: dict[str, str] = {}
    for number in range(5):
        tensors = {
            f"layers.{number}.{name}_proj.weight": rng.standard_normal((rows, 1024)).astype(np.float16)
            for name, rows in (("q", 700), ("o", 401), ("v", 99))
        }
        louver.save(folder / f"{number}.safetensors", tensors)
        weight_map |= dict.fromkeys(tensors, f"{number}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("place", ["folder", "in place"])
def test_the_next_run_ends_it(place: str, model: Path, tmp_path: Path) -> None:
    moments = random.Random(len(place))
    wanted: dict[str, bytes] = {}
    longest, killed = 60.0, 0
    while killed < KILLS:
        source = tmp_path / f"{killed}" / "model"
        shutil.copytree(model, source)
        out = source if place == "in place" else source.parent / "out"
        process, began = start(source, out), time.monotonic()
        if wanted:
            with suppress(subprocess.TimeoutExpired):
                process.wait(moments.uniform(0, longest))
        else:
            process.wait()
        if process.poll() is None:
            process.kill()
            process.wait()
            killed += 1
            assert start(source, out).wait() == 0
        else:
            assert process.returncode == 0
            longest = min(longest, time.monotonic() - began)
        wanted = wanted or content(out)
        assert content(out) == wanted
        shutil.rmtree(source.parent)
