"""Triton kernels for tests, and the script that keeps what Triton makes of them."""

from __future__ import annotations

import pytest


def has_block_pointers() -> bool:
    """Whether the Triton that is installed has them. 3.9 has a function of the name, which refuses."""
    import triton

    return tuple(int(part) for part in triton.__version__.split(".")[:2]) < (3, 9)


def require_block_pointers() -> None:
    """Skip a test where Triton has none."""
    if not has_block_pointers():
        pytest.skip("block pointers are gone from Triton 3.9 on")
