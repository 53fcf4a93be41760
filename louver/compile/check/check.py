"""check-protocol: checks for every order of execution that roles follow the rules of stages, barriers and registers.

The roles run on a model. Its tiles are long enough to run every loop several times, and to use each stage of the ring
several times. Clocks (`barriers`) order events in every interleaving. The rules are:

- A stage is overwritten only after the last product that reads it has been waited for.
- A product reads a stage after its bytes have arrived, and the metadata of its own step.
- Products read data that threads copied only after a proxy fence. A gather uses the list entries of its own step.
- A phase counts exactly the arrivals and bytes that it gets, and no phase can be mistaken for another. A barrier expects the
  rows that the copies bring.
- Registers are filled again only after their products. Accumulators are read only after all products.
- Every wait ends. Each stage that was acquired is released.
- A dependent kernel copies stored values and metadata at once. It accesses other memory only after the earlier grids.

The lowering of a bulk store waits for its staging area. The check requires that no other operation uses that area.

The model takes for granted numbers that it can count to, and names that are declared. Each of these rules is checked before
the roles run, so that damaged schedule IR is refused at once and by its own rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, IntegerType, ModuleOp, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from louver.compile.check.agents import Agent, Shared, warps_of
from louver.compile.check.events import Event, Item, ProtocolError, Walk, broken, words_a_step
from louver.compile.check.stages import Barrier, Stage
from louver.ir.sched import ops, staged
from louver.ir.sched.gathered import GatherOp, TurnOp
from louver.isa.instruction import LANES
from louver.isa.metadata import WORDS
from louver.isa.targets import MAX_PENDING_PRODUCTS, MBARRIER_MAX_ARRIVALS, MBARRIER_MAX_TRANSACTION_BYTES, SM_90A

ROUNDS = 3
"""The smallest number of rounds of the ring. The third phase of a stage has the parity of its first."""

BARRIER_BYTES = 8


def check_protocol(module: ModuleOp) -> None:
    """Check every kernel of schedule IR with assigned shared memory. Raises ProtocolError with the rule that is broken."""
    for kernel in module.body.block.ops:
        if isinstance(kernel, ops.KernelOp):
            check_shape(kernel)
            _check_memory(kernel)
            for role in kernel.roles:
                _check_rows(role, kernel.tile.data[1].value.data)
            _check_kernel(kernel)


def _check_memory(kernel: ops.KernelOp) -> None:
    """Check that rings and barriers do not overlap and are inside the CTA's shared memory, and that only stores use
    their staging area.
    """
    spans: list[tuple[int, int, str]] = []
    for op in kernel.body.block.ops:
        if isinstance(op, ops.RingOp | ops.BarriersOp):
            size = op.bytes.value.data if isinstance(op, ops.RingOp) else BARRIER_BYTES
            if op.offset is None:
                raise ValueError(f"shared memory is assigned before the check, got none for @{op.sym_name.data}")
            begin = op.offset.value.data
            spans.append((begin, begin + op.stages.value.data * size, op.sym_name.data))
    end = 0 if kernel.shared_bytes is None else kernel.shared_bytes.value.data
    spans.sort()
    limits = [begin for begin, _, _ in spans[1:]] + [end]
    for (begin, last, name), limit in zip(spans, limits, strict=True):
        if last > limit:
            raise ValueError(
                f"rings and barriers must not overlap in shared memory, got bytes {begin} to {last} for "
                f"@{name}, and the next one (or the end) at {limit}"
            )
    copied = {
        op.ring.data
        for op in kernel.walk()
        if isinstance(op, ops.BulkLoadOp | staged.CopyMetadataOp | GatherOp | TurnOp)
    }
    for op in kernel.walk():
        if isinstance(op, ops.BulkStoreOp) and op.ring.data in copied:
            raise ProtocolError(
                "a staging area is filled by its stores alone", f"copies into @{op.ring.data}", str(op).splitlines()[0]
            )


def _check_rows(role: ops.RoleOp, tile_n: int) -> None:
    """A barrier expects the rows that the copies bring. Otherwise its phase never ends, or ends too early."""
    loads = [op for op in role.walk() if isinstance(op, ops.BulkLoadOp) and op.ring.data == "b"]
    for op in role.walk():
        if not isinstance(op, ops.ExpectOp):
            continue
        for load in (each for each in loads if each.barriers.data == op.barriers.data):
            if load.rows is not op.rows:
                raise ProtocolError("a barrier expects the rows that the copies bring", _rows_text(op.rows), str(load))
        if op.rows is not None and (not isinstance(op.rows.owner, staged.RowsLeftOp) or not loads):
            raise ProtocolError("a barrier expects the rows that the copies bring", _rows_text(op.rows), str(op))
    for left in (op for op in role.walk() if isinstance(op, staged.RowsLeftOp)):
        if left.most.value.data != tile_n:
            raise ProtocolError(f"a tile has at most {tile_n} rows of the dense operand", str(left.most), str(left))


def _rows_text(rows: SSAValue | None) -> str:
    return "a whole tile" if rows is None else str(rows.owner)


def _check_kernel(kernel: ops.KernelOp) -> None:
    model = Model.of(kernel, _items(kernel))
    model.run()
    traces = list({role: trace for (role, _), (_, trace) in zip(model.holders, model.agents, strict=True)}.values())
    for each in model.barriers:
        _check_end(each, traces)


@dataclass(frozen=True, slots=True)
class Model:
    """The roles of a kernel with their events.

    agents: agents, each with its events.
    holders: the role and warpgroup of each agent.
    barriers: the barriers of each CTA, by name.
    """

    agents: Sequence[tuple[Agent, Sequence[Event]]]
    holders: Sequence[tuple[ops.RoleOp, int]]
    barriers: Shared

    @classmethod
    def of(cls, kernel: ops.KernelOp, items: Sequence[Item]) -> Model:
        """The model of a kernel with assigned shared memory. items: the tiles or ranges that roles process."""
        roles = kernel.roles
        ctas = range(kernel.cluster.value.data)
        words = words_a_step(kernel)
        traces = {role: list(Walk(role, items, words).events()) for role in roles}
        holders = [(role, number, cta) for role in roles for number in range(_warpgroups(role)) for cta in ctas]
        barriers = _barriers(kernel, len(holders))
        rings = [_rings(kernel) for _ in ctas]
        size = len(holders) + sum(len(stages) for each in barriers for stages in each.values())
        clock = [*[0] * size, int(kernel.dependent is None)]
        agents = [
            (Agent(index, cta, warps_of(single=role.single is not None), [*clock], barriers, rings), traces[role])
            for index, (role, _, cta) in enumerate(holders)
        ]
        return cls(agents, [(role, number) for role, number, _ in holders], barriers)

    def run(self, seen: Callable[[Agent, Event], None] = lambda agent, event: None) -> None:
        """Run each role in turn until it must wait, until all roles have ended. seen: called after each event.

        Raises ProtocolError with the rule that is broken.
        """
        done = [0] * len(self.agents)
        moved = True
        while moved:
            moved = False
            for number, (agent, trace) in enumerate(self.agents):
                begun = done[number]
                while done[number] < len(trace) and agent.run(trace[done[number]]):
                    seen(agent, trace[done[number]])
                    done[number] += 1
                moved |= done[number] > begun
        stuck = [
            (agent, trace[count]) for (agent, trace), count in zip(self.agents, done, strict=True) if count < len(trace)
        ]
        if stuck:
            raise _never(stuck)
        for agent, trace in self.agents:
            if trace:
                agent.finish(trace[-1])


def _warpgroups(role: ops.RoleOp) -> int:
    """The warpgroups of a role; 1 for a single thread."""
    return 1 if role.single is not None else role.warpgroups.value.data


def _items(kernel: ops.KernelOp) -> list[Item]:
    """Tiles that run each loop zero, one or two times, repeated until the ring has done `ROUNDS` rounds.

    With ranges, some items also begin in the middle of K.
    """
    unroll = max((op.unroll.value.data for op in kernel.walk() if isinstance(op, ops.LoopOp)), default=1)
    depth = max((op.stages.value.data for op in kernel.body.block.ops if isinstance(op, ops.RingOp)), default=1)
    walks = [op for op in kernel.walk() if isinstance(op, ops.TilesOp)]
    if len({op.ranges is None for op in walks}) > 1:
        raise ProtocolError(
            "all roles walk the same items",
            "ranges of K in some and whole tiles in others",
            str(walks[0]).splitlines()[0],
        )
    pattern = [Item(0, 3 * unroll - 1), Item(0, unroll), Item(0, 1)]
    if any(op.ranges is not None for op in walks):
        # The smallest first step of a range: the steps of one load of metadata, or one step.
        begin = WORDS // (words_a_step(kernel) or WORDS)
        pattern += [Item(begin * turn, begin * turn + item.length) for turn, item in enumerate(pattern, 1)]
    items = list(pattern)
    while sum(item.length for item in items) < ROUNDS * depth + 1:
        items += pattern
    return items


def _barriers(kernel: ops.KernelOp, agents: int) -> list[dict[str, list[Barrier]]]:
    """The barriers of each CTA. Their places in clocks follow those of agents."""
    declared = [op for op in kernel.body.block.ops if isinstance(op, ops.BarriersOp)]
    ctas = kernel.cluster.value.data
    end = agents + ctas * sum(op.stages.value.data for op in declared)
    indices: Iterator[int] = iter(range(agents, end))
    return [{op.sym_name.data: _phased(op, indices, end + 1) for op in declared} for _ in range(ctas)]


def _phased(op: ops.BarriersOp, indices: Iterator[int], size: int) -> list[Barrier]:
    if op.arrivals is None:
        raise ValueError(f"arrivals are counted before the check, got none for @{op.sym_name.data}")
    arrivals = op.arrivals.value.data
    expected = 0 if op.transaction_bytes is None else op.transaction_bytes.value.data
    return [
        Barrier(op.sym_name.data, stage, next(indices), arrivals, expected, [0] * size)
        for stage in range(op.stages.value.data)
    ]


def _rings(kernel: ops.KernelOp) -> dict[str, list[Stage]]:
    return {
        op.sym_name.data: [
            Stage(op.sym_name.data, number, op.bytes.value.data) for number in range(op.stages.value.data)
        ]
        for op in kernel.body.block.ops
        if isinstance(op, ops.RingOp)
    }


def _never(stuck: Sequence[tuple[Agent, Event]]) -> ProtocolError:
    """The error for waits that never end. It names each of them once, because one is the cause of the others."""
    awaited = [agent.awaited(event) for agent, event in stuck]
    waits = dict.fromkeys(f"phase {barrier.phase} of {barrier.place} with {barrier.progress}" for barrier in awaited)
    return broken("every wait ends", f"ones that do not, for {', and for '.join(waits)}", stuck[0][1])


def _check_end(barriers: Mapping[str, Sequence[Barrier]], traces: Sequence[Sequence[Event]]) -> None:
    """Check that each acquired stage has been released, and that no phase is incomplete."""
    taken = [event for trace in traces for event in trace if event.action.kind == "acquire"]
    for name, stages in barriers.items():
        for barrier in stages:
            # Each position counts once, also if several roles fill the stage.
            rounds = {
                e.position for e in taken if e.action.barriers == name and e.position % len(stages) == barrier.stage
            }
            if barrier.arrived or barrier.received or (rounds and barrier.phase != len(rounds)):
                raise ProtocolError(
                    "every stage that is acquired is released, and every phase ends",
                    f"{barrier.phase} phases of {barrier.place} for {len(rounds)} acquires, the next with {barrier.progress}",
                    f"sched.barriers @{name}",
                )


MAX_STAGES = 64
MAX_UNROLL = 64

LIMITS: dict[str, range] = {
    "stages": range(1, MAX_STAGES + 1),
    "unroll": range(1, MAX_UNROLL + 1),
    "pending": range(MAX_PENDING_PRODUCTS + 1),
    "arrivals": range(1, MBARRIER_MAX_ARRIVALS + 1),
    "transaction_bytes": range(MBARRIER_MAX_TRANSACTION_BYTES + 1),
    "cluster": range(1, SM_90A.max_cluster + 1),
    "threads": range(1, SM_90A.max_threads + 1),
    "warpgroups": range(SM_90A.max_threads // (4 * LANES) + 1),
}
"""Values of the fields of schedule IR by name. Every other number is 0 to 2^31 - 1."""

_ANY = range(1 << 31)
_RINGS = ("ring", "rings", "a", "b", "picks")
_BARRIERS = ("barriers", "room", "sums")


def check_shape(kernel: ops.KernelOp) -> None:
    """Raises ProtocolError for a number outside its limits, and for a ring or barriers that the kernel does not declare."""
    body = kernel.body.block.ops
    rings = [op.sym_name.data for op in body if isinstance(op, ops.RingOp)]
    barriers = [op.sym_name.data for op in body if isinstance(op, ops.BarriersOp)]
    declared: dict[str, list[str]] = {}
    for names, found in ((_RINGS, rings), (_BARRIERS, barriers)):
        for name in names:
            declared[name] = found
    for op in kernel.walk():
        if not op.name.startswith("sched."):
            continue
        for name, value in op.properties.items():
            limits = LIMITS.get(name, _ANY)
            for number in _numbers(value):
                if number not in limits:
                    rule = f"{name} of {op.name} is from {limits[0]} to {limits[-1]}"
                    raise ProtocolError(rule, str(number), _first_line(op))
            for symbol in _symbols(value) if name in declared else ():
                if symbol not in declared[name]:
                    known = ", ".join(f"@{each}" for each in declared[name]) or "none"
                    raise ProtocolError(f"{name} of {op.name} is one of {known}", f"@{symbol}", _first_line(op))


def _numbers(value: Attribute) -> Iterator[int]:
    if isinstance(value, IntegerAttr):
        yield cast("IntegerAttr[IntegerType]", value).value.data
    elif isinstance(value, ArrayAttr):
        for each in cast("ArrayAttr[Attribute]", value):
            yield from _numbers(each)


def _symbols(value: Attribute) -> Iterator[str]:
    if isinstance(value, StringAttr):
        yield value.data
    elif isinstance(value, ArrayAttr):
        for each in cast("ArrayAttr[Attribute]", value):
            yield from _symbols(each)


def _first_line(op: Operation) -> str:
    return str(op).splitlines()[0]
