"""A user's hints for a kernel: schedule fields by name, and Triton's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from louver.compile.plan.schedule import FIELDS, Schedule

GIVEN = tuple(name for name in FIELDS if not name.startswith("tile_") and name not in ("work", "dependent"))
"""Schedule fields that a user may give. The kernel fixes the tile. Launches of users' kernels have no workspace for
ranges of K, and run one after the other.
"""

_COUNTS = ("num_warps", "num_stages", "num_ctas", "maxnreg")

_ANY = ("launch_pdl", "arch", "ptx_options", "enable_fp_fusion")
"""Options with any value. Louver fuses a product and a sum only behind a dot, whose own rounding no target specifies."""

_FIXED = {
    "launch_cooperative_grid": (False, "Louver's programs do not wait for each other"),
    "debug": (False, "Louver's kernels have no asserts"),
    "sanitize_overflow": (False, "integers of Louver's kernels wrap"),
    "ir_override": (None, "Louver compiles the kernel's own text"),
}
"""Options that change more than the speed: the value that is true of Louver's kernels, and why."""

TRITON = (*_COUNTS, *_ANY, *_FIXED)
"""Triton's options for NVIDIA's GPUs, which users give with a call; None is Triton's default. All but `num_warps` are for
Triton alone.
"""

REGISTER_TILES = "register tiles"
"""The kernel family that takes every kernel."""


@dataclass(frozen=True, slots=True)
class Hints:
    """A user's hints. schedule: fixed fields of the schedule. triton: Triton's options.

    `num_warps` is the number of warps of a register-tile program. It does not affect products: their tile sets
    warpgroups and stages, unless `consumers` and `stages` are given. family: "register tiles" runs
    products as register tiles too.
    Raises ValueError for an unknown name, TypeError or ValueError for an invalid value.
    """

    schedule: tuple[tuple[str, Any], ...] = ()
    triton: tuple[tuple[str, Any], ...] = field(default=())
    family: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Hints:
        known = (*GIVEN, *TRITON, "family")
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ValueError(f"hints are {', '.join(known)}, got {unknown[0]!r}")
        family = given.get("family")
        if family not in (None, REGISTER_TILES):
            raise ValueError(f"family is {REGISTER_TILES!r}, got {family!r}: leave it out for Louver's choice")
        triton = {name: given[name] for name in TRITON if given.get(name) is not None}
        for name, value in triton.items():
            if name in _COUNTS and (type(value) is not int or value < 1):
                raise ValueError(f"{name} is a positive integer, got {value!r}")
            if name in _FIXED and value is not _FIXED[name][0]:
                raise ValueError(f"{name} is {_FIXED[name][0]}: {_FIXED[name][1]}, got {value!r}: leave it out")
        warps = triton.get("num_warps", 1)
        if warps & (warps - 1):
            raise ValueError(f"num_warps is a power of 2, got {warps}")
        return cls(
            tuple((name, given[name]) for name in GIVEN if name in given),
            tuple(triton.items()),
            family,
        )

    def updated(self, given: Mapping[str, Any]) -> Hints:
        """These hints with others that take precedence."""
        known = {**dict(self.schedule), **dict(self.triton), "family": self.family}
        return Hints.of({**known, **given}) if given else self

    @property
    def own(self) -> tuple[str, ...]:
        """Names of the given hints that Triton lacks."""
        return (*dict(self.schedule), *([] if self.family is None else ["family"]))

    @property
    def warps(self) -> int | None:
        """Warps of a register-tile program, if given."""
        return dict(self.triton).get("num_warps")

    @property
    def consumers(self) -> int | None:
        """Consumer warpgroups of a product, if given."""
        return dict(self.schedule).get("consumers")

    def apply(self, schedule: Schedule) -> Schedule:
        """The schedule with the fixed fields."""
        return schedule.changed(**dict(self.schedule))
