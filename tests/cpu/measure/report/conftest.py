from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.pictures import Picture, record_pictures


@pytest.fixture(autouse=True)
def pictures(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Picture]]:
    """The pictures that a test writes: all of their text must be legible."""
    written = record_pictures(monkeypatch)
    yield written
    assert not [fault for picture in written for fault in picture.faults()]
