"""Whole kernels on the emulator take half a second a case: each day runs a seventh of the cases of every test of them."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
KERNELS = ("library", "tiles", "user")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folders = {HERE / name for name in KERNELS}
    for item in items:
        if not folders.isdisjoint(item.path.parents) and item.get_closest_marker("sampled") is None:
            item.add_marker(pytest.mark.sampled(7))
