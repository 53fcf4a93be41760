from __future__ import annotations

from collections.abc import Iterator

import pytest

from louver.kernels import products
from louver.runtime.device import NoDevice


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The reference path, on a machine with a GPU too, and its notice as if never given."""
    monkeypatch.setattr(products, "current_device", lambda: NoDevice("none for this test"))
    products._say_once.cache_clear()
    yield
    products._say_once.cache_clear()
