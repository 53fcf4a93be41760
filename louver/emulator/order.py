"""Orders of events that the hardware leaves open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Earliest:
    """Asynchronous operations complete when they are issued. The lowest warp that can run runs."""


@dataclass(frozen=True, slots=True)
class Latest:
    """Asynchronous operations complete when no warp can run, the newest first; remote arrivals also before a later
    release of their warp. The highest warp that can run runs. Each `try_wait` fails once before it may succeed, as the
    hardware's time limit permits.
    """


@dataclass(frozen=True, slots=True)
class Seeded:
    """Clusters, warps and completions interleave at random, reproducibly for one `seed`."""

    seed: int


Order: TypeAlias = Earliest | Latest | Seeded
