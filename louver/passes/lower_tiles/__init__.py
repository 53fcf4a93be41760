"""lower-tiles: a kernel whose tiles have encodings, operation by operation, to PTX."""

from __future__ import annotations

from louver.passes.lower_tiles.kernel import lower_tiles
from louver.passes.lower_tiles.rooms import place_shared

__all__ = ["lower_tiles", "place_shared"]
