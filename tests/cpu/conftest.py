from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import louver
from louver.runtime.cache import KernelCache
from support.command_line import Cli
from support.fake_gpu import FakeGpu, FakeTorch


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> KernelCache:
    return KernelCache(tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def torch(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    """PyTorch whose tensors are facts only, beside the device that the room's `gpu` records on."""
    made = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


@pytest.fixture
def cli() -> Cli:
    return Cli()


@pytest.fixture
def checkpoint(tmp_path: Path, rng: np.random.Generator) -> Path:
    """Three matrices of odd sizes (one of them an embedding), a bias and integer positions."""
    path = tmp_path / "model.safetensors"
    tensors = {
        "encoder.0.query.weight": rng.standard_normal((37, 70)).astype(np.float32),
        "encoder.0.dense.weight": rng.standard_normal((9, 128)).astype(np.float32),
        "encoder.0.dense.bias": rng.standard_normal(9).astype(np.float32),
        "embeddings.word_embeddings.weight": rng.standard_normal((11, 24)).astype(np.float32),
        "embeddings.position_ids": np.arange(12).reshape(1, 12),
    }
    louver.save(path, tensors, {"format": "pt"})
    return path
