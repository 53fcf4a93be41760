"""Removal tests: remove one instruction of a kernel, and check that the emulator or the result shows it.

An instruction whose removal shows nowhere is redundant and should go, or the emulator or the data are blind there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from louver.emulator.errors import EmulationError
from louver.emulator.order import Earliest, Latest, Order, Seeded
from louver.emulator.warp import describe
from louver.isa.async_copy import AsyncWait
from louver.isa.bulk import BulkWait
from louver.isa.memory import AtomicUpdate
from louver.isa.wgmma import WgmmaWait
from louver.ptx.module import Block, If, Imm, Inst, Kernel, Node, While

SYNCHRONISATION = (
    "mbarrier.arrive",
    "fence.",
    "bar.",
    "barrier.",
    "cp.async.commit_group",
    "cp.async.wait_group",
    "cp.async.mbarrier",
    "cp.async.bulk.commit_group",
    "cp.async.bulk.wait_group",
    "wgmma.fence",
    "wgmma.commit_group",
    "wgmma.wait_group",
    "setmaxnreg.dec",
    "griddepcontrol.wait",
)
"""Beginnings of the mnemonics that order things and compute nothing.

`setmaxnreg.inc` and `griddepcontrol.launch_dependents` are not among them: without them a kernel is slower, not wrong, unless a wgmma
does not fit, which is checked.
"""

WORK = (
    "wgmma.mma_async",
    "ld.global",
    "ld.shared",
    "ldmatrix",
    "cp.async.bulk.tensor",
    "cp.async.bulk.shared",
    "cp.async.cg",
    "st",
    "atom",
)
"""Beginnings of the mnemonics that multiply, load, copy and store (`stmatrix` too)."""

POLL = "mbarrier.try_wait"
"""Beginning of the mnemonic that a waiting loop repeats; the loop goes as a whole."""

EXPECTING_ARRIVAL = "mbarrier.arrive.expect_tx"
"""An arrival that also expects bytes: the expectation alone is taken out as well."""

ORDERS: tuple[Order, ...] = (Earliest(), Latest(), Seeded(0))


@dataclass(frozen=True, slots=True, eq=False)
class Removal:
    """A kernel without one instruction. what: its text. position: its index in program order."""

    kernel: Kernel
    what: str
    position: int

    def __str__(self) -> str:
        return f"{self.kernel.name} without instruction {self.position}: {self.what}"


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The outcome of a removal. report: the first line of what was reported; None when no order noticed."""

    removal: Removal
    order: Order | None
    report: str | None


def removals(kernel: Kernel) -> Iterator[Removal]:
    """Each piece of synchronisation taken out, one at a time, in program order. `kernel` itself stays as it is.

    Waits for groups are weakened as well, to leave one group more unfinished, and atomics lose one half of their order.
    """
    for position, node in enumerate(kernel.body.walk()):
        if isinstance(node, While) and _waits(node):
            yield _changed(kernel, node, [], position, f"the loop around {describe(_polls(node)[0])}")
        elif isinstance(node, Inst):
            if node.op.mnemonic.startswith(SYNCHRONISATION):
                yield _changed(kernel, node, [], position, describe(node))
            yield from _weakened(kernel, node, position)


def work_removals(kernel: Kernel) -> Iterator[Removal]:
    """Each product, load, copy and store taken out, one at a time, in program order. `kernel` itself stays as it is."""
    for position, node in enumerate(kernel.body.walk()):
        if isinstance(node, Inst) and node.op.mnemonic.startswith(WORK):
            yield _changed(kernel, node, [], position, describe(node))


def _weakened(kernel: Kernel, node: Inst, position: int) -> Iterator[Removal]:
    if node.op.mnemonic.startswith(EXPECTING_ARRIVAL):
        without = replace(node, args=(*node.args[:-1], Imm(0)))
        yield _changed(kernel, node, [without], position, f"the bytes of {describe(node)}")
    if isinstance(node.op, AtomicUpdate) and node.op.order == "acq_rel":
        for order, lost in (("acquire", "release"), ("release", "acquire")):
            weaker = replace(node, op=replace(node.op, order=order))
            yield _changed(kernel, node, [weaker], position, f"the {lost} of {describe(node)}")
    if isinstance(node.op, WgmmaWait | BulkWait | AsyncWait):
        later = replace(node, op=replace(node.op, pending=node.op.pending + 1))
        yield _changed(kernel, node, [later], position, f"one group of {describe(node)}")


def survey(
    kernel: Kernel,
    attempt: Callable[[Kernel, Order], None],
    orders: Sequence[Order] = ORDERS,
    remove: Callable[[Kernel], Iterator[Removal]] = removals,
) -> list[Outcome]:
    """Try each removal that `remove` yields under each order until one notices.

    attempt: runs a kernel on fresh memory under an order, and raises AssertionError when a result is wrong.
    """
    return [_try(removal, attempt, orders) for removal in remove(kernel)]


def undetected(outcomes: Sequence[Outcome]) -> list[Removal]:
    """The removals that no order noticed."""
    return [outcome.removal for outcome in outcomes if outcome.report is None]


def _try(removal: Removal, attempt: Callable[[Kernel, Order], None], orders: Sequence[Order]) -> Outcome:
    for order in orders:
        try:
            attempt(removal.kernel, order)
        except (EmulationError, AssertionError) as error:
            first = str(error).strip().splitlines() or [""]
            return Outcome(removal, order, f"{type(error).__name__}: {first[0]}")
    return Outcome(removal, None, None)


def _polls(node: While) -> list[Inst]:
    return [n for n in node.body.nodes if isinstance(n, Inst) and n.op.mnemonic.startswith(POLL)]


def _waits(node: While) -> bool:
    """Whether the loop does nothing but wait: it polls, and its condition is what the poll says."""
    polls = _polls(node)
    return len(polls) == 1 and node.condition in polls[0].args and len(node.body.nodes) == 1


def _changed(kernel: Kernel, target: Node, instead: list[Node], position: int, what: str) -> Removal:
    return Removal(replace(kernel, body=_replaced(kernel.body, target, instead)), what, position)


def _replaced(block: Block, target: Node, instead: list[Node]) -> Block:
    nodes: list[Node] = []
    for node in block.nodes:
        if node is target:
            nodes += instead
        elif isinstance(node, If):
            otherwise = None if node.otherwise is None else _replaced(node.otherwise, target, instead)
            nodes.append(replace(node, then=_replaced(node.then, target, instead), otherwise=otherwise))
        elif isinstance(node, While):
            nodes.append(replace(node, body=_replaced(node.body, target, instead)))
        else:
            nodes.append(node)
    return Block(nodes)
