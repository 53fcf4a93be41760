from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from louver.library import host, plan, products
from louver.runtime import device
from louver.runtime.cache import KernelCache
from louver.runtime.device import NoDevice
from support.fake_gpu import FakeGpu, recording


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The reference path, on a machine with a GPU too, and its notice as if never given."""
    monkeypatch.setattr(host, "current_device", lambda: NoDevice("none for this test"))
    host._say_once.cache_clear()
    yield
    host._say_once.cache_clear()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, kernels: KernelCache, no_gpu: None) -> Iterator[FakeGpu]:
    """A device that records, with nothing loaded; kernels are compiled once for all tests."""
    with recording(monkeypatch, kernels) as made:
        monkeypatch.setattr(host, "current_device", device.current_device)
        yield made


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kind of each call that went through the checks: those that are warm do not."""
    seen: list[str] = []
    check = products.request

    def counted(kind: Any, *arguments: Any, **named: Any) -> Any:
        seen.append(kind)
        return check(kind, *arguments, **named)

    for module in (products, plan):
        monkeypatch.setattr(module, "request", counted)
    return seen
