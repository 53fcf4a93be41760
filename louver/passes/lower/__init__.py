"""Schedule IR -> PTX."""

from __future__ import annotations

from louver.passes.lower.kernel import lower

__all__ = ["lower"]
