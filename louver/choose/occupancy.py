"""Register use of register tiles: more warps if threads spill, and rings for as many CTAs as share an SM."""

from __future__ import annotations

import itertools
import os
import re
from contextlib import ExitStack
from dataclasses import dataclass, replace

from louver.compile.compiled import CompiledKernel, CompiledTiles
from louver.compile.pipeline import plan_again
from louver.compile.plan.encode.anchors import waits_for_sums
from louver.compile.plan.register_tiles import MOST_SLOTS, SM_WARPS, ctas_of
from louver.ir.tile import DotOp, LocalAllocOp, LocalStoreOp
from louver.ptx import assembler
from louver.ptx.assembler import Assembling, Assembly, AssemblyError

MOST_WARPS = 16
"""Most warps of a CTA. With more, a thread has fewer registers than it can name."""

SLOW = 0.15
"""Seconds of an assembly before likely follow-up assemblies start in parallel. Most kernels take less."""

WARPS_OF_SM = (SM_WARPS, 20, 12)
"""Warps on an SM, best first: 128, 96 or 168 registers a thread. One warp waits for memory while another multiplies."""

WARPS_WITHOUT_DOTS = (32, *WARPS_OF_SM)
"""The same for kernels without dots. All that they do is wait for memory, and they have no rings: 64 registers a thread."""

TINY = 32
"""Bytes of spills that such a kernel may have for twice as many warps: four stores and four loads of a thread."""

LEAST_SHARE = 2 / 3
"""Least share of the registers that a kernel needs by its PTX (`most_live`). With fewer, all of 40 public kernels spilled."""

CROWDED = 400
"""Registers that a kernel needs by its PTX from which a thread spills in any case: it has 255. Kernels of 337 did not spill."""

FEWER = 15 / 16
"""Greatest share of these registers from which a kernel in another order may spill less."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """A kernel with its assembly."""

    kernel: CompiledKernel
    assembly: Assembly

    @classmethod
    def of(cls, kernel: CompiledKernel, machine: str | None = None) -> Assembled:
        """Assemble a kernel. Raises AssemblyError. machine: the target to assemble for, by default the kernel's own."""
        return cls(kernel, assembler.assemble(*_text_for(kernel.made.ptx, kernel.made.target.name, machine)))

    @property
    def spilled(self) -> int:
        """Bytes of spill stores and loads of a thread."""
        return sum(kernel.spill_store_bytes + kernel.spill_load_bytes for kernel in self.assembly.kernels)

    @property
    def warps(self) -> int:
        """Warps of a CTA."""
        return self.kernel.made.signature.warps

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        return self.assembly.kernels[0].registers

    @property
    def fits(self) -> bool:
        """Whether the registers are enough, or all spills are hidden: other warps run during the few of a kernel without dots."""
        made = self.kernel.made
        hidden = isinstance(made, CompiledTiles) and not _has_dots(made) and 0 < self.spilled <= TINY
        return self.assembly.clean or hidden

    @property
    def warning(self) -> str | None:
        """The warning about spilled registers, or None."""
        if not self.spilled:
            return None
        return (
            f"with {self.warps} warps each thread moves {self.spilled} bytes of registers to memory and back: choose smaller blocks, "
            "or another num_warps"
        )


def with_room(kernel: CompiledKernel, warps: int | None, machine: str | None = None) -> Assembled:
    """The kernel as it is launched. Products stay unchanged.

    warps: what the user asks for; None leaves the number to Louver. If threads spill, fewer than that are doubled. So is any number
        where threads wait for the sums of each step: they spill in each step.
    machine: the target to assemble for, by default the kernel's own. A newer GPU runs kernels of an older target.
    """
    made = kernel.made
    if not isinstance(made, CompiledTiles):
        return Assembled.of(kernel, machine)
    more = warps is None or made.signature.warps < warps or waits_for_sums(made.encoded)
    if more:
        made = _roomier(made)
        kernel = CompiledKernel(made, kernel.refusal)
    with ExitStack() as begun:
        first, ahead = _begin(made, machine, begun)
        found = _in_order(Assembled(kernel, first.assembly()), machine)
        if more:
            found = _with_warps(found, machine)
        return found if found.spilled else _closer(found, machine, ahead)


def _roomier(made: CompiledTiles) -> CompiledTiles:
    """The kernel with as many warps as a thread surely needs not to spill, found without the assembler."""
    while made.needed >= CROWDED and 2 * made.signature.warps <= MOST_WARPS:
        wider = plan_again(made, warps=2 * made.signature.warps).lowered()
        if wider.needed >= made.needed:
            break
        made = wider
    return made


_TARGET = re.compile(r"^\.target \w+$", re.MULTILINE)


def _text_for(ptx: str, own: str, machine: str | None) -> tuple[str, str]:
    """PTX of a kernel for another target than its own, and that target."""
    if machine in (None, own):
        return ptx, own
    return _TARGET.sub(f".target {machine}", ptx, count=1), machine


def _begin(made: CompiledTiles, machine: str | None, begun: ExitStack) -> tuple[Assembling, dict[str, Assembling]]:
    """The kernel's assembly; if that is slow, also likely follow-ups by PTX, on other cores. begun: stops unused ones."""
    own = made.target.name
    first = begun.enter_context(assembler.Assembling(*_text_for(made.ptx, own, machine)))
    texts: list[str] = []
    if first.takes(SLOW):
        cores = len(os.sched_getaffinity(0)) - 1
        texts = [made.with_ctas(count).ptx for count in _closer_numbers(made, made.needed)[:cores]]
    return first, {text: begun.enter_context(assembler.Assembling(*_text_for(text, own, machine))) for text in texts}


def _closer(found: Assembled, machine: str | None, ahead: dict[str, Assembling]) -> Assembled:
    """The kernel with more CTAs on an SM, if one assembles cleanly. ahead: assemblies that have started."""
    assert isinstance(found.kernel.made, CompiledTiles)
    found = _with_ctas(found, found.kernel.made, machine)
    made = found.kernel.made
    assert isinstance(made, CompiledTiles)
    for ctas in _closer_numbers(made, found.registers):
        closer = replace(found.kernel, made=made.with_ctas(ctas))
        waiting = ahead.get(closer.made.ptx)
        try:
            tried = Assembled.of(closer, machine) if waiting is None else Assembled(closer, waiting.assembly())
        except AssemblyError:
            # The sums of a warpgroup's product do not fit in so few registers.
            continue
        if tried.fits:
            return tried
    return _deeper(found, made, machine)


def _deeper(found: Assembled, made: CompiledTiles, machine: str | None) -> Assembled:
    """The kernel with rings that take the shared memory of CTAs for which its registers leave no room."""
    ctas = ctas_of(made.target, found.registers, made.signature.threads, made.options.ctas)
    slots = [op.slots.value.data for op in made.encoded.walk() if isinstance(op, LocalAllocOp)]
    if not 0 < ctas < made.ctas_by_shared or not any(1 < each < MOST_SLOTS for each in slots):
        return found
    planned = plan_again(made, warps=found.warps, registers=found.registers)
    if planned.dynamic_shared <= made.kernel.dynamic_shared:
        return found
    deeper = Assembled.of(CompiledKernel(planned.lowered(), found.kernel.refusal), machine)
    fits = ctas_of(made.target, deeper.registers, made.signature.threads) >= ctas
    return deeper if deeper.assembly.clean and fits else found


def _in_order(found: Assembled, machine: str | None) -> Assembled:
    """The kernel; if dots overlap or run on, and it does not assemble cleanly, the better of it and the one in order."""
    made = found.kernel.made
    if found.assembly.clean or not isinstance(made, CompiledTiles):
        return found
    dots = (op for op in made.encoded.walk() if isinstance(op, DotOp))
    if not any(op.is_async is not None or op.in_flight is not None for op in dots):
        return found
    other = plan_again(made, warps=found.warps, ahead=False).lowered()
    if other.needed > made.needed * FEWER:
        return found
    both = found, Assembled.of(CompiledKernel(other, found.kernel.refusal), machine)
    return min(both, key=lambda each: (not each.assembly.clean, each.spilled))


def _has_dots(made: CompiledTiles) -> bool:
    return any(isinstance(op, DotOp) for op in made.encoded.walk())


def _numbers_of_ctas(made: CompiledTiles) -> list[int]:
    """CTAs that may share an SM, at least two, best first. Several warp counts may give the same number."""
    warps = made.signature.warps
    every = WARPS_OF_SM if _has_dots(made) else WARPS_WITHOUT_DOTS
    found = dict.fromkeys(min(each // warps, made.ctas_by_shared, made.options.ctas or each) for each in every)
    return list(itertools.takewhile(lambda count: count > 1, found))


def _closer_numbers(made: CompiledTiles, registers: int) -> list[int]:
    """Those for which the assembler must limit a thread to fewer than its `registers`, and may do so without spills."""
    most = made.target.registers_per_sm // made.signature.threads
    larger = itertools.takewhile(lambda count: registers * count > most, _numbers_of_ctas(made))
    return [count for count in larger if made.needed * count * LEAST_SHARE <= most]


def _with_ctas(found: Assembled, made: CompiledTiles, machine: str | None) -> Assembled:
    """A kernel with smaller rings, so that as many CTAs fit as its registers allow. If two CTAs still do not fit,
    operands are computed in their own step: one CTA multiplies while the other computes.
    """
    if ctas_of(made.target, found.registers, made.signature.threads, made.options.ctas) <= made.ctas_by_shared:
        return found
    computes = any(isinstance(op, LocalStoreOp) for op in made.encoded.walk())
    own = made.options.ahead
    for ahead in dict.fromkeys((own, False)) if made.ctas_by_shared == 1 and computes else (own,):
        planned = plan_again(made, warps=found.warps, registers=found.registers, ahead=ahead)
        if planned.ctas_by_shared > made.ctas_by_shared:
            closer = Assembled.of(CompiledKernel(planned.lowered(), found.kernel.refusal), machine)
            if closer.assembly.clean:
                return closer
    return found


def _with_warps(found: Assembled, machine: str | None) -> Assembled:
    """A kernel with twice as many warps, repeated while that reduces spills."""
    made = found.kernel.made
    while isinstance(made, CompiledTiles) and found.spilled and 2 * found.warps <= MOST_WARPS:
        made = plan_again(made, warps=2 * found.warps).lowered()
        wider = _in_order(Assembled.of(CompiledKernel(made, found.kernel.refusal), machine), machine)
        made = wider.kernel.made
        if wider.spilled >= found.spilled:
            break
        found = wider
    return found
