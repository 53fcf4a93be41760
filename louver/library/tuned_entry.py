"""Record of a measured schedule: its problem, and whether this version of Louver can use it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeAlias, cast

from louver.compile.plan.register_tiles import AnySchedule, RegisterTiles
from louver.compile.plan.schedule import FIELDS, Schedule
from louver.frontend.problem import Problem
from louver.isa.targets import Target
from louver.library.configure import deepest
from louver.ptx.assembler import ptxas_version
from louver.runtime.cache import by_fields, source_hash

LEAST_CLASS = 8
"""The smallest size class. The narrowest tile has the same width."""

HALVES_FROM = 128
"""Above this size, classes are powers of two and the middles between them. Up to this size, they are powers of two."""

Sizes: TypeAlias = tuple[int, int, int]


class UnusableEntryError(ValueError):
    """An entry that cannot be used. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class Place:
    """The products for which an entry is valid.

    device: name of the device.
    problem: the result of `problem_facts`.
    sizes: size classes of M, N and K.
    aligned_output: whether bulk copies can write the output.
    dependent: whether kernels begin while the previous kernel ends, see `louver.plan`.
    """

    device: str
    problem: Mapping[str, Any]
    sizes: Sizes
    aligned_output: bool
    dependent: bool = False

    @property
    def key(self) -> str:
        """A hash of the place, 64 hexadecimal digits."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Entry:
    """A measured schedule.

    schedule: the fields of a `Schedule` or of `RegisterTiles`.
    microseconds: time of a launch.
    model: time of a launch with the model's choice, measured at the same time.
    shape: the measured M, N, K; None if unknown.
    louver, ptxas: hash of the source and version of the assembler at the measurement; "" in a package's table.
    """

    place: Place
    schedule: Mapping[str, Any]
    microseconds: float | None = None
    model: float | None = None
    shape: Sizes | None = None
    louver: str = ""
    ptxas: str = ""

    def usable(self, problem: Problem, machine: Target) -> AnySchedule:
        """The schedule. Raises UnusableEntryError with the reason if this version of Louver cannot run it."""
        tiles = not machine.has("wgmma.sp")
        unknown = sorted(set(self.schedule) - set(RegisterTiles.__slots__ if tiles else FIELDS))
        if unknown:
            raise UnusableEntryError(f"it names fields that schedules do not have: {', '.join(unknown)}")
        if self.louver and self.louver != source_hash():
            raise UnusableEntryError("it was measured with another version of Louver: run louver tune again")
        if self.ptxas and self.ptxas != ptxas_version():
            raise UnusableEntryError(
                f"it was measured with ptxas {self.ptxas}, not {ptxas_version()}: run louver tune again"
            )
        try:
            if tiles:
                return replace(RegisterTiles(**self.schedule), target=machine.name)
            schedule = Schedule.of(**self.schedule)
            most = deepest(problem, schedule, machine).ring.stages
        except (TypeError, ValueError) as error:
            raise UnusableEntryError(f"its schedule is not legal: {error}") from error
        if schedule.occupancy.dependent != self.place.dependent:
            raise UnusableEntryError(f"its schedule is {'not ' if self.place.dependent else ''}a dependent one")
        if schedule.store.way == "bulk" and not self.place.aligned_output:
            raise UnusableEntryError("its schedule stores in bulk, which the output's alignment forbids")
        if schedule.ring.stages > most:
            raise UnusableEntryError(
                f"its schedule has {schedule.ring.stages} stages, where the library takes at most {most}"
            )
        return schedule


def size_class(size: int) -> int:
    """The least class that is not below `size`: 8, 16, …, 128, 192, 256, 384, …"""
    if size < 1:
        raise ValueError(f"sizes are at least 1, got {size}")
    top = max(LEAST_CLASS, 1 << (size - 1).bit_length())
    middle = top // 4 * 3
    return middle if top > HALVES_FROM and size <= middle else top


def problem_facts(problem: Problem) -> dict[str, Any]:
    """The fields of a problem by name, as JSON values."""
    return json.loads(json.dumps({f.name: getattr(problem, f.name) for f in fields(problem)}, default=by_fields))


def place_of(
    problem: Problem, m: int, n: int, k: int, device: str, *, aligned_output: bool, dependent: bool = False
) -> Place:
    """The place of the entry of a product `a [m, k] @ b [k, n]` on a device."""
    sizes = (size_class(m), size_class(n), size_class(k))
    return Place(device, problem_facts(problem), sizes, aligned_output, dependent)


def status(entry: Entry, machine: Target) -> str:
    """The reason why an entry is skipped; "" for a usable entry."""
    try:
        entry.usable(problem_of(entry.place), machine)
    except UnusableEntryError as error:
        return str(error)
    return ""


def problem_of(place: Place) -> Problem:
    """The problem of a place, from fields that are texts or None. Raises UnusableEntryError for an unknown problem."""
    plain = {name: value for name, value in place.problem.items() if value is None or isinstance(value, str)}
    try:
        return Problem(**cast("dict[str, Any]", plain))
    except (TypeError, ValueError) as error:
        raise UnusableEntryError(f"this version of Louver does not know its problem: {error}") from error
