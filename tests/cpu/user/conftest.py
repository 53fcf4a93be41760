from __future__ import annotations

from collections.abc import Iterator

import pytest

from louver.runtime.cache import KernelCache
from support.fake_gpu import FakeGpu, FakeTorch, recording
from support.tuned_calls import Clock


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, kernels: KernelCache) -> Iterator[FakeGpu]:
    """A device that records, with nothing loaded; kernels are compiled once for all tests."""
    with recording(monkeypatch, kernels) as made:
        yield made


@pytest.fixture
def clock(gpu: FakeGpu, torch: FakeTorch) -> Clock:
    return Clock(gpu)
