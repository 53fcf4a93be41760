from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from louver.runtime.cache import KernelCache
from support.fake_gpu import FakeGpu, FakeTorch, recording


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> KernelCache:
    return KernelCache(tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, kernels: KernelCache) -> Iterator[FakeGpu]:
    """A device that records, with nothing loaded; kernels are compiled once for all tests."""
    with recording(monkeypatch, kernels) as made:
        yield made


@pytest.fixture
def torch(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    made = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", made)
    return made
