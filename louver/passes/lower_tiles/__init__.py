"""lower-tiles: a kernel whose tiles have encodings, operation by operation, to PTX."""

from __future__ import annotations

from louver.passes.lower_tiles.async_copy import NotInChunksError
from louver.passes.lower_tiles.kernel import lower_tiles
from louver.passes.lower_tiles.state import NoRoomError

__all__ = ["NoRoomError", "NotInChunksError", "lower_tiles"]
