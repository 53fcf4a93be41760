from __future__ import annotations

import functools
from pathlib import Path

import pytest

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
