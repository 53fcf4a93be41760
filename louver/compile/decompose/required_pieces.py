"""Refusals of pieces at computed addresses: those that are proven to break the rule, and integers without a proof that they keep it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects.builtin import IntegerType
from xdsl.ir import SSAValue

from louver.analysis.alignment import Needs
from louver.analysis.runs import Runs
from louver.ir import tile as tt
from louver.ir.polynomial import Size
from louver.ir.refusal import UnsupportedKernelError, unsupported


def require_neighbours(load: tt.LoadOp, distance: Size | None) -> None:
    """Reject groups that are proven to be no neighbours: each would read NaN. distance: of elements of a group, if it is known. For a
    tensor that is sparse along its last axis but one the launch compares it.
    """
    if distance is None or distance.constant in (None, 1):
        return
    raise unsupported(
        "columns of a tile follow one another along the sparse axis, here the last one, but these elements are "
        f"{distance.constant} apart in memory",
        load,
        "compress the tensor along the axis that the kernel sums over, such as axis=1 of weight.view(OUT, IN, KH * KW)",
    )


def unproven(load: tt.LoadOp, along: str) -> UnsupportedKernelError:
    """The refusal of integers whose pieces are not proven. along: the name of the numbers along the sparse axis."""
    return unsupported(
        "pieces of integers at a computed address must be proven, because integers have no NaN to show a violation: whole groups "
        "along the sparse axis, with one mask",
        load,
        f"write row * stride + column, with {along} that are start + tl.arange for a start of whole groups, and a mask of "
        f"{along} < K",
    )


def needs_of_pieces(moves: Callable[[Runs], bool], runs: Runs, group: int) -> Needs | None:
    """The arguments that must be multiples of a group, for pieces of a group to be proven; None if that is no proof."""

    def proves(chosen: Sequence[SSAValue]) -> bool:
        return moves(runs.knowing(dict.fromkeys(chosen, group)))

    chosen = [
        each for each, known in runs.multiples.items() if isinstance(each.type, IntegerType) and known % group != 0
    ]
    if not proves(chosen):
        return None
    for each in list(chosen):
        fewer = [other for other in chosen if other is not each]
        chosen = fewer if proves(fewer) else chosen
    return frozenset((each, group) for each in chosen)
