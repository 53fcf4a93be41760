"""assign-encodings: which registers hold each tile of a kernel, said in its type."""

from __future__ import annotations

from louver.passes.encode.natural import choose_warps
from louver.passes.encode.rewrite import assign_encodings

__all__ = ["assign_encodings", "choose_warps"]
