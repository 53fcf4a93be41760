"""Warpgroup products: issue by four warps, groups, completion, and the registers that they hold meanwhile.

A product begins when all four warps have issued it. Each warp's part of it is done on its own: a warp's wait covers what
its own part reads of shared memory, not what the other three still read. Source: PTX ISA, wgmma.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from louver.emulator.clocks import NOBODY, Row, meet
from louver.emulator.decode import Step, wgmma_inputs
from louver.emulator.errors import ConvergenceError, RegisterHazardError, UninitialisedError
from louver.emulator.shared import Access
from louver.emulator.waiters import Signal
from louver.isa.instruction import LANES, Bits
from louver.isa.machine import Suspend
from louver.isa.targets import WARPGROUP_THREADS
from louver.isa.wgmma import Wgmma

if TYPE_CHECKING:
    from louver.emulator.cluster import Cta
    from louver.emulator.warp import Warp

WARPS = WARPGROUP_THREADS // LANES


@dataclass(slots=True, eq=False)
class Product:
    """One wgmma. inputs: per warp, its operands after d, by name. seen: what all its threads had seen at issue."""

    group: Warpgroup
    number: int
    step: Step
    inputs: dict[int, dict[str, Bits]] = field(default_factory=dict[int, "dict[str, Bits]"])
    seen: Row | None = None

    @property
    def instruction(self) -> Wgmma:
        return cast(Wgmma, self.step.op)

    def uniform(self, name: str) -> int:
        """The value of an operand that must agree in all threads."""
        values = {int(value) for inputs in self.inputs.values() for value in np.unique(inputs[name])}
        if len(values) > 1:
            raise ConvergenceError(f"{name} must be the same in all threads of the warpgroup, got {sorted(values)[:4]}")
        return values.pop()

    def optional(self, name: str) -> int | None:
        """As `uniform`, or None when the form lacks the operand."""
        return self.uniform(name) if name in self.inputs[0] else None

    def gathered(self, name: str) -> NDArray[np.uint32]:
        """An operand over the 128 threads: [128], or [count, 128]."""
        return np.concatenate([self.inputs[index][name] for index in range(WARPS)], axis=-1)

    def complete(self) -> None:
        """Compute, and write the accumulators of the four warps."""
        op = self.instruction
        slots = self.step.outputs[0]
        scale = bool(self.uniform("scale-d"))
        old = np.concatenate([warp.hazards.accumulators(slots, scale) for warp in self.group.warps], axis=1)
        a = self.uniform("a-desc") if op.a_source == "shared" else self.gathered("a")
        meta = self.gathered("sp-meta") if op.sparse else None
        new = op.meaning(old, a, self.uniform("b-desc"), meta, scale, self.group.cta.shared.data)
        for index, warp in enumerate(self.group.warps):
            part = np.ascontiguousarray(new[:, index * LANES : (index + 1) * LANES], dtype=np.uint32)
            for slot, value in zip(slots, part, strict=True):
                warp.registers[slot] = value
        self.group.retire(self)

    def __str__(self) -> str:
        return f"wgmma {self.number} of {self.group.name}"


class Warpgroup:
    """Four neighbouring warps of a CTA. completed: products that are done; they complete in order."""

    def __init__(self, cta: Cta, index: int) -> None:
        self.cta = cta
        self.name = f"warpgroup {index} of CTA {cta.index}"
        self.warps: list[Warp] = []
        self.completed = 0
        self._agents: list[int] = []
        self._products: list[Product] = []
        self._formed = 0
        self._signal = Signal()

    def register_hazards(self, warp: Warp) -> RegisterHazards:
        """Take in a warp; what watches over its registers."""
        self.warps.append(warp)
        return RegisterHazards(warp)

    def issue(self, warp: Warp, instruction: Wgmma, inputs: Sequence[Bits]) -> None:
        """One warp issues its next product."""
        if len(self.warps) != WARPS:
            raise ConvergenceError(
                f"{self.name} has {len(self.warps)} warps: wgmma needs {WARPS}, so whole warpgroups in a CTA"
            )
        product = self._take(warp)
        names = [operand.name for operand in instruction.operands if operand.role == "in"]
        product.inputs[warp.index % WARPS] = dict(zip(names, inputs, strict=True))
        least = warp.clock.least()
        product.seen = least.copy() if product.seen is None else meet(product.seen, least)
        warp.hazards.use(product)
        if len(product.inputs) == WARPS:
            self._form(product)

    def commit(self, warp: Warp) -> None:
        warp.hazards.commit()

    def wait(self, warp: Warp, pending: int) -> Suspend | None:
        target = warp.hazards.target(pending)
        if self.completed < target:
            return warp.suspend(self._signal, self._explain(target))
        if target:
            warp.clock.see(self._readers()[warp.index % WARPS], target)
        warp.hazards.settle(target)
        return None

    def retire(self, product: Product) -> None:
        """A product is complete; the next one may begin."""
        self.completed = product.number
        self._start()
        self._signal.notify()

    def _take(self, warp: Warp) -> Product:
        number = warp.hazards.issued + 1
        if number > len(self._products):
            self._products.append(Product(self, number, warp.step))
        product = self._products[number - 1]
        if product.step is not warp.step:
            raise ConvergenceError(
                f"the warps of {self.name} issue different products as number {number}: "
                f"another warp is at instruction {product.step.position}"
            )
        return product

    def _form(self, product: Product) -> None:
        where = product.instruction.shared_bytes(product.optional("a-desc"), product.uniform("b-desc"))
        shared = self.cta.shared
        shared.check_bounds(int(where.min()), int(where.max()))
        assert product.seen is not None
        seen = self.cta.cluster.agents.extend(product.seen)
        shared.async_read(where, Access(NOBODY, product.number, seen, str(product)), self._readers())
        self._formed += 1
        if product.number == self.completed + 1:
            self._start()

    def _start(self) -> None:
        if self.completed < self._formed:
            product = self._products[self.completed]
            self.cta.cluster.scheduler.queue(product, self.warps[0], product.step)

    def _readers(self) -> list[int]:
        """The agents of the four warps' parts: their epochs are the products' numbers."""
        if not self._agents:
            add = self.cta.cluster.agents.add
            self._agents = [add(f"the wgmma of {warp.name}") for warp in self.warps]
        return self._agents

    def _explain(self, target: int) -> str:
        late = [w.name for w in self.warps if w.hazards.issued < target]
        return f"wgmma {target} of {self.name}" + (f" (not issued by {', '.join(late)})" if late else "")


class RegisterHazards:
    """Which registers of one warp belong to unfinished products, and which were touched since the last `wgmma.fence`."""

    def __init__(self, warp: Warp) -> None:
        self._warp = warp
        self.issued = 0
        self._groups: list[int] = []
        self._settled = 0
        self._held: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._inputs: dict[int, int] = {}
        self._touched: set[int] = set()
        self._shapes: dict[int, str] = {}
        self._fenced = False

    def fence(self) -> None:
        self._touched.clear()
        self._shapes.clear()
        self._fenced = True

    def commit(self) -> None:
        self._groups.append(self.issued)

    def target(self, pending: int) -> int:
        """Number of the last product that must be complete for at most `pending` groups to remain."""
        return self._groups[-1 - pending] if pending < len(self._groups) else 0

    def settle(self, target: int) -> None:
        """Products up to `target` have been waited for: their registers are free."""
        if target <= self._settled:
            return
        self._settled = target
        self._held = {slot: held for slot, held in self._held.items() if held[0] > target}
        self._inputs = {slot: number for slot, number in self._inputs.items() if number > target}

    def touch(self, step: Step) -> None:
        """An ordinary instruction is about to use watched registers."""
        for slot in (*step.watched_reads, *step.watched_writes):
            if slot in self._held:
                raise RegisterHazardError(
                    f"register {self._name(slot)} is an accumulator of wgmma {self._held[slot][0]}, "
                    "which has not been waited for: wgmma.commit_group and wgmma.wait_group must come first"
                )
            self._touched.add(slot)
        for slot in step.watched_writes:
            if slot in self._inputs:
                raise RegisterHazardError(
                    f"register {self._name(slot)} is overwritten, but wgmma {self._inputs[slot]}, "
                    "which has not been waited for, may still read it"
                )

    def use(self, product: Product) -> None:
        """The warp issues a product."""
        if not self._fenced:
            raise RegisterHazardError("a wgmma.fence must come before the first wgmma of a warp")
        accumulators = product.step.outputs[0]
        fragment, metadata = wgmma_inputs(product.step)
        self._check_budget(len(accumulators) + len(fragment) + len(metadata))
        for slot in (*accumulators, *fragment):
            if slot in self._touched:
                raise RegisterHazardError(
                    f"register {self._name(slot)} was used by other instructions since the last wgmma.fence: "
                    "a wgmma.fence must come between"
                )
        self._check_accumulators(product, accumulators)
        self.issued = product.number
        for slot in accumulators:
            self._held[slot] = (product.number, accumulators)
            self._shapes[slot] = f"m64n{product.instruction.n} {product.instruction.d}"
        for slot in (*fragment, *metadata):
            self._inputs[slot] = product.number

    def accumulators(self, slots: tuple[int, ...], needed: bool) -> NDArray[np.uint32]:
        """The warp's accumulators, uint32 [count, 32]; when not `needed`, unwritten ones are zeros."""
        values = [self._warp.registers[slot] for slot in slots]
        if needed and any(value is None for value in values):
            raise UninitialisedError("a wgmma with scale-d true reads accumulators that were never written")
        return np.stack([np.zeros(LANES, np.uint32) if value is None else value for value in values]).astype(np.uint32)

    def check_exit(self) -> int:
        """Number of products issued but not waited for."""
        return self.issued - self._settled

    def _check_budget(self, needed: int) -> None:
        held = self._warp.cta.pool.held(self._warp)
        if needed > held:
            raise RegisterHazardError(
                f"the product alone needs {needed} registers a thread, but the warp holds {held}: setmaxnreg.inc must come first"
            )

    def _check_accumulators(self, product: Product, accumulators: tuple[int, ...]) -> None:
        shape = f"m64n{product.instruction.n} {product.instruction.d}"
        for slot in accumulators:
            if slot in self._held and self._held[slot][1] != accumulators:
                raise RegisterHazardError(
                    f"register {self._name(slot)} is an accumulator of the unfinished wgmma {self._held[slot][0]} "
                    "at another place or of another shape"
                )
            if self._shapes.get(slot, shape) != shape:
                raise RegisterHazardError(
                    f"register {self._name(slot)} was an accumulator of shape {self._shapes[slot]}, now {shape}: "
                    "a wgmma.fence must come between"
                )

    def _name(self, slot: int) -> str:
        return self._warp.cluster.register_name(slot)
