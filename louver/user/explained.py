"""The reasons for a user's kernel: the pattern of each sparse argument, the candidates, the instruction."""

from __future__ import annotations

from collections.abc import Sequence

from louver.compile.compiled import CompiledProduct, CompiledTiles
from louver.library.demand import Demand
from louver.library.occupancy import Assembled
from louver.library.reasons import Reasons, predicted, promised, selected
from louver.user.arguments import Call
from louver.user.retile import SM_COUNT, product_sizes


def reasons_of_product(made: CompiledProduct, call: Call) -> Reasons:
    """The reasons for a product."""
    nest, target = made.nest, made.target
    found = _detected(call)
    try:
        sizes = product_sizes(nest, call.numbers)
    except KeyError:
        told = ("the kernel's own tile: its sizes depend on the grid",)
    else:
        told = predicted(Demand.of_nest(nest), sizes, target, SM_COUNT, aligned_output=True, cuts=False)
    origin = "the model's choice of schedule for the call's sizes"
    return Reasons(found, told, selected(target, nest.a.element, nest.a.pattern, made.schedule, origin))


def reasons_of_tiles(found: Assembled, call: Call, dots: Sequence[str]) -> Reasons:
    """The reasons for register tiles. dots: the instruction of each dot."""
    made = found.kernel.made
    assert isinstance(made, CompiledTiles)
    told = (
        f"the kernel's own tile by {found.warps} warps: {found.registers} registers of a thread, "
        f"{made.signature.shared_bytes:,} bytes of shared memory, {max(1, made.ctas_by_shared)} CTAs an SM at most",
    )
    chosen = f"register tiles on {made.target.name}, because it is no product of warpgroups: {found.kernel.refusal}"
    return Reasons(_detected(call), told, "; ".join((chosen, *made.addressed, *dots)))


def _detected(call: Call) -> str:
    parts = [promised(str(s.pattern), s.dtype.name, repr(name)) for name, s in call.sparse.items()]
    return "; ".join(parts) or "no argument is sparse"
