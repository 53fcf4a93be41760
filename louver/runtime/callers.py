"""The caller of the package, whom a warning names."""

from __future__ import annotations

import sys


def callers_level() -> int:
    """Frames from the function that warns to the first one outside of the package: `warnings.warn`'s `stacklevel`."""
    level, frame = 1, sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "louver":
        level, frame = level + 1, frame.f_back
    return level
