from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from louver.runtime.device import Device, current_device

HERE = Path(__file__).parent


@functools.cache
def why_no_gpu() -> str | None:
    """The reason that GPU tests cannot run here, None when they can."""
    from louver.cli.commands.doctor import gpu

    fact = gpu()
    return None if fact.ok else fact.value


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    below = [item for item in items if HERE in item.path.parents]
    if not below:
        return
    reason = why_no_gpu()
    for item in below:
        item.add_marker(pytest.mark.gpu)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"no usable GPU: {reason}"))


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
