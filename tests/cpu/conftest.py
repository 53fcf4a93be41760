from __future__ import annotations

import sys

import pytest

from louver.runtime.cache import KernelCache
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
