"""PyTorch on the CPU in the place of the GPU."""

from __future__ import annotations

from typing import Any


class OnCpu:
    """PyTorch, whatever device is asked for."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._torch, name)
        if name not in ("Generator", "rand", "randn", "randint", "arange", "zeros", "empty"):
            return found
        return lambda *given, device=None, **options: found(*given, **options)
