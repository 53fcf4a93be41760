"""How to run a product: a frozen record, chosen by a model or a user, from which schedule IR is generated."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from louver.isa.targets import Target

STEPS = (64, 128)
"""Columns of K that a stage may hold: whole metadata words, and rows of stored values within the widest swizzle span."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A warp-specialized, TMA-fed, multi-stage schedule.

    tile_m, tile_n: output elements of a CTA (m along the sparse rows). tile_k: dense K elements of a stage, 64 or 128.
    consumers: warpgroups that multiply, each tile_m / consumers rows. pingpong: two of them take whole tiles in turn instead, so
    that one stores its tile while the other multiplies. stages: depth of the shared-memory ring.
    cluster: CTAs that share each tile of one operand by multicast, `multicast`: "dense", then they stand along M, or "values" of
    the sparse operand (and metadata, if stages hold it), then along N. raster: tiles along M walked before the next column of
    tiles. store: "direct" writes results from registers, for any output; "bulk" stages them in shared
    memory and sends them by bulk copies, for outputs whose address, row pitch and row bytes are multiples of 16.
    staging: columns that a warpgroup stages at a time for a bulk store; None lets `layout.output_layout` choose.
    values: "shared": products read the sparse operand's values in the ring; "registers": each warp loads its part of them from
    the ring first, which leaves the products' own way to shared memory to the dense operand.
    specialized: a warpgroup of its own feeds the ring; False: one warpgroup does all in turn (copies, waits, multiplies, waits).
    metadata: "global": words go from global memory straight to registers, 256 columns at a time, ahead of their products;
    "stage": by bulk copies into the stage, with its operands; "barrier": the same on barriers of their own, so that they are in
    registers before the operands arrive.
    l2: "even": no wish; "values": the L2 cache keeps the sparse operand, which every column of tiles reads again, before the dense
    one and, with bulk stores, the output, which pass by.
    in_flight: groups of products (one a step) still running when the next step begins; a stage is released when its group has
    ended, so `in_flight` steps later.
    """

    tile_m: int = 128
    tile_n: int = 256
    tile_k: int = 64
    consumers: int = 2
    stages: int = 5
    cluster: Literal[1, 2] = 1
    raster: int = 16
    store: Literal["direct", "bulk"] = "direct"
    staging: int | None = None
    values: Literal["shared", "registers"] = "shared"
    specialized: bool = True
    metadata: Literal["global", "stage", "barrier"] = "global"
    in_flight: Literal[0, 1] = 1
    multicast: Literal["dense", "values"] = "dense"
    l2: Literal["even", "values"] = "even"
    pingpong: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{field.name} must be a positive integer, got {value!r}")
        if self.tile_m % (64 * self.sharing):
            raise ValueError(
                f"each consumer warpgroup takes whole blocks of 64 rows: tile_m must be a multiple of "
                f"64 × consumers = {64 * self.sharing}, got {self.tile_m}"
            )
        if self.tile_m > 256:
            raise ValueError(f"tile_m is at most 256 (a tensor map's box), got {self.tile_m}")
        if self.tile_n % 8 or self.tile_n > 256:
            raise ValueError(f"tile_n is a multiple of 8, at most 256, got {self.tile_n}")
        if self.tile_k not in STEPS:
            raise ValueError(f"tile_k is 64 or 128, got {self.tile_k}")
        if self.store not in ("direct", "bulk"):
            raise ValueError(f'store is "direct" or "bulk", got {self.store!r}')
        if self.staging is not None and (self.staging < 1 or self.tile_n % self.staging):
            raise ValueError(f"staging divides tile_n, {self.tile_n}, got {self.staging}")
        if self.values not in ("shared", "registers"):
            raise ValueError(f'values is "shared" or "registers", got {self.values!r}')
        if self.consumers not in (1, 2, 3, 4):
            raise ValueError(f"consumers is 1 to 4 warpgroups, got {self.consumers}")
        for name in ("specialized", "pingpong"):
            if type(getattr(self, name)) is not bool:
                raise ValueError(f"{name} is True or False, got {getattr(self, name)!r}")
        if self.metadata not in ("global", "stage", "barrier"):
            raise ValueError(f'metadata is "global", "stage" or "barrier", got {self.metadata!r}')
        if type(self.in_flight) is not int or self.in_flight not in (0, 1):
            raise ValueError(f"in_flight is 0 or 1 groups of products, got {self.in_flight!r}")
        if self.l2 not in ("even", "values"):
            raise ValueError(f'l2 is "even" or "values", got {self.l2!r}')
        self._check_sharing()
        self._check_depth()

    def _check_sharing(self) -> None:
        if self.cluster not in (1, 2):
            raise ValueError(f"cluster is 1 or 2 CTAs, got {self.cluster}")
        if self.multicast not in ("dense", "values") or (self.multicast != "dense" and self.cluster == 1):
            raise ValueError(
                'multicast is "dense", or "values" in clusters of 2 CTAs, '
                f"got {self.multicast!r} and cluster {self.cluster}"
            )
        if self.pingpong and self.consumers != 2:
            raise ValueError(f"pingpong is for 2 consumers, got {self.consumers}")

    def _check_depth(self) -> None:
        if not self.specialized and (self.consumers, self.stages) != (1, 1):
            raise ValueError(
                "without a producer one warpgroup copies, waits and multiplies in turn: consumers is 1 and stages 1, got "
                f"{self.consumers} and {self.stages}"
            )
        if self.stages == 1 and (self.in_flight, self.values) != (0, "shared"):
            raise ValueError(
                "a ring needs at least 2 stages, so that a copy can run ahead; with 1 nothing is left in flight and values "
                f'are read in shared memory: in_flight 0 and values "shared", got {self.in_flight} and {self.values!r}'
            )

    @property
    def threads(self) -> int:
        """Threads of a CTA: a producer warpgroup, if there is one, and the consumers."""
        return 128 * (int(self.specialized) + self.consumers)

    @property
    def sharing(self) -> int:
        """Consumer warpgroups that work on one tile together."""
        return 1 if self.pingpong else self.consumers

    @property
    def blocks(self) -> int:
        """Blocks of 64 rows that each consumer warpgroup holds."""
        return self.tile_m // (64 * self.sharing)


WORKING_REGISTERS = 24
"""Registers of a consumer beside its accumulators, at least: metadata, addresses, descriptors."""


def accumulator_registers(schedule: Schedule, accumulator: str, *, promoted: bool) -> int:
    """Registers of a consumer's thread that hold sums of that element type; promoted ones are held beside the others."""
    columns = schedule.tile_n // (4 if accumulator == "f16" else 2)
    return schedule.blocks * columns * (2 if promoted else 1)


def check_registers(schedule: Schedule, accumulator: str, target: Target, *, promoted: bool) -> None:
    """Raises ValueError for sums that a consumer's registers cannot hold. Targets that share out no registers are not checked."""
    if not target.setmaxnreg_step:
        return
    needed = accumulator_registers(schedule, accumulator, promoted=promoted) + WORKING_REGISTERS
    _, held = register_split(schedule, target)
    if needed > min(held, target.registers_per_thread):
        kind = f"promoted {accumulator}" if promoted else accumulator
        raise ValueError(
            f"a thread of {schedule.consumers} consumer warpgroups has {held} registers, got a tile of {schedule.tile_m}×"
            f"{schedule.tile_n} whose {kind} sums and the rest need {needed}: use a smaller tile"
        )


def register_split(schedule: Schedule, target: Target) -> tuple[int, int]:
    """setmaxnreg targets (producer, consumer): the CTA's registers shared out so that consumers hold their accumulators.

    A CTA begins with as many registers a thread as all of its threads can have, in whole steps; more there are not to share.
    """
    step = target.setmaxnreg_step
    entry = target.registers_per_sm // schedule.threads // step * step
    producer = target.setmaxnreg_min
    consumer = (entry * (1 + schedule.consumers) - producer) // schedule.consumers
    return producer, min(target.setmaxnreg_max, consumer // step * step)
