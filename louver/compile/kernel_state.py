"""The state of a kernel between two passes of the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from xdsl.dialects.builtin import ModuleOp

from louver.compile.compiled import CompiledProduct, CompiledTiles, TileOptions
from louver.compile.lower.tiles.state import Rooms
from louver.compile.needs import Fits, Needs, fits_any
from louver.compile.passes import State, UnfitError
from louver.compile.plan.register_tiles import MOST_SLOTS
from louver.compile.plan.schedule import Schedule
from louver.compile.read_signature import Group
from louver.compile.signature import ArgumentParameter, BoxParameter
from louver.ir.conditions import Conditions, DenseView, SparseView
from louver.ir.product import ProductNest
from louver.ir.tile.multiples import has_known_addresses
from louver.isa.async_copy import CopyBytes
from louver.isa.targets import Target


@dataclass(slots=True)
class KernelState(State):
    """A kernel between two passes, and the results of the passes that ran.

    choose: chooses the schedule of a product.
    options: options of register tiles.
    fits: asks whether the call at hand fits the kernel, once.
    nest: what a product computes.
    schedule: the way in which it does.
    warps: warps of a CTA; 0 until `choose-warps` runs.
    computed: sparse arguments whose tiles are addressed at run time.
    pieces: for each of them, the bytes of values that are neighbours.
    undescribed: why its tiles cannot be described; "" if they can.
    staged: whether operands pass through shared memory.
    slots: slots of the ring that copies fill; 0 for no ring.
    arguments: the origin of each argument.
    parameters: parameters of the launch.
    views, dense_views: views of sparse and of dense tensors that the launch checks.
    conditions: of register tiles, all that the launch checks, views too.
    dense: why dots of sparse tiles are dense products.
    decomposed: the kernel without sparse types.
    maps: tensor maps that box copies need.
    described: the state before `choose-warps`, which later passes leave as it is.
    ringless: the kernel before `ring-copies`, which later passes leave as it is; None for a kernel without rings.
    ring_rooms: bytes of shared memory that rings may take, best first.
    made: the compiled kernel.
    """

    target: Target
    choose: Callable[[ProductNest], Schedule] | None = None
    options: TileOptions = field(default_factory=TileOptions)
    fits: Fits = field(default=fits_any, repr=False)
    nest: ProductNest = field(init=False)
    schedule: Schedule = field(init=False)
    warps: int = 0
    computed: frozenset[str] = frozenset()
    pieces: Mapping[str, int] = field(default_factory=dict[str, int])
    undescribed: str = ""
    staged: bool = True
    slots: int = MOST_SLOTS
    arguments: Sequence[Group] = ()
    parameters: tuple[ArgumentParameter, ...] = ()
    views: tuple[SparseView, ...] = ()
    dense_views: tuple[DenseView, ...] = ()
    conditions: Conditions = field(init=False)
    dense: tuple[str, ...] = ()
    decomposed: ModuleOp = field(init=False)
    maps: tuple[BoxParameter, ...] = ()
    described: KernelState = field(init=False, repr=False)
    ringless: ModuleOp | None = field(default=None, repr=False)
    ring_rooms: tuple[int, ...] = ()
    rooms: Rooms = field(init=False)
    made: CompiledProduct | CompiledTiles = field(init=False)

    def ask(self, needs: Needs) -> Needs:
        """ask-call: asks whether the call at hand fits what the kernel needs, before the kernel is lowered.

        Raises UnfitError if not. Later passes keep no reference to the call.
        """
        fits, self.fits = self.fits, fits_any
        try:
            fits(needs)
        except Exception as error:
            raise UnfitError(error) from error
        return needs

    @property
    def wide(self) -> bool:
        """Whether neighbouring elements are moved together.

        An element that is moved alone takes a whole register. Then no registers remain for values that could stay there
        during a loop.
        """
        return self.staged and has_known_addresses(self.kernel)

    @property
    def read_by_groups(self) -> tuple[str, ...]:
        """A sentence for each argument of which each copy brings the values of one group."""
        return tuple(
            f"{name} is read at computed addresses, a group at a time, which may cost more than sparsity saves: the dense kernel by Triton may be "
            "faster. Pass the tensor [N, K], sparse along its last axis, with columns that are start + tl.arange(0, BLOCK_K)"
            for name, size in self.pieces.items()
            if size <= min(get_args(CopyBytes))
        )

    @property
    def told_addresses(self) -> tuple[str, ...]:
        """A sentence for each argument whose tiles are addressed at run time."""
        why = f": {self.undescribed.splitlines()[0]}" if self.undescribed else ""
        return tuple(
            f"{name} is read at computed addresses, in pieces of {size} bytes of values{why}"
            for name, size in self.pieces.items()
        )
