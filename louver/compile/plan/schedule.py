"""Schedules: frozen records that a model or a user chooses. Schedule IR is generated from them."""

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
from louver.isa.metadata import WORDS, columns_per_load
from louver.isa.rule import RuleError
from louver.isa.targets import Target

STEPS = (16, 32, 64, 128)
"""The possible numbers of K columns of a stage."""


DENSE_BYTES = 32
"""Bytes along K of one `wgmma` product whose left operand is not lifted."""


def steps_of(element: str, unit: Unit = "wgmma", *, lifted: bool = True) -> tuple[int, ...]:
    """The `STEPS` that fit an element type.

    They hold whole metadata words of a lifted operand, or whole products of an operand that is not lifted. For unit
    "fma" they hold whole lines that threads multiply.
    """
    if unit == "fma":
        return fma_block.STEPS
    if not lifted:
        return tuple(step for step in STEPS if step * element_type(element).bytes >= DENSE_BYTES)
    return tuple(step for step in STEPS if step * WORDS >= columns_per_load(element))


def _positive(**values: Any) -> None:
    for name, value in values.items():
        if not isinstance(value, int) or value < 1:
            raise RuleError(f"{name} must be a positive integer, got {value!r}")


def _one_of(name: str, value: Any, allowed: tuple[Any, ...], said: str) -> None:
    if type(value) is not type(allowed[0]) or value not in allowed:
        raise RuleError(f"{name} is {said}, got {value!r}")


@dataclass(frozen=True, slots=True)
class CtaTile:
    """Sizes of a CTA's tile: output elements along m (the rows of the left operand) and n, and K elements of a stage."""

    m: int = 128
    n: int = 256
    k: int = 64

    def __post_init__(self) -> None:
        _positive(tile_m=self.m, tile_n=self.n, tile_k=self.k)
        if self.m > 256:
            raise RuleError(f"tile_m is at most 256 (a tensor map's box), got {self.m}")
        if self.n % 8 or self.n > 256:
            raise RuleError(f"tile_n is a multiple of 8, at most 256, got {self.n}")
        if self.k not in STEPS:
            raise RuleError(f"tile_k is 16, 32, 64 or 128, got {self.k}")


@dataclass(frozen=True, slots=True)
class Roles:
    """Warpgroups of a CTA.

    consumers: warpgroups that multiply. They divide the rows of each tile.
    specialized: whether a further warpgroup fills the ring. If False, one warpgroup copies, waits, multiplies and waits
    in turn.
    """

    consumers: int = 2
    specialized: bool = True

    def __post_init__(self) -> None:
        _one_of("consumers", self.consumers, (1, 2, 3, 4), "1 to 4 warpgroups")
        if type(self.specialized) is not bool:
            raise RuleError(f"specialized is True or False, got {self.specialized!r}")

    @property
    def threads(self) -> int:
        """Threads of a CTA: a producer warpgroup, if there is one, and the consumers."""
        return 128 * (int(self.specialized) + self.consumers)


@dataclass(frozen=True, slots=True)
class Ring:
    """The ring of stages in shared memory that brings operands to their products.

    stages: stages of the ring.
    in_flight: groups of products that still run when the next step begins. A step has one group. A stage is released
    when its group has ended, which is `in_flight` steps later.
    metadata: how metadata comes.

    Metadata words of a lifted operand:

    - "global": loads bring them from global memory to registers before their products, 256 columns at a time.
    - "stage": bulk copies bring them to the stage, with its operands.
    - "barrier": as "stage", but on separate barriers. The words are in registers before the operands arrive.

    Vectors N:M@L that are not lifted:

    - "global": lists name the rows of the dense operand that are gathered.
    - "stage": all rows come to the stage. Threads pick the rows that their windows keep.
    """

    stages: int = 5
    in_flight: Literal[0, 1] = 1
    metadata: Literal["global", "stage", "barrier"] = "global"

    def __post_init__(self) -> None:
        _positive(stages=self.stages)
        _one_of("in_flight", self.in_flight, (0, 1), "0 or 1 groups of products")
        _one_of("metadata", self.metadata, ("global", "stage", "barrier"), '"global", "stage" or "barrier"')
        if self.stages == 1 and self.in_flight:
            raise RuleError(
                "a ring needs 2 stages, or 1 with in_flight 0, so that nothing is left in flight, "
                f"got 1 stage with in_flight {self.in_flight}"
            )


@dataclass(frozen=True, slots=True)
class Store:
    """How results are stored.

    way: "direct" writes any output from registers. "bulk" stages results in shared memory and writes them by bulk
    copies. Address, row pitch and row bytes of the output must then be multiples of 16.
    staging: columns that a warpgroup stages at a time for a bulk store, fewer at the end of a tile; None lets
        `layout.output_layout` choose.
    """

    way: Literal["direct", "bulk"] = "direct"
    staging: int | None = None

    def __post_init__(self) -> None:
        _one_of("store", self.way, ("direct", "bulk"), '"direct" or "bulk"')


@dataclass(frozen=True, slots=True)
class Order:
    """The order of tiles.

    raster: rows of tiles that are processed before the next column; None lets each launch choose
    (`louver.choose.ranges`).
    cluster: CTAs along M that share each tile of the dense operand by multicast.
    l2: the eviction priority in the L2 cache. "even" has no preference. "values" prefers the sparse operand, which
    every column of tiles reads again, to the dense operand and to an output of bulk stores.
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
    """The part of the product that a CTA computes at a time.

    - "tiles": whole tiles, over all of K.
    - "ranges": the launch may cut its last tiles into equal ranges of K. The kernel adds their sums through global
      memory, in a fixed order.
    - "pairs": the launch may cut its last tiles into two ranges. Their CTAs are a cluster and exchange sums through
      shared memory. Each CTA stores half of the tile's columns.
    """

    unit: Literal["tiles", "ranges", "pairs"] = "tiles"

    def __post_init__(self) -> None:
        _one_of("work", self.unit, ("tiles", "ranges", "pairs"), '"tiles", "ranges" or "pairs"')


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The CTAs that share an SM.

    resident: CTAs that fit an SM. Each takes an equal part of its registers and shared memory.
    dependent: the kernel may begin while earlier kernels of its stream end. It copies stored values and metadata at
    once. It waits for those kernels before it accesses any other memory. The next kernel then gets half of the SM.
    """

    resident: Literal[1, 2, 4] = 1
    dependent: bool = False

    def __post_init__(self) -> None:
        _one_of("resident", self.resident, (1, 2, 4), "1, 2 or 4 CTAs of an SM")
        if type(self.dependent) is not bool:
            raise RuleError(f"dependent is True or False, got {self.dependent!r}")

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
"""The names of a schedule's fields in hints, tables and records, with the record of each field and its name there."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A warp-specialized schedule with a ring of stages that bulk copies fill. Each record describes one part of it."""

    tile: CtaTile = CtaTile()
    roles: Roles = Roles()
    ring: Ring = Ring()
    store: Store = Store()
    order: Order = Order()
    work: Work = Work()
    occupancy: Occupancy = Occupancy()

    def __post_init__(self) -> None:
        rows = 64 * self.roles.consumers
        if self.tile.m % rows:
            raise RuleError(
                f"each consumer warpgroup takes whole blocks of 64 rows: tile_m must be a multiple of "
                f"64 × consumers = {rows}, got {self.tile.m}"
            )
        staging = self.store.staging
        if staging is not None and not 1 <= staging <= self.stored_columns:
            half = "half of " if self.pairs else ""
            raise RuleError(
                f"staging is 1 to {half}tile_n, {self.stored_columns}, got {staging}: give columns in this range, or None "
                "for the default"
            )
        if not self.roles.specialized and (self.roles.consumers, self.ring.stages) != (1, 1):
            raise RuleError(
                "without a producer one warpgroup copies, waits and multiplies in turn: consumers is 1 and stages 1, got "
                f"{self.roles.consumers} and {self.ring.stages}"
            )
        if not self.pairs:
            return
        if self.order.cluster > 1:
            raise RuleError(f"a pair is a cluster for itself: work 'pairs' takes cluster 1, got {self.order.cluster}")
        if self.tile.n % 16:
            raise RuleError(f"each CTA of a pair stores whole 8 columns: tile_n is a multiple of 16, got {self.tile.n}")

    @property
    def cuts(self) -> bool:
        """Whether a launch may cut tiles into ranges of K."""
        return self.work.unit != "tiles"

    @property
    def pairs(self) -> bool:
        """Whether the CTAs of a tile's two ranges are a cluster."""
        return self.work.unit == "pairs"

    @property
    def cluster_ctas(self) -> int:
        """CTAs of a cluster. They share tiles, or the ranges of a tile."""
        return 2 if self.pairs else self.order.cluster

    @property
    def stored_columns(self) -> int:
        """Columns of a tile that a CTA stores. The number of staged columns divides it."""
        return self.tile.n // 2 if self.pairs else self.tile.n

    @classmethod
    def of(cls, **given: Any) -> Schedule:
        """A schedule with these values of `FIELDS`, and defaults for the rest. Raises the errors of `changed`."""
        return cls().changed(**given)

    def changed(self, **given: Any) -> Schedule:
        """The schedule with other values of `FIELDS`.

        Raises TypeError for an unknown name, and ValueError for values that cannot be combined.
        """
        unknown = [name for name in given if name not in FIELDS]
        if unknown:
            raise TypeError(f"a schedule has the fields {', '.join(FIELDS)}, got {unknown[0]!r}")
        parts: dict[str, dict[str, Any]] = {}
        for name, (record, part) in FIELDS.items():
            if name in given:
                parts.setdefault(record, {})[part] = given[name]
        return replace(self, **{name: replace(getattr(self, name), **each) for name, each in parts.items()})

    def flat(self) -> dict[str, Any]:
        """All values by the names of `FIELDS`. `of` makes the schedule from them again."""
        return {name: getattr(getattr(self, record), part) for name, (record, part) in FIELDS.items()}

    def __str__(self) -> str:
        return f"Schedule({', '.join(f'{name}={value!r}' for name, value in self.flat().items())})"

    @property
    def blocks(self) -> int:
        """Blocks of 64 rows that each consumer warpgroup holds."""
        return self.tile.m // (64 * self.roles.consumers)


WORKING_REGISTERS = 24
"""The fewest registers of a consumer beside its accumulators: metadata, addresses, descriptors."""

FEW_SUMS = 64
"""Sums of a consumer thread that leave registers for the producer."""

MULTIPLIED_REGISTERS = 8
"""Registers of the two pieces of values that a thread multiplies on CUDA cores.

Its four lines of the dense operand are not included.
"""

INSTRUCTION_REGISTERS = 27
"""Registers beside the sums of one `wgmma.sp` that ptxas needs at a kernel's entry, before `setmaxnreg`.

With fewer it fails (C7602).
"""


def accumulator_registers(schedule: Schedule, accumulator: str, *, promoted: bool) -> int:
    """Registers of a consumer thread for sums of the element type `accumulator`. Promoted sums take as many again."""
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
    """Raises ValueError for sums that do not fit the registers of a consumer.

    Targets without `setmaxnreg` are not checked.
    """
    if not target.setmaxnreg_step:
        return
    needed = accumulator_registers(schedule, accumulator, promoted=promoted) + WORKING_REGISTERS
    if unit == "fma":
        needed += MULTIPLIED_REGISTERS + 4 * FmaBlock(schedule.tile.n).lane_columns
    _, held = register_split(schedule, target, lists=lists, unit=unit, turned=turned)
    beside = f", with {schedule.occupancy.resident} CTAs on an SM," if schedule.occupancy.resident > 1 else ""
    if needed > min(held, target.registers_per_thread):
        kind = f"promoted {accumulator}" if promoted else accumulator
        raise RuleError(
            f"a thread of {schedule.roles.consumers} consumer warpgroups{beside} has {held} registers, got a tile of {schedule.tile.m}×"
            f"{schedule.tile.n} whose {kind} sums and the rest need {needed}: use a smaller tile"
        )
    entry = entry_registers(schedule, target)
    instruction = (
        accumulator_registers(schedule, accumulator, promoted=False) // schedule.blocks + INSTRUCTION_REGISTERS
    )
    if unit == "wgmma" and instruction > entry:
        raise RuleError(
            f"a CTA of {schedule.roles.threads} threads{beside} begins with {entry} registers a thread, got {schedule.tile.n} columns, whose "
            f"instruction needs {instruction}: use a narrower tile or fewer CTAs on an SM"
        )


def list_rows(pattern: str, schedule: Schedule) -> int:
    """Rows of a left operand N:M@L that share a list of rows of the dense operand.

    They are gcd(rows of a window, rows of the tile) rows, if these are the rows of whole warpgroups. Otherwise they are
    all rows of the tile.
    """
    rows = math.gcd(Pattern.parse(pattern).length, schedule.tile.m)
    return schedule.tile.m if rows % (schedule.tile.m // schedule.roles.consumers) else rows


def gathers(pattern: str | None, metadata: str) -> bool:
    """Whether lists name the rows of the dense operand that are copied. For other indexed operands, threads pick rows."""
    selection = selection_of(pattern)
    return selection.indexed and (selection.lifted or metadata == "global")


def lists_of(pattern: str | None, schedule: Schedule) -> int:
    """The number of lists of rows of the dense operand in a tile.

    Each has separate rows in a stage; 0 if no rows are gathered.
    """
    if pattern is None or not gathers(pattern, schedule.ring.metadata):
        return 0
    return schedule.tile.m // list_rows(pattern, schedule)


GATHERING_REGISTERS = 36
"""Registers of a producer thread that gathers, for addresses and sizes.

Entries, pointers and places of a stage are not included.
"""

STAGED_METADATA_REGISTERS = 8
"""Further registers of that thread if the producer also copies metadata to a stage."""

TURNING_REGISTERS = 60
"""Registers of a producer thread that turns rows: the current block, places of a stage, addresses and sizes."""

TURNED_REGISTERS = 12
"""Further registers of that thread for each list: entries and pointers."""

GATHERED_LINES = 16
"""Lines of a stage that a producer warpgroup fills at a time: 8 threads for a line of 128 bytes."""

ENTRY_SETS = 4
"""The largest number of steps whose entries a gathering thread holds.

It loads entries this many steps before the copies.
"""

ENTRY_REGISTERS = 16
"""The largest number of registers of all sets of entries, if there is more than one set."""


def entry_sets(schedule: Schedule, lists: int, *, turned: bool) -> int:
    """Sets of registers that hold entries of this number of lists.

    To turn the rows of a step takes so long that one set is enough. CTAs that share an SM have fewer registers, but
    hide each other's waits.
    """
    rows = max(1, lists * schedule.tile.k // GATHERED_LINES)
    return 1 if turned else max(1, min(ENTRY_SETS // schedule.occupancy.resident, ENTRY_REGISTERS // rows))


def entry_registers(schedule: Schedule, target: Target) -> int:
    """Registers of each thread when its CTA starts: an equal part of the SM's registers, in steps of `setmaxnreg`."""
    step = target.setmaxnreg_step
    return target.registers_per_sm // (schedule.roles.threads * schedule.occupancy.resident) // step * step


def register_split(
    schedule: Schedule,
    target: Target,
    *,
    lists: int = 0,
    unit: Unit = "wgmma",
    turned: bool = False,
    batched: bool = False,
) -> tuple[int, int]:
    """The setmaxnreg targets (producer, consumer). They give consumers as many registers as possible.

    The CTA has `entry_registers` for each of its threads.

    lists: lists of rows to gather in a tile. With lists, all threads of the producer copy. Without lists, one thread
    begins copies. On CUDA cores ("fma") it also copies picks, and finds the first group of the step.
    turned: whether gathered rows pass through the registers of the producer's threads.
    batched: whether the product is a batch. Then the producer also finds the entry. It would spill without the registers
    that rounding leaves, and without a step that few sums leave.
    """
    step, entry = target.setmaxnreg_step, entry_registers(schedule, target)
    few = batched and accumulator_registers(schedule, "f32", promoted=False) <= FEW_SUMS
    producer = target.setmaxnreg_min + (step if unit == "fma" or few else 0)
    if lists:
        rows = schedule.tile.k // GATHERED_LINES
        # Entries, pointers, and the place of each row, which lists share.
        staged = STAGED_METADATA_REGISTERS if schedule.ring.metadata == "stage" else 0
        needed = GATHERING_REGISTERS + staged + rows * (lists * (entry_sets(schedule, lists, turned=turned) + 2) + 1)
        if turned:
            needed = TURNING_REGISTERS + lists * TURNED_REGISTERS
        producer = -(-needed // step) * step
    consumers, free = schedule.roles.consumers, entry * (1 + schedule.roles.consumers) - producer
    consumer = free // consumers // step * step
    rest = (free - consumers * consumer) // step * step if batched else 0
    return producer + rest, min(target.setmaxnreg_max, consumer)
