"""The reasons for a user's kernel: the pattern of each sparse argument, the candidates, the instruction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from louver.choose.demand import Demand
from louver.choose.occupancy import Assembled
from louver.choose.reasons import Reasons, predicted, promised, selected
from louver.compile.canonical.propagate_sparsity import marked_sparse
from louver.compile.compiled import CompiledProduct, CompiledTiles
from louver.compile.needs import Fits
from louver.compile.plan.schedule import Schedule
from louver.ir.tile import DescriptorType, FuncOp, PointerType, element_name
from louver.isa.targets import Target
from louver.library.compiled import BuiltKernel
from louver.library.rows import Held
from louver.user.arguments import Call, Kind
from louver.user.binding import choose
from louver.user.compiled import AddressIntegers, Variant, Wanted
from louver.user.hints import Hints
from louver.user.retile import SM_COUNT
from louver.user.source import TileSource
from louver.user.units import describe_dots

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Unlaunched(Generic[K]):
    """The kernels and arrays of a call that is not launched. build: makes a kernel. grid: empty if unknown."""

    build: Callable[[Wanted], BuiltKernel[K]]
    source: TileSource
    hints: Hints
    call: Call
    grid: Sequence[int]
    target: Target
    sm_count: int = SM_COUNT

    def kernel(
        self, variant: Variant, fits: Fits, schedule: Schedule | None = None, kind: Kind | None = None
    ) -> BuiltKernel[K]:
        call = self.call if kind is None else replace(self.call, kind=kind)
        asked = self.source, self.hints, call, variant, self.target.name, self.grid, self.sm_count
        return self.build(Wanted.of(*asked, schedule=schedule, fits=fits))

    def address_integers(self, kind: Kind) -> AddressIntegers:
        return AddressIntegers.of(self.source, kind, self.target.name)

    def held(self, argument: str) -> Held:
        array = self.call.arrays[argument]
        return Held(array.address, array.byte_range[1] - array.address)

    def chosen(self) -> K:
        """The kernel that a launch would run. Raises ValueError for sizes, arrays and grid that do not match."""
        return choose(self.source.name, self.hints, self.call, self.grid, self).kernel.kernel


def reasons_of(found: Assembled, wanted: Wanted) -> Reasons:
    """The reasons for an assembled kernel. wanted: what it was compiled for."""
    made = found.kernel.made
    if isinstance(made, CompiledProduct):
        return reasons_of_product(made, wanted)
    told = (
        f"the kernel's own tile by {found.warps} warps: {found.registers} registers of a thread, "
        f"{made.signature.shared_bytes:,} bytes of shared memory, {max(1, made.ctas_by_shared)} CTAs an SM at most",
    )
    chosen = f"register tiles on {made.target.name}, because it is no product of warpgroups: {found.kernel.refusal}"
    dots = dict.fromkeys(describe_dots(made))
    return Reasons(_detected(made, wanted), told, "; ".join((chosen, *made.addressed, *dots)))


def reasons_of_product(made: CompiledProduct, wanted: Wanted) -> Reasons:
    """The reasons for a product, which its assembly has no part in."""
    nest, target, sized = made.nest, made.target, wanted.sized
    sizes = None if sized is None else sized.sizes(nest)
    if sized is None or sizes is None or min(sizes) <= 0:
        sizes, told = None, ("the kernel's own tile: its sizes are not known before a call",)
    else:
        aligned = wanted.variant == "bulk"
        told = predicted(Demand.of_nest(nest), sizes, target, sized.sm_count, aligned_output=aligned, cuts=False)
    origin = "the hints' choice" if wanted.hints.schedule else "the model's choice of schedule for the call's sizes"
    return Reasons(
        _detected(made, wanted), told, selected(target, nest.a.element, nest.a.pattern, made.schedule, origin), sizes
    )


def _detected(made: CompiledProduct | CompiledTiles, wanted: Wanted) -> str:
    """The pattern of each sparse argument, and who says so."""
    parts = [
        promised(encoding.format.pattern, _element(function, name), repr(name), found=name in wanted.found)
        for function in made.tile.body.ops
        if isinstance(function, FuncOp)
        for name, encoding in marked_sparse(function).items()
    ]
    if wanted.kind.runs_if == "not zero":
        parts.append("this kernel runs where the check of a call finds no pattern")
    return "; ".join(parts) or "no argument is sparse"


def _element(function: FuncOp, name: str) -> str:
    """The element type of an array or a descriptor."""
    (type_,) = (argument.type for argument, each in function.argument_names.items() if each == name)
    if isinstance(type_, DescriptorType):
        return element_name(type_.block.element_type)
    assert isinstance(type_, PointerType)
    return element_name(type_.pointee)
