"""Compiled kernels at every level: warpgroup products, register tiles, and the kernel of either family."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from xdsl.dialects.builtin import ModuleOp

from louver.compile.passes import State
from louver.compile.plan.schedule import Schedule
from louver.compile.signature import FLAG, ArgumentParameter, Signature, parameter_name
from louver.ir.conditions import NO_CONDITIONS, Conditions
from louver.ir.product import ProductNest
from louver.ir.tile.aliases import text_with_aliases
from louver.isa.rule import RuleError
from louver.isa.targets import CTA_SHARED_BYTES, Target
from louver.ptx.flagged import RunsIf, flagged
from louver.ptx.module import Kernel, Module
from louver.ptx.printer import min_ctas_line, print_module

ProductLevel = Literal["tile", "sched", "ptx"]
"""Levels of a product that can be printed, in the order of the pipeline."""

TileLevel = Literal["tile", "decomposed", "encoded", "ptx"]
"""Levels of register tiles that can be printed, in the order of the pipeline."""

MAX_WARPS = 32
"""The largest number of warps of a CTA."""


@dataclass(frozen=True, slots=True)
class CompiledProduct:
    """A product at every level.

    tile: the output of the frontend.
    sched: schedule IR, with places in shared memory.
    ptx: the text of `module`.
    """

    schedule: Schedule
    target: Target
    tile: ModuleOp
    nest: ProductNest
    sched: ModuleOp
    module: Module
    ptx: str
    signature: Signature

    @property
    def checked(self) -> ProductNest:
        """The product nest, which a launch checks."""
        return self.nest

    @property
    def kernel(self) -> Kernel:
        """The kernel, as the emulator runs it."""
        return self.module.kernels[0]

    @property
    def aligned_output(self) -> bool:
        """Whether the output's address and rows must be multiples of 16 bytes."""
        return self.schedule.store.way == "bulk"

    def text(self, level: ProductLevel) -> str:
        """The text of a level."""
        return self.ptx if level == "ptx" else str(getattr(self, level)) + "\n"


@dataclass(frozen=True, slots=True)
class TileOptions:
    """Options of register tiles.

    warps: warps of a CTA, a power of two; None to choose them from the kernel's dots.
    asked: warps that the user asks for, a power of two: the most where threads wait for the products of each step.
    boxes: whether bulk copies may bring tiles.
    ctas: the largest number of CTAs of a launch on an SM; None for as many as fit by their registers.
    registers: registers of a thread; None where they are not known. Rings leave shared memory for all CTAs that fit by
    them.
    ahead: whether operands may be computed a step ahead, into a second slot, or loaded ahead in a rotated loop.
    gaps: whether rows of a sparse tensor's values may have gaps. Its sizes in the kernel are then those of the tensor, which
        give the length of its metadata.
    computed: sparse arguments whose tiles are addressed at run time; None for those whose tiles cannot be described.
    parted: whether an index times a stride selects a part of a sparse matrix, not a matrix of a batch.
    """

    warps: int | None = None
    boxes: bool = True
    ctas: int | None = None
    registers: int | None = None
    ahead: bool = True
    gaps: bool = False
    computed: frozenset[str] | None = None
    parted: bool = False
    asked: int | None = None

    def __post_init__(self) -> None:
        for warps in (self.warps, self.asked):
            if warps is not None and (not 1 <= warps <= MAX_WARPS or warps & (warps - 1)):
                raise RuleError(f"a kernel has a power of two of warps, 1 to {MAX_WARPS}, got {warps}")


def ctas_by_shared(target: Target, shared: int) -> int:
    """The number of CTAs that fit an SM, each with `shared` bytes of shared memory."""
    return target.sm_shared_bytes // (shared + CTA_SHARED_BYTES)


@dataclass(frozen=True, slots=True)
class CompiledTiles:
    """A kernel of register tiles at every level.

    tile: the output of the frontend.
    decomposed: without sparse types.
    encoded: with an encoding in the type of each tile.
    needed: registers of 32 bits that a thread needs by the PTX (`most_live`).
    checked: the facts that a launch must check.
    dense: why a dense kernel may be as fast: for each dot of a sparse tile that is compiled to a dense product, and for each tensor
        that is read a group at a time.
    addressed: what is told of sparse arguments whose tiles are addressed at run time.
    options: those that it was compiled with, the arguments that are addressed at run time among them.
    described: the state of the pipeline before `choose-warps`, from which it is compiled for other warps.
    ringless: the kernel before `ring-copies`, from which it is compiled with other rings; None for a kernel without rings.
    """

    target: Target
    tile: ModuleOp
    decomposed: ModuleOp
    encoded: ModuleOp
    module: Module
    ptx: str
    signature: Signature
    needed: int = 0
    checked: Conditions = NO_CONDITIONS
    dense: tuple[str, ...] = ()
    addressed: tuple[str, ...] = ()
    options: TileOptions = field(default_factory=TileOptions)
    described: State | None = field(default=None, compare=False, repr=False)
    ringless: ModuleOp | None = field(default=None, compare=False, repr=False)

    @property
    def kernel(self) -> Kernel:
        """The kernel, as the emulator runs it."""
        return self.module.kernels[0]

    @property
    def ctas_by_shared(self) -> int:
        """The number of CTAs that fit an SM by their shared memory."""
        return ctas_by_shared(self.target, self.kernel.dynamic_shared)

    def with_ctas(self, count: int) -> CompiledTiles:
        """The same kernel for `count` CTAs on an SM.

        The assembler limits the registers of a thread, so that all of them fit.
        """
        module = Module(self.module.target, [replace(self.kernel, min_ctas=count)])
        # Only one line of text changes. To print and check a large kernel again takes about as long as to lower it.
        before, after = (min_ctas_line(each) for each in (self.kernel, module.kernels[0]))
        return replace(self, module=module, ptx=self.ptx.replace(f"\n{before}\n", f"\n{after}\n", 1))

    def text(self, level: TileLevel) -> str:
        """The text of a level."""
        if level == "encoded":
            return text_with_aliases(self.encoded) + "\n"
        return self.ptx if level == "ptx" else str(getattr(self, level)) + "\n"


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel of one of the two families. refusal: for register tiles, the reason that it is not a product; else None."""

    made: CompiledProduct | CompiledTiles
    refusal: str | None = None

    def flagged(self, runs_if: RunsIf) -> CompiledKernel:
        """The kernel that runs only if the word of the argument `FLAG` is as `runs_if` says. The other one leaves before
        its barriers, so the check of the protocol holds for both.
        """
        made = self.made
        if made.signature.dependent:
            raise ValueError("a dependent launch may read its flag too early, got one: leave dependent out")
        parameter = ArgumentParameter(parameter_name(FLAG), FLAG, "address", None, "u64", "i32")
        if isinstance(made, CompiledProduct):
            # A product has its own names of arguments.
            parameter = replace(parameter, argument=parameter.name)
        module = Module(made.module.target, [flagged(made.kernel, parameter.name, runs_if)])
        signature = replace(made.signature, parameters=(*made.signature.parameters, parameter))
        return replace(self, made=replace(made, module=module, ptx=print_module(module), signature=signature))
