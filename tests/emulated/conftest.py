"""Whole kernels on the emulator take half a second a case: each day runs a seventh of the cases of every test of them."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
KERNELS = ("library", "tiles", "user")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test at once: the days are dealt by a hook that may be called before those of this folder."""
    folders = {HERE / name for name in KERNELS}
    if not folders.isdisjoint(item.path.parents) and item.get_closest_marker("sampled") is None:
        item.add_marker(pytest.mark.sampled(7))
