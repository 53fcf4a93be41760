"""assign-encodings: which registers hold each tile of a kernel, said in its type."""

from __future__ import annotations

from louver.compile.plan.encode.anchors import choose_warps
from louver.compile.plan.encode.rewrite import assign_encodings

__all__ = ["assign_encodings", "choose_warps"]
