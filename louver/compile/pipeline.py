"""The pipeline: one list of passes that lowers a kernel from tile IR to PTX.

A kernel is a warpgroup product if it can be one (`PRODUCT`). Any other is of register tiles (`TILES`), of which each tile
has an encoding that says which lane and register hold which element. Examples are small tiles, several dots, operands
that change before a dot, reductions, branches and atomic sums.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.transforms.common_subexpression_elimination import cse

from louver.analysis.sizes_of_one import Ones
from louver.compile.canonical.canonicalize import CANONICAL, LOAD_ONCE
from louver.compile.canonical.join_choices import join_choices
from louver.compile.canonical.propagate_sparsity import marked_sparse
from louver.compile.check.check import check_protocol
from louver.compile.compiled import CompiledKernel, CompiledProduct, CompiledTiles, TileOptions, ctas_by_shared
from louver.compile.decompose.expand_blocks import expand_blocks
from louver.compile.dump import NOWHERE, Dump, Watch
from louver.compile.generate.assign import assign_shared_memory
from louver.compile.generate.generate import generate
from louver.compile.kernel_state import KernelState
from louver.compile.lower.products import lower
from louver.compile.lower.tiles import lower_tiles, place_shared
from louver.compile.lower.tiles.rotate import rotate_loops
from louver.compile.lower.tiles.shared_memory import shared_peak
from louver.compile.needs import Fits, Needs, fits_any
from louver.compile.passes import COPY, First, Pass, State, Step, UnfitError, Way, attempt, names, on_module, run_passes
from louver.compile.plan.encode import assign_encodings, choose_warps
from louver.compile.plan.encode.exchange_plan import Means
from louver.compile.plan.encode.live_sums import most_sums
from louver.compile.plan.feeds.chunks import find_chunks
from louver.compile.plan.feeds.describe_boxes import describe_boxes, used_boxes
from louver.compile.plan.feeds.equal_elements import join_quotients
from louver.compile.plan.feeds.hoist_invariants import hoist_invariants
from louver.compile.plan.feeds.load_before_branches import load_before_branches
from louver.compile.plan.feeds.make_ahead import make_ahead
from louver.compile.plan.feeds.overlap_dots import overlap_dots
from louver.compile.plan.feeds.prefetch_loads import prefetch_loads
from louver.compile.plan.feeds.ring_copies import ring_copies
from louver.compile.plan.feeds.sink_conversions import sink_conversions
from louver.compile.plan.feeds.split_addresses import split_addresses
from louver.compile.plan.feeds.sum_behind_loops import sum_behind_loops
from louver.compile.plan.nest import read_nest
from louver.compile.plan.register_tiles import MOST_SLOTS, OTHER_REGISTERS, ctas_of
from louver.compile.plan.schedule import Schedule
from louver.compile.read_signature import read_signature
from louver.compile.rewrite.join_remainders import join_remainders
from louver.compile.signature import Signature, with_tails
from louver.compile.sparse_tiles import ASK_TILES, DESCRIBED
from louver.frontend.builder import build_tile_ir
from louver.frontend.problem import Problem
from louver.ir.product import ProductNest
from louver.ir.refusal import Refusal
from louver.ir.tile.multiples import has_known_addresses, mark_apart, mark_matrices, mark_multiples
from louver.isa.instruction import LANES
from louver.isa.targets import target
from louver.ptx.pressure import most_live
from louver.ptx.printer import print_module

CHECK = "LOUVER_CHECK"


def _read_nest(state: KernelState) -> object:
    """read-nest: reads loads, dot, epilogue and store as a product nest."""
    state.nest = read_nest(state.module)
    return state.nest


def _choose_schedule(state: KernelState) -> object:
    """choose-schedule: takes the caller's schedule for the nest."""
    assert state.choose is not None
    state.schedule = state.choose(state.nest)
    return state.schedule


def _ask_product(state: KernelState) -> Needs:
    return state.ask(Needs.of(state.nest, ()))


def _generate(state: KernelState) -> None:
    """generate-schedule: writes schedule IR of the nest: roles, rings, barriers, copies, products."""
    state.module = generate(state.nest, state.schedule, state.target)


def _lower(state: KernelState) -> object:
    """lower-to-ptx: lowers each operation of schedule IR to PTX, and prints the module."""
    lowered = lower(state.module, state.target.name)
    state.made = CompiledProduct(
        state.schedule,
        state.target,
        state.tile,
        state.nest,
        state.module,
        lowered,
        print_module(lowered),
        read_signature(state.module),
    )
    return state.made.ptx


def _expand_blocks(state: KernelState) -> None:
    state.decomposed = state.module
    state.module = expand_blocks(state.module)


def _eliminate(state: State) -> None:
    """eliminate-common-subexpressions: computes equal values once (xDSL's pass)."""
    cse(state.module)


def _describe_boxes(state: KernelState) -> None:
    if state.options.boxes and state.target.bulk_copies:
        state.maps = describe_boxes(state.kernel, state.parameters)


def _find_chunks(state: KernelState) -> None:
    if has_known_addresses(state.kernel):
        find_chunks(state.kernel, [*(each.multiple for each in state.parameters), *(1 for _ in state.maps)])


def _choose_warps(state: KernelState) -> object:
    """choose-warps: chooses the warps of a CTA, and the shared memory that rings may take."""
    state.described = copy(state)
    warpgroups = state.target.has("wgmma.sp")
    state.warps = state.options.warps or choose_warps(state.kernel, state.options.asked, warpgroups=warpgroups)
    state.ring_rooms = _ring_rooms(state)
    return state.warps, state.ring_rooms


def _ring_rooms(state: KernelState) -> tuple[int, ...]:
    """Bytes of shared memory for rings, best first: for as many CTAs as fit an SM by registers and warps, then for
    fewer.
    """
    machine, threads, options = state.target, LANES * state.warps, state.options
    guess = most_sums(state.kernel) // threads + OTHER_REGISTERS
    most = ctas_of(machine, options.registers or guess, threads, options.ctas)
    return tuple(machine.shared_bytes(ctas) for ctas in range(max(1, most), 0, -1))


def _assign_encodings(state: KernelState) -> None:
    state.module = assign_encodings(
        state.module,
        state.warps,
        registers=state.target.registers_per_sm,
        staged=state.staged,
        warpgroups=state.target.has("wgmma.sp"),
        copied=state.wide and state.slots > 0,
    )


def _hoist_invariants(state: KernelState) -> None:
    if state.wide:
        hoist_invariants(state.module)


def _make_ahead(state: KernelState) -> None:
    if state.wide and state.slots and state.options.ahead:
        make_ahead(state.module)


def _prefetch_loads(state: KernelState) -> None:
    if state.wide:
        prefetch_loads(state.module, state.warps, rings=state.slots > 0)


def _ring_copies(state: KernelState) -> None:
    if state.wide and state.slots:
        peak_of = functools.partial(shared_peak, means=Means.of(state.target))
        # Measured on Hopper. If all CTAs of a launch run at once, each SM has as many as it can.
        deep = state.target.has("wgmma.sp") and state.options.ctas is None
        ring_copies(state.module, state.ring_rooms, peak_of, state.slots, in_flight=state.options.ahead, deep=deep)


def _overlap_dots(state: KernelState) -> None:
    if state.wide and state.slots and state.options.ahead:
        overlap_dots(state.module, state.warps)


def _drop_boxes(state: KernelState) -> None:
    """drop-boxes: removes the descriptors of boxes that no ring copies."""
    state.maps = used_boxes(state.kernel, state.maps)


def _place_shared(state: KernelState) -> object:
    """place-shared: gives tiles and exchanges their places in shared memory."""
    state.rooms = place_shared(state.kernel, state.target)
    room, most = state.rooms.bytes, state.target.max_shared_bytes
    return state.rooms if room <= most else Refusal.because(f"a CTA has {most} bytes of shared memory, got {room}")


def _lower_tiles(state: KernelState) -> object:
    options = replace(state.options, computed=state.computed)
    lowered = lower_tiles(state.kernel, [*state.parameters, *state.maps], state.warps, state.target, state.rooms)
    kernel = lowered.kernels[0]
    if options.ahead:
        rotate_loops(kernel)
    parameters = with_tails((*state.parameters, *state.maps))
    state.made = CompiledTiles(
        state.target,
        state.tile,
        state.decomposed,
        state.module,
        lowered,
        print_module(lowered),
        Signature(kernel.name, parameters, kernel.threads, kernel.dynamic_shared),
        most_live(kernel.body),
        state.conditions,
        state.dense,
        state.told_addresses,
        options,
        state.described,
        state.ringless,
    )
    return state.made.ptx


def _check_shared_memory(state: KernelState) -> object:
    """check-shared-memory: with `LOUVER_CHECK=1`, runs the kernel on the emulator without its arithmetic."""
    if os.environ.get(CHECK, "0") == "0":
        return f"{CHECK} does not ask for it"
    from louver.compile.check.shared_memory import check_shared_memory

    made = state.made
    assert isinstance(made, CompiledTiles)
    return check_shared_memory(made.kernel, made.signature)


READ = (COPY, *CANONICAL)
"""Passes that bring the tile IR of a product to the form that the library writes."""

GENERATE: tuple[Pass[KernelState], ...] = (
    Pass("read-nest", _read_nest),
    Pass("choose-schedule", _choose_schedule),
    Pass("ask-call", _ask_product),
    Pass("generate-schedule", _generate),
    Pass("assign-shared-memory", lambda state: assign_shared_memory(state.module, state.target)),
    Pass("check-protocol", lambda state: check_protocol(state.module)),
    Pass("lower-to-ptx", _lower),
)
"""Passes that lower a product to schedule IR, and from there to PTX."""

PRODUCT: tuple[Step[KernelState], ...] = (READ, GENERATE)
"""All passes of a product."""

WRITTEN: tuple[Step[KernelState], ...] = ((COPY,), GENERATE)
"""Passes of a product of the library. Its tile IR is canonical as `build_tile_ir` writes it."""

CHOOSE_WARPS: Pass[KernelState] = Pass("choose-warps", _choose_warps)

DESCRIBE: tuple[Pass[KernelState], ...] = (
    Pass("expand-blocks", _expand_blocks),
    Pass("eliminate-common-subexpressions", _eliminate),
    on_module(join_choices),
    on_module(join_quotients),
    Pass("describe-boxes", _describe_boxes),
    on_module(load_before_branches),
    on_module(split_addresses),
    LOAD_ONCE,
    Pass("find-chunks", _find_chunks),
    on_module(join_remainders),
    CHOOSE_WARPS,
)
"""Passes that lower to tile IR with pointers and masks. Each load then says how its tile may be moved."""

ENCODE: tuple[Pass[KernelState], ...] = (
    Pass("assign-encodings", _assign_encodings),
    Pass("hoist-invariants", _hoist_invariants),
    on_module(sink_conversions),
    Pass("make-ahead", _make_ahead),
    Pass("prefetch-loads", _prefetch_loads),
    on_module(sum_behind_loops),
)
"""Passes that give each tile an encoding. Of the slots of rings, they only depend on whether there are any."""

FEED: tuple[Pass[KernelState], ...] = (
    Pass("ring-copies", _ring_copies),
    Pass("overlap-dots", _overlap_dots),
    Pass("drop-boxes", _drop_boxes),
    Pass("place-shared", _place_shared),
)
"""Passes that bring operands to dots."""


def _ring(slots: int) -> Way[KernelState]:
    def begin(state: KernelState) -> None:
        state.ringless, state.slots = state.module, slots
        state.module = state.module.clone()

    return Way(FEED, begin)


RINGS: First[KernelState] = First(tuple(map(_ring, (MOST_SLOTS, 4, 3, 2))))
"""The passes behind `prefetch-loads`, with the most slots that fit."""


def _feeds(feed: Step[KernelState], staged: bool, slots: int) -> Way[KernelState]:
    def begin(state: KernelState) -> None:
        state.staged, state.slots = staged, slots

    return Way((*ENCODE, feed), begin)


LOWER_TILES: tuple[Pass[KernelState], ...] = (
    Pass("lower-tiles", _lower_tiles),
    Pass("check-shared-memory", _check_shared_memory),
)
"""The last passes of register tiles. The check runs if `LOUVER_CHECK` asks for it."""

FEEDS: First[KernelState] = First((_feeds(RINGS, True, MOST_SLOTS), _feeds(FEED, True, 0), _feeds(FEED, False, 0)))
"""The passes between `choose-warps` and `lower-tiles`. Every kernel fits shared memory by the last way."""

TILES: tuple[Step[KernelState], ...] = (
    DESCRIBED,
    ASK_TILES,
    DESCRIBE,
    FEEDS,
    LOWER_TILES,
)
"""All passes of register tiles. With `LOUVER_DUMP`, each writes its result to a file with "tiles" before its name."""


def _begin_product(state: KernelState) -> Refusal | None:
    if not state.target.has("wgmma.sp"):
        name = state.target.name
        return Refusal.because(f"products are scheduled for sm_90a, got {name}: it has no warpgroup products")
    if state.watch is NOWHERE:
        state.watch = Dump.of(state.module, names(PRODUCT))
    return None


def _begin_tiles(state: KernelState) -> None:
    if state.watch is NOWHERE:
        state.watch = Dump.of(state.module, names(TILES), "tiles-")


def compile_tile_ir(
    tile_ir: ModuleOp,
    schedule: Schedule | Callable[[ProductNest], Schedule],
    target_name: str = "sm_90a",
    *,
    watch: Watch | None = None,
) -> CompiledProduct:
    """Lowers tile IR to PTX by `PRODUCT`.

    schedule: the schedule, or a function that chooses it for the product that is read from the kernel.
    watch: receives the result of each pass; by default the dump that the environment asks for.

    Raises ValueError, with the rule, for a kernel that cannot be compiled. The PTX is not assembled here.
    """

    def choose(nest: ProductNest) -> Schedule:
        return schedule(nest) if callable(schedule) else schedule

    return _product(PRODUCT, KernelState(tile_ir, target(target_name), choose, watch=watch or NOWHERE))


def _product(steps: Step[KernelState], state: KernelState) -> CompiledProduct:
    made = run_passes(First((Way(steps, _begin_product),)), state).made
    assert isinstance(made, CompiledProduct)
    return made


@dataclass(frozen=True, slots=True)
class PlannedTiles:
    """A kernel of register tiles before it is lowered, which takes most of the time. `state` is that before `lower-tiles`."""

    state: KernelState

    @property
    def dynamic_shared(self) -> int:
        """Bytes of shared memory that a launch gives."""
        return self.state.rooms.bytes

    @property
    def ctas_by_shared(self) -> int:
        """The number of CTAs that fit an SM by their shared memory."""
        return ctas_by_shared(self.state.target, self.dynamic_shared)

    def lowered(self) -> CompiledTiles:
        """The kernel at every level."""
        made = run_passes(LOWER_TILES, copy(self.state)).made
        assert isinstance(made, CompiledTiles)
        return made


def plan_again(
    made: CompiledTiles, *, warps: int, registers: int | None = None, ahead: bool | None = None
) -> PlannedTiles:
    """The kernel with other `TileOptions`; None keeps an option. The passes before `choose-warps` depend on none of these, and those
    before `ring-copies` on none but warps and `ahead`, so their result is taken as it is.
    """
    assert isinstance(made.described, KernelState), "the pipeline keeps it"
    state, options = copy(made.described), made.options
    # It was verified with what the later passes made of it.
    state.rewritten = False
    state.options = replace(
        options,
        warps=warps,
        registers=options.registers if registers is None else registers,
        ahead=options.ahead if ahead is None else ahead,
    )
    state = run_passes(CHOOSE_WARPS, state)
    if made.ringless is not None and (warps, state.options.ahead) == (made.signature.warps, options.ahead):
        ringless = copy(state)
        ringless.module = made.ringless
        found = attempt(RINGS, ringless)
        return PlannedTiles(run_passes(FEEDS, state) if isinstance(found, Refusal) else found)
    return PlannedTiles(run_passes(FEEDS, state))


def compile_product(problem: Problem, schedule: Schedule, target_name: str = "sm_90a") -> CompiledProduct:
    """Compiles a product of the library from tile IR."""
    tile = schedule.tile
    tile_ir = build_tile_ir(problem, problem.written_tile(tile.m, tile.n, tile.k))
    return _product(WRITTEN, KernelState(tile_ir, target(target_name), lambda nest: schedule))


def compile_tiles(
    tile_ir: ModuleOp, target_name: str = "sm_90a", *, watch: Watch | None = None, **options: Any
) -> CompiledTiles:
    """Lowers tile IR to PTX by `TILES`.

    options: fields of `TileOptions`.
    watch: receives the result of each pass; by default the dump that the environment asks for.

    Raises UnsupportedKernelError, with operation and source line, for an operation that cannot be lowered. The PTX is not
    assembled here.
    """
    state = KernelState(tile_ir, target(target_name), options=TileOptions(**options), watch=watch or NOWHERE)
    made = run_passes(First((Way(TILES, _begin_tiles),)), state).made
    assert isinstance(made, CompiledTiles)
    return made


@dataclass(frozen=True, slots=True)
class Readings:
    """The readings of a kernel to tile IR.

    read: reads it with some of the integers `ones` as arguments of the launch. Others are compiled in.
    ones: the integers that are 1 in the call, by argument.
    """

    read: Callable[[tuple[str, ...]], ModuleOp]
    ones: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """The options for the choice of a family.

    schedule: chooses the schedule of a product.
    fixed: fields of the schedule that the user has fixed. With any, register tiles are excluded.
    options: of register tiles.
    multiples: the power of two that register tiles take to divide an argument, by name.
    apart: arrays that do not overlap any other array, so that stores to others do not change them.
    matrices: sparse tensors of two dimensions that are sparse along the first one. Others may be batches.
    refused: the reason that the call cannot be a product, for any kernel; None if it may be one.
    computed: whether register tiles address all sparse tiles at run time.
    fits: raises an error if the call at hand does not fit what the kernel needs.
    line: the user's line at "file:line:column", or None.
    """

    schedule: Callable[[ProductNest], Schedule]
    target: str = "sm_90a"
    fixed: tuple[str, ...] = ()
    options: TileOptions = field(default_factory=TileOptions)
    multiples: Mapping[str, int] = field(default_factory=dict[str, int])
    apart: tuple[str, ...] = ()
    matrices: tuple[str, ...] = ()
    refused: str | None = None
    computed: bool = False
    fits: Fits = fits_any
    line: Callable[[str], str | None] = lambda place: None


def compile_kernel(readings: Readings, choice: Choice) -> CompiledKernel:
    """The kernel as a product, or of register tiles if it is not a product.

    A size that happens to be 1 may hide the form of a product. A product is then tried once more, with such sizes as
    arguments of the launch (`Ones`), unless what rejects it is there for any sizes. If everything else is rejected, register tiles have all integers that are 1 as
    arguments, because they follow any address. The last way is a product of matrices of one column, whose pitches are 1.

    Raises UnsupportedKernelError, with the operation and its source line, or ValueError, if both families reject the
    kernel, and the error of `choice.fits` before a kernel is lowered that the call does not fit.
    """
    with_every_one = functools.cache(lambda: readings.read(readings.ones))

    def read(state: KernelState) -> None:
        state.module = readings.read(())

    def product(state: KernelState) -> Refusal | None:
        return _begin_product(state) if choice.refused is None else Refusal.because(choice.refused)

    def tiles(state: KernelState) -> None:
        """The assumptions of register tiles are marked in the kernel."""
        mark_multiples(state.kernel, choice.multiples)
        mark_apart(state.kernel, choice.apart)
        mark_matrices(state.kernel, choice.matrices)
        if choice.computed:
            state.options = replace(state.options, computed=frozenset(marked_sparse(state.kernel)))
        _begin_tiles(state)

    def sized(state: KernelState, *, pitches: bool) -> Refusal | None:
        if any(each.always for each in state.refusals):
            return Refusal.because("no integer of 1 hides a product")
        state.module = with_every_one()
        ones = Ones.of(state.kernel, readings.ones)
        if not (ones.pitches if pitches else ones.sizes):
            return Refusal.because("no integer of 1 hides a product")
        state.module = readings.read((*ones.sizes, *(ones.pitches if pitches else ())))
        return product(state)

    def addressed(state: KernelState) -> None:
        state.module = with_every_one()
        tiles(state)

    ways = [Way(PRODUCT, product, "" if choice.fixed else "As a warpgroup product it is refused too")]
    if readings.ones and choice.refused is None:
        ways.append(Way(PRODUCT, functools.partial(sized, pitches=False), None))
    if not choice.fixed:
        ways.append(Way(TILES, tiles))
    if readings.ones and not choice.fixed:
        ways.append(Way(TILES, addressed, None))
    if readings.ones and choice.refused is None:
        ways.append(Way(PRODUCT, functools.partial(sized, pitches=True), None))
    state = KernelState(ModuleOp([]), target(choice.target), choice.schedule, choice.options, choice.fits)
    try:
        found = attempt((Pass("read-kernel", read), First(ways)), state)
    except UnfitError as unfit:
        raise unfit.error from None
    if isinstance(found, Refusal):
        error = found.quoted(choice.line).told()
        if choice.fixed:
            error.add_note(
                f"The hints {', '.join(choice.fixed)} are for products: without them, the kernel may run by register tiles."
            )
        raise error
    refused = str(found.refusals[0].quoted(choice.line)) if isinstance(found.made, CompiledTiles) else None
    return CompiledKernel(found.made, refused)
