"""The examples on the device."""

from __future__ import annotations

from typing import Any

import pytest

from support.examples import CASES, load


@pytest.mark.parametrize(("name", "sizes"), CASES)
def test_example(name: str, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    torch: Any = pytest.importorskip("torch")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the products' kernels are for sm_90a")
    example, places = load(name, monkeypatch), load("places", monkeypatch)
    assert 0 < example.example(places.Place(torch), *sizes) <= 1
