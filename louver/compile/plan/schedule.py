"""Schedules: frozen records, chosen by a model or a user, from which schedule IR is generated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.ir.product import Unit, selection_of
from louver.isa import fma_block
from louver.isa.fma_block import FmaBlock
from louver.isa.prepack import WORDS, columns_per_load
from louver.isa.targets import Target

STEPS = (16, 32, 64, 128)
"""Columns of K that a stage may hold."""


DENSE_BYTES = 32
"""Bytes along K of a product that no metadata lifts."""


def steps_of(element: str, unit: Unit = "wgmma", *, lifted: bool = True) -> tuple[int, ...]:
    """Those of `STEPS` that hold whole metadata words of an element type, lines that threads multiply, or products that no metadata lifts."""
    if unit == "fma":
        return fma_block.STEPS
    if not lifted:
        return tuple(step for step in STEPS if step * element_type(element).bytes >= DENSE_BYTES)
    return tuple(step for step in STEPS if step * WORDS >= columns_per_load(element))


def _positive(**values: Any) -> None:
    for name, value in values.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a positive integer, got {value!r}")


def _one_of(name: str, value: Any, allowed: tuple[Any, ...], said: str) -> None:
    if type(value) is not type(allowed[0]) or value not in allowed:
        raise ValueError(f"{name} is {said}, got {value!r}")


@dataclass(frozen=True, slots=True)
class Tile:
    """Output elements of a CTA, m along the sparse rows, and k: dense K elements of a stage."""

    m: int = 128
    n: int = 256
    k: int = 64

    def __post_init__(self) -> None:
        _positive(tile_m=self.m, tile_n=self.n, tile_k=self.k)
        if self.m > 256:
            raise ValueError(f"tile_m is at most 256 (a tensor map's box), got {self.m}")
        if self.n % 8 or self.n > 256:
            raise ValueError(f"tile_n is a multiple of 8, at most 256, got {self.n}")
        if self.k not in STEPS:
            raise ValueError(f"tile_k is 16, 32, 64 or 128, got {self.k}")


@dataclass(frozen=True, slots=True)
class Roles:
    """Warpgroups of a CTA. consumers: those that multiply.

    All share each tile by rows. specialized: another one feeds the ring; False: one warpgroup does all in turn (copies, waits,
    multiplies, waits).
    """

    consumers: int = 2
    specialized: bool = True

    def __post_init__(self) -> None:
        _one_of("consumers", self.consumers, (1, 2, 3, 4), "1 to 4 warpgroups")
        if type(self.specialized) is not bool:
            raise ValueError(f"specialized is True or False, got {self.specialized!r}")

    @property
    def threads(self) -> int:
        """Threads of a CTA: a producer warpgroup, if there is one, and the consumers."""
        return 128 * (int(self.specialized) + self.consumers)


@dataclass(frozen=True, slots=True)
class Ring:
    """The ring that brings operands to their products. stages: its depth in shared memory.

    in_flight: groups of products (one a step) still running when the next step begins; a stage is released when its group has ended,
    so `in_flight` steps later. metadata: "global": words go from global memory straight to registers, 256 columns at a time, ahead of their products; "stage": by
    bulk copies into the stage, with its operands; "barrier": the same on barriers of their own, so that they are in registers before
    the operands arrive. Of vectors N:M@L, whose rows no metadata lifts, "global" lists say which rows of the dense operand are gathered; by a "stage" all rows come
    there, and threads pick those that their windows keep.
    """

    stages: int = 5
    in_flight: Literal[0, 1] = 1
    metadata: Literal["global", "stage", "barrier"] = "global"

    def __post_init__(self) -> None:
        _positive(stages=self.stages)
        _one_of("in_flight", self.in_flight, (0, 1), "0 or 1 groups of products")
        _one_of("metadata", self.metadata, ("global", "stage", "barrier"), '"global", "stage" or "barrier"')
        if self.stages == 1 and self.in_flight:
            raise ValueError(
                "a ring needs 2 stages, or 1 with in_flight 0, so that nothing is left in flight, "
                f"got 1 stage with in_flight {self.in_flight}"
            )


@dataclass(frozen=True, slots=True)
class Store:
    """The store of results. way: "direct" writes them from registers, for any output; "bulk" stages them in shared memory and
    sends them by bulk copies, for outputs whose address, row pitch and row bytes are multiples of 16.

    staging: columns that a warpgroup stages at a time for a bulk store; None lets `layout.output_layout` choose.
    """

    way: Literal["direct", "bulk"] = "direct"
    staging: int | None = None

    def __post_init__(self) -> None:
        _one_of("store", self.way, ("direct", "bulk"), '"direct" or "bulk"')


@dataclass(frozen=True, slots=True)
class Order:
    """The order of tiles. raster: rows of tiles that are walked before the next column; None: each launch chooses them
    (`louver.library.order`).

    cluster: CTAs along M that share each tile of the dense operand by multicast. l2: "even": no wish; "values": the L2 cache keeps the sparse operand,
    which every column of tiles reads again, before the dense one and, with bulk stores, the output, which pass by.
    """

    raster: int | None = None
    cluster: Literal[1, 2] = 1
    l2: Literal["even", "values"] = "even"

    def __post_init__(self) -> None:
        if self.raster is not None:
            _positive(raster=self.raster)
        _one_of("cluster", self.cluster, (1, 2), "1 or 2 CTAs")
        _one_of("l2", self.l2, ("even", "values"), '"even" or "values"')


@dataclass(frozen=True, slots=True)
class Work:
    """The part of the product that a CTA does at a time. unit: "tiles": whole tiles, over all of K; "ranges": the launch may cut its last
    tiles into equal ranges of K, whose sums the kernel adds in a fixed order, by way of global memory; "pairs": it may cut them into two,
    whose CTAs are a cluster, exchange sums through shared memory, and store half of the tile's columns each.
    """

    unit: Literal["tiles", "ranges", "pairs"] = "tiles"

    def __post_init__(self) -> None:
        _one_of("work", self.unit, ("tiles", "ranges", "pairs"), '"tiles", "ranges" or "pairs"')


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The kernels that share an SM. resident: CTAs that it has room for, each with that part of its registers and shared memory.

    dependent: the kernel may begin while the kernels before it in its stream end. It copies stored values and metadata at once,
    and touches all other memory after those kernels. Half of the room is then for the next kernel.
    """

    resident: Literal[1, 2, 4] = 1
    dependent: bool = False

    def __post_init__(self) -> None:
        _one_of("resident", self.resident, (1, 2, 4), "1, 2 or 4 CTAs of an SM")
        if type(self.dependent) is not bool:
            raise ValueError(f"dependent is True or False, got {self.dependent!r}")

    @property
    def ctas(self) -> int:
        """CTAs of one launch on an SM."""
        return max(1, self.resident // 2) if self.dependent else self.resident


FIELDS: Mapping[str, tuple[str, str]] = {
    "tile_m": ("tile", "m"),
    "tile_n": ("tile", "n"),
    "tile_k": ("tile", "k"),
    "consumers": ("roles", "consumers"),
    "stages": ("ring", "stages"),
    "cluster": ("order", "cluster"),
    "raster": ("order", "raster"),
    "store": ("store", "way"),
    "staging": ("store", "staging"),
    "specialized": ("roles", "specialized"),
    "metadata": ("ring", "metadata"),
    "in_flight": ("ring", "in_flight"),
    "l2": ("order", "l2"),
    "work": ("work", "unit"),
    "resident": ("occupancy", "resident"),
    "dependent": ("occupancy", "dependent"),
}
"""A schedule's fields as hints, tables and records name them: which record has each, and under which name."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A warp-specialized schedule with a ring of stages that bulk copies fill: a chain of records, each of one concern."""

    tile: Tile = Tile()
    roles: Roles = Roles()
    ring: Ring = Ring()
    store: Store = Store()
    order: Order = Order()
    work: Work = Work()
    occupancy: Occupancy = Occupancy()

    def __post_init__(self) -> None:
        rows = 64 * self.roles.consumers
        if self.tile.m % rows:
            raise ValueError(
                f"each consumer warpgroup takes whole blocks of 64 rows: tile_m must be a multiple of "
                f"64 × consumers = {rows}, got {self.tile.m}"
            )
        staging = self.store.staging
        if staging is not None and (staging < 1 or self.stored_columns % staging):
            half = "half of " if self.pairs else ""
            raise ValueError(f"staging divides {half}tile_n, {self.stored_columns}, got {staging}")
        if not self.roles.specialized and (self.roles.consumers, self.ring.stages) != (1, 1):
            raise ValueError(
                "without a producer one warpgroup copies, waits and multiplies in turn: consumers is 1 and stages 1, got "
                f"{self.roles.consumers} and {self.ring.stages}"
            )
        if not self.pairs:
            return
        if self.order.cluster > 1:
            raise ValueError(f"a pair is a cluster for itself: work 'pairs' takes cluster 1, got {self.order.cluster}")
        if self.tile.n % 16:
            raise ValueError(
                f"each CTA of a pair stores whole 8 columns: tile_n is a multiple of 16, got {self.tile.n}"
            )

    @property
    def cuts(self) -> bool:
        """Whether a launch may cut tiles into ranges of K."""
        return self.work.unit != "tiles"

    @property
    def pairs(self) -> bool:
        """Whether two ranges of a tile are a cluster's."""
        return self.work.unit == "pairs"

    @property
    def cluster_ctas(self) -> int:
        """CTAs of a cluster, whether they share tiles or a tile's ranges."""
        return 2 if self.pairs else self.order.cluster

    @property
    def stored_columns(self) -> int:
        """Columns of a tile that a CTA may store, of which staged columns are a divisor."""
        return self.tile.n // 2 if self.pairs else self.tile.n

    @classmethod
    def of(cls, **given: Any) -> Schedule:
        """A schedule by the names of `FIELDS`; the others have their defaults. Raises as `changed` does."""
        return cls().changed(**given)

    def changed(self, **given: Any) -> Schedule:
        """The schedule with other values of `FIELDS`. Raises TypeError for an unknown name, ValueError for what does not go together."""
        unknown = [name for name in given if name not in FIELDS]
        if unknown:
            raise TypeError(f"a schedule has the fields {', '.join(FIELDS)}, got {unknown[0]!r}")
        parts: dict[str, dict[str, Any]] = {}
        for name, (record, part) in FIELDS.items():
            if name in given:
                parts.setdefault(record, {})[part] = given[name]
        return replace(self, **{name: replace(getattr(self, name), **each) for name, each in parts.items()})

    def flat(self) -> dict[str, Any]:
        """All values by the names of `FIELDS`, which `of` takes again."""
        return {name: getattr(getattr(self, record), part) for name, (record, part) in FIELDS.items()}

    def __str__(self) -> str:
        return f"Schedule({', '.join(f'{name}={value!r}' for name, value in self.flat().items())})"

    @property
    def blocks(self) -> int:
        """Blocks of 64 rows that each consumer warpgroup holds."""
        return self.tile.m // (64 * self.roles.consumers)


WORKING_REGISTERS = 24
"""Registers of a consumer beside its accumulators, at least: metadata, addresses, descriptors."""

MULTIPLIED_REGISTERS = 8
"""Registers of two pieces of values that threads multiply on CUDA cores, beside four lines of their columns of the dense operand."""

INSTRUCTION_REGISTERS = 27
"""Registers beside the sums of one `wgmma.sp` that ptxas wants at a kernel's entry, before `setmaxnreg`: it refuses fewer (C7602)."""


def accumulator_registers(schedule: Schedule, accumulator: str, *, promoted: bool) -> int:
    """Registers of a consumer's thread that hold sums of that element type; promoted ones are held beside the others."""
    columns = schedule.tile.n // (4 if accumulator == "f16" else 2)
    return schedule.blocks * columns * (2 if promoted else 1)


def check_registers(
    schedule: Schedule,
    accumulator: str,
    target: Target,
    *,
    promoted: bool,
    lists: int = 0,
    unit: Unit = "wgmma",
    turned: bool = False,
) -> None:
    """Raises ValueError for sums that a consumer's registers cannot hold. Targets that share out no registers are not checked."""
    if not target.setmaxnreg_step:
        return
    needed = accumulator_registers(schedule, accumulator, promoted=promoted) + WORKING_REGISTERS
    if unit == "fma":
        needed += MULTIPLIED_REGISTERS + 4 * FmaBlock(schedule.tile.n).lane_columns
    _, held = register_split(schedule, target, lists=lists, unit=unit, turned=turned)
    beside = f", with {schedule.occupancy.resident} CTAs on an SM," if schedule.occupancy.resident > 1 else ""
    if needed > min(held, target.registers_per_thread):
        kind = f"promoted {accumulator}" if promoted else accumulator
        raise ValueError(
            f"a thread of {schedule.roles.consumers} consumer warpgroups{beside} has {held} registers, got a tile of {schedule.tile.m}×"
            f"{schedule.tile.n} whose {kind} sums and the rest need {needed}: use a smaller tile"
        )
    entry = entry_registers(schedule, target)
    instruction = (
        accumulator_registers(schedule, accumulator, promoted=False) // schedule.blocks + INSTRUCTION_REGISTERS
    )
    if unit == "wgmma" and instruction > entry:
        raise ValueError(
            f"a CTA of {schedule.roles.threads} threads{beside} begins with {entry} registers a thread, got {schedule.tile.n} columns, whose "
            f"instruction needs {instruction}: use a narrower tile or fewer CTAs on an SM"
        )


def list_rows(pattern: str, schedule: Schedule) -> int:
    """Rows of a left operand of vectors N:M@L that share a list of rows of the dense operand: the tile's, or as many of them as make whole
    windows, where these are whole warpgroups' rows.
    """
    rows = math.gcd(Pattern.parse(pattern).length, schedule.tile.m)
    return schedule.tile.m if rows % (schedule.tile.m // schedule.roles.consumers) else rows


def gathers(pattern: str | None, metadata: str) -> bool:
    """Whether lists name the rows of the dense operand that are copied, where metadata comes so: others are picked from a stage."""
    selection = selection_of(pattern)
    return selection.indexed and (selection.lifted or metadata == "global")


def lists_of(pattern: str | None, schedule: Schedule) -> int:
    """Lists of rows of the dense operand that a tile has, each with rows of its own in a stage; 0 where nothing is gathered."""
    if pattern is None or not gathers(pattern, schedule.ring.metadata):
        return 0
    return schedule.tile.m // list_rows(pattern, schedule)


GATHERING_REGISTERS = 36
"""Registers of a producer's thread that gathers, beside entries, pointers and places of a stage: addresses, sizes."""

STAGED_METADATA_REGISTERS = 8
"""The same for metadata that the producer copies to a stage, too."""

TURNING_REGISTERS = 60
"""Registers of a producer's thread that turns rows, for a block on its way, places of a stage, addresses and sizes."""

TURNED_REGISTERS = 12
"""The same for each list: entries and pointers."""

GATHERED_LINES = 16
"""Lines of a stage that a producer warpgroup fills at a time: 8 threads a line of 128 bytes."""

ENTRY_SETS = 4
"""Steps whose entries a producer's thread that gathers holds, at most: their loads are as many steps ahead of the copies."""

ENTRY_REGISTERS = 16
"""Registers of all of them, if there is more than one set."""


def entry_sets(schedule: Schedule, lists: int, *, turned: bool) -> int:
    """Sets of registers that hold entries of so many lists. A step of rows that are turned takes long enough for one set. CTAs that share an SM
    have fewer registers, and hide each other's waits.
    """
    rows = max(1, lists * schedule.tile.k // GATHERED_LINES)
    return 1 if turned else max(1, min(ENTRY_SETS // schedule.occupancy.resident, ENTRY_REGISTERS // rows))


def entry_registers(schedule: Schedule, target: Target) -> int:
    """Registers of each thread of a CTA at its start: as many as all threads of an SM can have, in steps of `setmaxnreg`."""
    step = target.setmaxnreg_step
    return target.registers_per_sm // (schedule.roles.threads * schedule.occupancy.resident) // step * step


def register_split(
    schedule: Schedule, target: Target, *, lists: int = 0, unit: Unit = "wgmma", turned: bool = False
) -> tuple[int, int]:
    """setmaxnreg targets (producer, consumer): the CTA's registers shared out so that consumers hold their accumulators.

    lists: of rows to gather, in a tile. All threads of the producer copy then, in place of one that begins copies; turned: through their
    registers. For CUDA cores that one copies picks too, and finds the step's first group.
    There are no more registers to share than `entry_registers`.
    """
    step, entry = target.setmaxnreg_step, entry_registers(schedule, target)
    producer = target.setmaxnreg_min + (step if unit == "fma" else 0)
    if lists:
        rows = schedule.tile.k // GATHERED_LINES
        # Entries, pointers, and a place of each row that lists share.
        staged = STAGED_METADATA_REGISTERS if schedule.ring.metadata == "stage" else 0
        needed = GATHERING_REGISTERS + staged + rows * (lists * (entry_sets(schedule, lists, turned=turned) + 2) + 1)
        if turned:
            needed = TURNING_REGISTERS + lists * TURNED_REGISTERS
        producer = -(-needed // step) * step
    consumer = (entry * (1 + schedule.roles.consumers) - producer) // schedule.roles.consumers
    return producer, min(target.setmaxnreg_max, consumer // step * step)
