from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cuda.bindings")

RUN = """
import importlib, json, subprocess, sys
import numpy as np
from support.fake_gpu import FakeGpu, FakeTorch, Tensor
from louver.runtime import cache, driver, tensormap

gpu, real, processes, reads = FakeGpu(), importlib.import_module, [], []
driver.importlib.import_module = lambda name: gpu if "cuda" in name else real(name)
tensormap._encode_tiled = lambda: gpu.encode
popen = subprocess.Popen.__init__
subprocess.Popen.__init__ = lambda self, args, *rest, **options: processes.append(str(args)) or popen(self, args, *rest, **options)
hashed = cache.Path.read_bytes
cache.Path.read_bytes = lambda path: reads.append(path.suffix) or hashed(path)
sys.modules["torch"] = FakeTorch()

import louver
s = louver.compress(louver.prune(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16), "2:4"), "2:4")
louver.prepare(s, n=(1, 8))
louver.linear(Tensor((5, 64)), s)
louver.linear(Tensor((5, 64), strides=(65, 1)), s)
print(json.dumps({
    "xdsl": "xdsl" in sys.modules,
    "ptxas": sum("ptxas" in args for args in processes),
    "launches": len(gpu.launches),
    "sources": reads.count(".py"),
    "files": len(list(cache.Path(cache.__file__).resolve().parents[1].rglob("*.py"))),
}))
"""


def run(folder: Path) -> dict[str, Any]:
    environment = os.environ | {"LOUVER_CACHE_DIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", RUN]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


def test_a_warm_start_compiles_nothing(tmp_path: Path) -> None:
    cold, warm = run(tmp_path), run(tmp_path)
    assert cold["xdsl"] and cold["ptxas"] > 0
    assert not warm["xdsl"] and not warm["ptxas"]
    assert cold["launches"] == warm["launches"] == 3
    assert cold["sources"] == cold["files"], "the source is hashed once"
    assert not warm["sources"], "files that have not changed are not read"
