"""lower-tiles: lowers a kernel whose tiles have encodings to PTX, operation by operation."""

from __future__ import annotations

from louver.compile.lower.tiles.lower_tiles import lower_tiles
from louver.compile.lower.tiles.shared_memory import place_shared

__all__ = ["lower_tiles", "place_shared"]
