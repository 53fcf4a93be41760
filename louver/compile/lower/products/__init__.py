"""Lowers schedule IR to PTX."""

from __future__ import annotations

from louver.compile.lower.products.lower_product import lower

__all__ = ["lower"]
