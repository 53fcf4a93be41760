"""Orders of events that the hardware leaves open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Earliest:
    """Asynchronous operations complete as soon as they are issued; the lowest warp that can run runs."""


@dataclass(frozen=True, slots=True)
class Latest:
    """Asynchronous operations complete only when no warp can run, the newest first; the highest warp runs first.

    Each `try_wait` fails once before it is allowed to succeed, as the hardware's time limit permits.
    """


@dataclass(frozen=True, slots=True)
class Seeded:
    """Clusters, warps and completions are interleaved at random, reproducibly for one `seed`."""

    seed: int


Order: TypeAlias = Earliest | Latest | Seeded
