"""Warpgroup products: issue by four warps, groups, completion, and the registers that they hold meanwhile.

A product begins when all four warps have issued it. Each warp's part completes separately: a warp's wait covers the
shared memory that its own part reads, not what the other three still read. Source: PTX ISA, wgmma.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from louver.emulator.clocks import NOBODY, Row, meet
from louver.emulator.decode import ProductRegisters, Step
from louver.emulator.errors import ConvergenceError, RegisterHazardError, UninitialisedError
from louver.emulator.shared import Access
from louver.emulator.waiters import Signal
from louver.isa.instruction import LANES, Bits
from louver.isa.machine import Suspend
from louver.isa.targets import WARPS_PER_WARPGROUP
from louver.isa.wgmma import Wgmma

if TYPE_CHECKING:
    from louver.emulator.cluster import Cta
    from louver.emulator.warp import Warp


class RegisterHazards:
    """One warp's products by number: issued, in groups, settled (waited for), and the registers held until then."""

    def __init__(self, warp: Warp) -> None:
        self._warp = warp
        self.issued = 0
        self._groups: list[int] = []
        self._settled = 0
        self._held: dict[ProductRegisters, int] = {}
        self._touched: set[int] = set()
        self._unfenced: list[ProductRegisters] = []
        self._fenced = False

    def fence(self) -> None:
        self._touched.clear()
        self._unfenced.clear()
        self._fenced = True

    def commit(self) -> None:
        self._groups.append(self.issued)

    def target(self, pending: int) -> int:
        """Number of the last product that must complete so that at most `pending` groups remain."""
        return self._groups[-1 - pending] if pending < len(self._groups) else 0

    def settle(self, target: int) -> None:
        """The warp has waited for products up to `target`: their registers are free."""
        if target > self._settled:
            self._settled = target
            self._held = {registers: number for registers, number in self._held.items() if number > target}

    def touch(self, step: Step) -> None:
        """An ordinary instruction is about to use registers of some wgmma."""
        self._touched.update(step.watched_reads, step.watched_writes)
        for registers, number in self._held.items():
            for slot in (*step.watched_reads, *step.watched_writes):
                if slot in registers.accumulator_set:
                    raise RegisterHazardError(
                        f"register {self._name(slot)} is an accumulator of wgmma {number}, "
                        "which has not been waited for: wgmma.commit_group and wgmma.wait_group must come first"
                    )
            for slot in step.watched_writes:
                if slot in registers.inputs:
                    raise RegisterHazardError(
                        f"register {self._name(slot)} is overwritten, but wgmma {number}, "
                        "which has not been waited for, may still read it"
                    )

    def use(self, step: Step, number: int) -> None:
        registers = step.product
        assert registers is not None
        if not self._fenced:
            raise RegisterHazardError("a wgmma.fence must come before the first wgmma of a warp")
        self._check_budget(registers.count)
        if not self._touched.isdisjoint(registers.fenced):
            slot = min(self._touched & registers.fenced)
            raise RegisterHazardError(
                f"register {self._name(slot)} was used by other instructions since the last wgmma.fence: "
                "a wgmma.fence must come between"
            )
        self._check_accumulators(registers)
        self.issued = self._held[registers] = number
        if registers not in self._unfenced:
            self._unfenced.append(registers)

    def accumulators(self, slots: tuple[int, ...], needed: bool) -> NDArray[np.uint32]:
        """The warp's accumulators, uint32 [count, 32]. Unless `needed`, unwritten ones are zeros."""
        values = [self._warp.registers[slot] for slot in slots]
        if needed and any(value is None for value in values):
            raise UninitialisedError("a wgmma with scale-d true reads accumulators that were never written")
        return np.stack([np.zeros(LANES, np.uint32) if value is None else value for value in values]).astype(np.uint32)

    def unfinished(self) -> int:
        """Number of products issued but not waited for."""
        return self.issued - self._settled

    def _check_budget(self, needed: int) -> None:
        held = self._warp.cta.pool.held(self._warp)
        if needed > held:
            raise RegisterHazardError(
                f"the product alone needs {needed} registers a thread, but the warp holds {held}: setmaxnreg.inc must come first"
            )

    def _check_accumulators(self, registers: ProductRegisters) -> None:
        for other, number in self._held.items():
            if other.accumulators != registers.accumulators and (
                slots := other.accumulator_set & registers.accumulator_set
            ):
                raise RegisterHazardError(
                    f"register {self._name(min(slots))} is an accumulator of the unfinished wgmma {number} "
                    "at another place or of another shape"
                )
        for other in self._unfenced:
            if other.shape != registers.shape and (slots := other.accumulator_set & registers.accumulator_set):
                raise RegisterHazardError(
                    f"register {self._name(min(slots))} was an accumulator of shape {other.shape}, now {registers.shape}: "
                    "a wgmma.fence must come between"
                )

    def _name(self, slot: int) -> str:
        return self._warp.cluster.slot_name(slot)


@dataclass(slots=True, eq=False)
class Product:
    """A wgmma. names: its operands after d. inputs: for each warp, their values by name. seen: what all its threads had
    seen at issue. fenced: what they had all seen at their last `fence.proxy.async`.
    """

    group: Warpgroup
    number: int
    step: Step
    names: tuple[str, ...]
    inputs: dict[int, dict[str, Bits]] = field(default_factory=dict[int, "dict[str, Bits]"])
    seen: Row | None = None
    fenced: Row | None = None

    @property
    def instruction(self) -> Wgmma:
        return cast(Wgmma, self.step.op)

    def uniform(self, name: str) -> int:
        """The value of an operand, which must agree in all threads."""
        found = self.gathered(name)
        if (found != found[0]).any():
            values: list[int] = np.unique(found).tolist()
            raise ConvergenceError(f"{name} must be the same in all threads of the warpgroup, got {values[:4]}")
        return int(found[0])

    def optional(self, name: str) -> int | None:
        """As `uniform`, or None if the form has no such operand."""
        return self.uniform(name) if name in self.inputs[0] else None

    def gathered(self, name: str) -> NDArray[np.uint32]:
        """An operand over the 128 threads: [128] or [count, 128]."""
        return np.concatenate([self.inputs[index][name] for index in range(WARPS_PER_WARPGROUP)], axis=-1)

    def complete(self) -> None:
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
    """Four neighbouring warps of a CTA. completed: number of completed products; they complete in order."""

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
        """Add a warp. Returns the checker of its registers."""
        self.warps.append(warp)
        return RegisterHazards(warp)

    def issue(self, warp: Warp, instruction: Wgmma, inputs: Sequence[Bits]) -> None:
        if len(self.warps) != WARPS_PER_WARPGROUP:
            raise ConvergenceError(
                f"{self.name} has {len(self.warps)} warps: wgmma needs {WARPS_PER_WARPGROUP}, so whole warpgroups in a CTA"
            )
        product = self._take(warp, instruction)
        product.inputs[warp.index % WARPS_PER_WARPGROUP] = dict(zip(product.names, inputs, strict=True))
        least, fenced = warp.clock.least(), warp.fenced.least()
        product.seen = least.copy() if product.seen is None else meet(product.seen, least)
        product.fenced = fenced.copy() if product.fenced is None else meet(product.fenced, fenced)
        warp.hazards.use(warp.step, product.number)
        if len(product.inputs) == WARPS_PER_WARPGROUP:
            self._form(product)

    def commit(self, warp: Warp) -> None:
        warp.hazards.commit()

    def wait(self, warp: Warp, pending: int) -> Suspend | None:
        target = warp.hazards.target(pending)
        if self.completed < target:
            return warp.suspend(self._signal, self._explain(target))
        if target:
            warp.clock.see(self._readers()[warp.index % WARPS_PER_WARPGROUP], target)
        warp.hazards.settle(target)
        return None

    def retire(self, product: Product) -> None:
        self.completed = product.number
        self._start()
        self._signal.notify()

    def _take(self, warp: Warp, instruction: Wgmma) -> Product:
        number = warp.hazards.issued + 1
        if number > len(self._products):
            names = tuple(operand.name for operand in instruction.operands if operand.role == "in")
            self._products.append(Product(self, number, warp.step, names))
        product = self._products[number - 1]
        if product.step is not warp.step:
            raise ConvergenceError(
                f"the warps of {self.name} issue different products as number {number}: "
                f"another warp is at instruction {product.step.position}"
            )
        return product

    def _form(self, product: Product) -> None:
        a, b = _shared_bytes(product.instruction, product.optional("a-desc"), product.uniform("b-desc"))
        shared = self.cta.shared
        everything = np.concatenate((a, b.reshape(-1)))
        shared.check_bounds(int(everything.min()), int(everything.max()))
        # An unwritten column of B only makes its own column of D undefined.
        columns = b if product.instruction.transpose_b else b[shared.written(b)]
        self.cta.cluster.undefined |= len(columns) < len(b)
        where = np.concatenate((a, columns.reshape(-1)))
        assert product.seen is not None and product.fenced is not None
        extend = self.cta.cluster.agents.extend
        access = Access(NOBODY, product.number, extend(product.seen), str(product), extend(product.fenced))
        shared.async_read(where, access, self._readers())
        self._formed += 1
        if product.number == self.completed + 1:
            self._start()

    def _start(self) -> None:
        if self.completed < self._formed:
            product = self._products[self.completed]
            self.cta.cluster.scheduler.issue(product, self.warps[0], product.step)

    def _readers(self) -> list[int]:
        """Agents of the four warps' parts. Their epochs are product numbers."""
        if not self._agents:
            add = self.cta.cluster.agents.add
            self._agents = [add(f"the wgmma of {warp.name}") for warp in self.warps]
        return self._agents

    def _explain(self, target: int) -> str:
        late = [w.name for w in self.warps if w.hazards.issued < target]
        return f"wgmma {target} of {self.name}" + (f" (not issued by {', '.join(late)})" if late else "")


@lru_cache(maxsize=256)
def _shared_bytes(op: Wgmma, a_desc: int | None, b_desc: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Bytes that a product reads. Cached: a loop reads the same few operands again and again."""
    return op.shared_bytes(a_desc, b_desc)
