from __future__ import annotations

from typing import Any

import pytest

from louver.runtime.device import Device, current_device


@pytest.fixture(autouse=True)
def torch() -> Any:
    """torch, on a device that the products have a kernel for."""
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("torch without CUDA")
    found = current_device()
    if not isinstance(found, Device) or found.target != "sm_90a":
        pytest.skip(f"the products' kernels are for sm_90a, got {found}")
    return module
