"""Measured schedules, stored by device, problem and size class. They are used only if they are valid for this version
of Louver.

Entries come from the user's cache directory or from a table in the package. `louver tune` writes one file for each
entry to the cache directory. An entry that is missing, unreadable, illegal or of another version is skipped, and the
reason is recorded. The model in `configure` then chooses. An entry records its problem, and says whether this version of
Louver can use it.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, cast

from louver.choose.choose_tiles import broken_rule, choose_tiles
from louver.choose.configure import choose, deepest
from louver.compile.plan.register_tiles import AnySchedule, RegisterTiles
from louver.compile.plan.schedule import FIELDS, Schedule
from louver.frontend.problem import Problem
from louver.isa.targets import Target, target
from louver.ptx.assembler import ptxas_version
from louver.runtime.cache import by_fields, cache_directory, source_hash
from louver.runtime.device import Device
from louver.runtime.folder import OwnFolder

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


SCHEMA = 2
"""Version of the file format."""

Origin: TypeAlias = Literal["tuned", "table", "model"]
"""The origin of a schedule: measured on this machine, from the package's table, or from the model."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The schedule of a product.

    origin: the source of the schedule.
    reason: why better sources were skipped; "" if the best source had an entry.
    """

    schedule: AnySchedule
    origin: Origin
    reason: str


class Terms(TypedDict, total=False):
    """The terms of a launch that decide about its schedule, see `decide`."""

    batch: int
    batch_invariant: bool
    dependent: bool
    form: str | None


def decide(
    problem: Problem,
    m: int,
    n: int,
    k: int,
    place: Device,
    *,
    aligned_output: bool,
    batch: int = 1,
    batch_invariant: bool = False,
    dependent: bool = False,
    form: str | None = None,
) -> Decision:
    """The schedule of `a [m, k] @ b [k, n]` on a device: tuned on this machine, else from the package's table, else the
    model's choice.

    An entry covers all sizes of its classes, and batches. It is valid if the model takes the same tile as for the
    measured size. The fill of the last wave of SMs decides the tile.

    batch: the number of such products.
    batch_invariant: each sum over K has the same order for every n, so K is not cut. If sums are promoted, that happens
        after each K step, so the depth of a step must be the model's.
    dependent: see `louver.plan`. An entry is valid for one of the two values only.
    form: the target of the kernel's instructions and limits; None for that of the device.

    Targets without warpgroup products have register tiles.
    """
    machine = target(form or place.target)
    alone = problem if problem.batch is None else replace(problem, batch=None)
    device = place.name if machine.name == place.target else f"{place.name}, {machine.name}"
    wanted = place_of(alone, m, n, k, device, aligned_output=aligned_output, dependent=dependent)
    model = partial(_model, machine=machine, place=place, aligned_output=aligned_output, dependent=dependent)
    tiled = model(problem, (m, n, k), batch=batch)
    chosen = tiled if batch_invariant else model(problem, (m, n, k), batch=batch, cuts=True)
    reasons: list[str] = []
    for origin, look in _SOURCES.items():
        try:
            entry = look(wanted)
            if entry is None:
                reasons.append(f"no entry ({origin})")
                continue
            if entry.shape is not None:
                _check_tile(model(alone, entry.shape), tiled, entry.shape)
            schedule = entry.usable(problem, machine)
            if isinstance(schedule, RegisterTiles) and isinstance(tiled, RegisterTiles):
                # What a call promises of its sizes is not measured.
                schedule = replace(schedule, k_multiple=tiled.k_multiple, aligned_output=tiled.aligned_output)
            elif isinstance(schedule, Schedule) and isinstance(tiled, Schedule):
                promoted = problem.accumulate == "promoted" and schedule.tile.k != tiled.tile.k
                if batch_invariant and (schedule.cuts or promoted):
                    raise UnusableEntryError(
                        "it sums K in another order than products of other sizes (batch_invariant)"
                    )
            return Decision(schedule, origin, "; ".join(reasons))
        except UnusableEntryError as error:
            reasons.append(f"entry passed over ({origin}): {error}")
    return Decision(chosen, "model", "; ".join(reasons))


def _model(
    problem: Problem,
    sizes: Sizes,
    *,
    machine: Target,
    place: Device,
    aligned_output: bool,
    dependent: bool,
    batch: int = 1,
    cuts: bool = False,
) -> AnySchedule:
    """The model's choice: for warpgroup products, or for register tiles."""
    m, n, k = sizes
    if machine.has("wgmma.sp") and (
        broken_rule(machine, problem.pattern, problem.a, problem.b, scaled=problem.epilogue.scaled) is None
    ):
        if machine.name != place.target:
            raise ValueError(
                f"kernels for {machine.name} run on GPUs of that target only, got {place}: name a target without warpgroup "
                "products, such as sm_80"
            )
        fixed = partial(choose, aligned_output=aligned_output, batch=batch, cuts=cuts, dependent=dependent)
        return fixed(problem, m, n, machine, place.sm_count, k=k)
    if dependent:
        raise ValueError(f"dependent launches have kernels for sm_90a, got {machine.name}: leave out dependent=True")
    return choose_tiles(problem, (m, n, k, batch), machine, place.sm_count, aligned_output=aligned_output)


def _check_tile(there: AnySchedule, here: AnySchedule, shape: Sizes) -> None:
    tiles = [
        (each.tile_m, each.tile_n) if isinstance(each, RegisterTiles) else (each.tile.m, each.tile.n)
        for each in (there, here)
    ]
    if tiles[0] != tiles[1]:
        measured, wanted = (f"{rows}×{columns}" for rows, columns in tiles)
        raise UnusableEntryError(
            f"measured at {shape[0]}×{shape[1]}×{shape[2]}, where tiles fill the SMs differently (the model "
            f"takes {measured} there and {wanted} here): tune this size"
        )


def keep(entry: Entry) -> Path:
    """Write an entry atomically, and replace the previous one. Any number of processes may write. Raises OSError."""
    folder, name = _folder(), f"{entry.place.key}.json"
    text = json.dumps({"schema": SCHEMA, **asdict(entry)}, indent=1, ensure_ascii=False)
    folder.write(name, text.encode())
    return folder.path / name


def kept() -> Iterator[tuple[Path, Entry | UnusableEntryError]]:
    """Each entry of the user's directory with its path, or the reason why it cannot be read."""
    folder = _folder()
    try:
        names = sorted(name for name in folder.files() if name.endswith(".json"))
    except FileNotFoundError:
        return
    except OSError as error:
        yield folder.path, UnusableEntryError(f"the folder cannot be read: {error.strerror or error}")
        return
    for name in names:
        try:
            entry = _read(name)
        except UnusableEntryError as error:
            yield folder.path / name, error
        else:
            if entry is not None:
                yield folder.path / name, entry


@functools.cache
def tables() -> tuple[Entry, ...]:
    """The entries of the package's tables."""
    folder = files("louver.choose").joinpath("tables")
    found = sorted((each for each in folder.iterdir() if each.name.endswith(".json")), key=lambda each: each.name)
    return tuple(entry for each in found for entry in read_table(each.read_text(encoding="utf-8")))


def read_table(text: str) -> Iterator[Entry]:
    """The entries of a table in JSON. A table has a device, and rows with the fields of a problem, the sizes that the
    row covers, and the fields of a schedule.
    """
    table = json.loads(text)
    for row in table["entries"]:
        facts = problem_facts(Problem(**row["problem"]))
        for m, n, k in row["sizes"]:
            sizes = (size_class(m), size_class(n), size_class(k))
            place = Place(table["device"], facts, sizes, row["aligned_output"])
            yield Entry(place, row["schedule"], shape=(m, n, k))


def _in_table(wanted: Place) -> Entry | None:
    return next((entry for entry in tables() if entry.place == wanted), None)


def _in_directory(wanted: Place) -> Entry | None:
    entry = _read(f"{wanted.key}.json")
    if entry is not None and entry.place != wanted:
        raise UnusableEntryError("its name does not match its content")
    return entry


_SOURCES: Mapping[Origin, Callable[[Place], Entry | None]] = {"tuned": _in_directory, "table": _in_table}


def _read(name: str) -> Entry | None:
    try:
        text = _folder().read(name).decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnusableEntryError(f"it cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UnusableEntryError(f"it cannot be read: {error}") from error
    try:
        facts = json.loads(text)
        if facts.pop("schema") != SCHEMA:
            raise UnusableEntryError("its form is of another version: run louver tune again")
        place = facts.pop("place")
        shape = facts.pop("shape")
        return Entry(
            Place(
                place["device"],
                place["problem"],
                _sizes(place["sizes"]),
                bool(place["aligned_output"]),
                bool(place["dependent"]),
            ),
            shape=None if shape is None else _sizes(shape),
            **facts,
        )
    except UnusableEntryError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnusableEntryError(f"it is damaged ({type(error).__name__}: {error}): run louver tune again") from error


def _sizes(given: Any) -> Sizes:
    m, n, k = (int(size) for size in given)
    return m, n, k


def _folder() -> OwnFolder:
    return OwnFolder(cache_directory())
