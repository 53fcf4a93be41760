"""The examples on the emulator."""

from __future__ import annotations

import pytest

from support.examples import CASES, load


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "sizes"), CASES)
def test_example(name: str, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    example, places = load(name, monkeypatch), load("places", monkeypatch)
    assert 0 < example.example(places.Place(), *sizes) <= 1
