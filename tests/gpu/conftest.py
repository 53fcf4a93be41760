from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from louver.runtime.device import Device, current_device

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture
def torch() -> Any:
    """torch, on a device that the products have a kernel for."""
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("torch without CUDA")
    found = current_device()
    if not isinstance(found, Device) or found.target != "sm_90a":
        pytest.skip(f"the products' kernels are for sm_90a, got {found}")
    return module
