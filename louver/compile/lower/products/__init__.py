"""Lowers schedule IR to PTX."""

from __future__ import annotations

from louver.compile.lower.products.kernel import lower

__all__ = ["lower"]
