from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from louver.kernels import compiled, plan, products, state
from louver.runtime import adapters, copy2d, device, driver, tensormap
from louver.runtime.cache import KernelCache
from louver.runtime.device import NoDevice
from louver.runtime.memory import DeviceBuffer
from support.fake_driver import forget
from support.fake_gpu import FakeGpu, FakeTorch


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The reference path, on a machine with a GPU too, and its notice as if never given."""
    monkeypatch.setattr(products, "current_device", lambda: NoDevice("none for this test"))
    products._say_once.cache_clear()
    yield
    products._say_once.cache_clear()


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> KernelCache:
    return KernelCache(tmp_path_factory.mktemp("kernels"))


CACHED = (compiled._loaded, copy2d._loaded, copy2d._ready, state.states, adapters.torch_stream)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, kernels: KernelCache, no_gpu: None) -> Iterator[FakeGpu]:
    """A device that records, with nothing loaded; kernels are compiled once for all tests."""
    made, real = FakeGpu(), importlib.import_module
    for function in CACHED:
        function.cache_clear()
    forget()
    monkeypatch.setattr(driver.importlib, "import_module", lambda name: made if "cuda" in name else real(name))
    monkeypatch.setattr(tensormap, "_encode_tiled", lambda: made.encode)
    monkeypatch.setattr(products, "current_device", device.current_device)
    for module in (compiled, copy2d):
        monkeypatch.setattr(module, "kernel_cache", lambda: kernels)
    yield made
    for function in CACHED:
        function.cache_clear()
    # What a failed test's traceback keeps must not reach for a driver later.
    for buffer in [kept for kept in gc.get_objects() if isinstance(kept, DeviceBuffer)]:
        buffer.close()
    monkeypatch.undo()
    forget()


@pytest.fixture
def torch(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    made = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


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
