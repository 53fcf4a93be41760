"""assign-encodings: gives each tile's type the registers that hold it."""

from __future__ import annotations

from louver.compile.plan.encode.anchors import choose_warps
from louver.compile.plan.encode.rewrite import assign_encodings

__all__ = ["assign_encodings", "choose_warps"]
