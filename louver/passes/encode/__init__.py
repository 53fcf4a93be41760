"""assign-encodings: which registers hold each tile of a kernel, said in its type."""

from __future__ import annotations

from louver.passes.encode.natural import DIVISIBILITY, choose_warps
from louver.passes.encode.rewrite import assign_encodings

__all__ = ["DIVISIBILITY", "assign_encodings", "choose_warps"]
