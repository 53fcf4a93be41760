"""assign-encodings: gives the type of each tile an encoding, which says which registers hold its elements."""

from __future__ import annotations

from louver.compile.plan.encode.anchors import choose_warps
from louver.compile.plan.encode.rewrite import assign_encodings

__all__ = ["assign_encodings", "choose_warps"]
