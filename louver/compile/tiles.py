"""The pipeline of register tiles: an ordered list of passes that lowers any kernel from tile IR to PTX.

It compiles the kernels that are not warpgroup products. Examples are small tiles, several dots, operands that change
before a dot, reductions, branches and atomic sums. Every tile is in registers. Its encoding says which lane and
register hold which element.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type, IndexType, IntegerType, ModuleOp
from xdsl.ir import Attribute
from xdsl.transforms.common_subexpression_elimination import cse

from louver.compile.canonical.canonicalize import (
    COUNT_LOOPS,
    DROP_ASSUMPTIONS,
    JOIN_EQUAL_INTEGERS,
    MAKE_HOST_DESCRIPTORS,
    PROPAGATE_SPARSITY,
    TURN_ACROSS,
)
from louver.compile.canonical.fold_sums import fold_sums
from louver.compile.canonical.join_choices import join_choices
from louver.compile.canonical.propagate_sparsity import encoding_of, marked_sparse
from louver.compile.canonical.shape_loads import shape_loads
from louver.compile.condition_attributes import conditions
from louver.compile.decompose.address_sparse_tiles import address_sparse_tiles
from louver.compile.decompose.decompose_sparse_tensors import decompose_sparse_tensors
from louver.compile.decompose.dense_views import read_dense_views
from louver.compile.decompose.describe_sparse_tiles import describe_sparse_tiles
from louver.compile.decompose.expand_blocks import expand_blocks
from louver.compile.decompose.multiply_kept import multiply_kept
from louver.compile.decompose.sparse_views import read_views
from louver.compile.dump import Dump, Watch
from louver.compile.lower.tiles import lower_tiles, place_shared
from louver.compile.lower.tiles.rotate import rotate_loops
from louver.compile.lower.tiles.shared_memory import shared_peak
from louver.compile.lower.tiles.state import Rooms
from louver.compile.passes import COPY, Pass, State, names, on_module, run_passes
from louver.compile.plan.encode import assign_encodings, choose_warps
from louver.compile.plan.encode.exchange_plan import Means
from louver.compile.plan.encode.live_sums import most_sums
from louver.compile.plan.feeds.chunks import find_chunks
from louver.compile.plan.feeds.describe_boxes import describe_boxes, used_boxes
from louver.compile.plan.feeds.hoist_invariants import hoist_invariants
from louver.compile.plan.feeds.make_ahead import make_ahead
from louver.compile.plan.feeds.prefetch_loads import prefetch_loads
from louver.compile.plan.feeds.ring_copies import ring_copies
from louver.compile.plan.feeds.sink_conversions import sink_conversions
from louver.compile.plan.feeds.split_addresses import split_addresses
from louver.compile.plan.register_tiles import MOST_SLOTS, OTHER_REGISTERS, ctas_of
from louver.compile.rewrite.join_remainders import join_remainders
from louver.compile.signature import (
    RESERVED,
    ArgumentParameter,
    BoxParameter,
    ParameterType,
    Part,
    Signature,
    with_tails,
)
from louver.ir.conditions import NO_CONDITIONS, Conditions, DenseView, SparseView
from louver.ir.refusal import UnsupportedKernelError, unsupported
from louver.ir.tile import DescriptorType, FuncOp, PointerType, element_name
from louver.ir.tile.aliases import text_with_aliases
from louver.ir.tile.multiples import has_known_addresses, multiples_of
from louver.isa.instruction import LANES
from louver.isa.targets import CTA_SHARED_BYTES, Target, target
from louver.ptx.module import Kernel, Module
from louver.ptx.printer import min_ctas_line, print_module

TileLevel = Literal["tile", "decomposed", "encoded", "ptx"]
"""Levels that can be printed, in the order of the pipeline."""

MAX_WARPS = 32
"""The largest number of warps of a CTA."""

ARRAY_ALIGNMENT = 16
"""The alignment of the arrays of a sparse tensor, in bytes."""


@dataclass(frozen=True, slots=True)
class CompiledTiles:
    """A kernel at every level.

    tile: the output of the frontend.
    decomposed: without sparse types.
    encoded: with an encoding in the type of each tile.
    checked: the facts that a launch must check.
    dense: for each dot of a sparse tile that is compiled to a dense product, the reason.
    addressed: what is told of sparse arguments whose tiles are addressed at run time.
    boxes, ctas, registers, ahead, gaps, computed: the arguments of `compile_tiles`.
    """

    target: Target
    tile: ModuleOp
    decomposed: ModuleOp
    encoded: ModuleOp
    module: Module
    ptx: str
    signature: Signature
    checked: Conditions = NO_CONDITIONS
    dense: tuple[str, ...] = ()
    boxes: bool = True
    ctas: int | None = None
    registers: int | None = None
    ahead: bool = True
    gaps: bool = False
    computed: frozenset[str] = frozenset()
    addressed: tuple[str, ...] = ()

    @property
    def kernel(self) -> Kernel:
        """The kernel, as the emulator runs it."""
        return self.module.kernels[0]

    @property
    def ctas_by_shared(self) -> int:
        """The number of CTAs that fit an SM by their shared memory."""
        return self.target.sm_shared_bytes // (self.kernel.dynamic_shared + CTA_SHARED_BYTES)

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
        match level:
            case "tile":
                return str(self.tile) + "\n"
            case "decomposed":
                return str(self.decomposed) + "\n"
            case "encoded":
                return text_with_aliases(self.encoded) + "\n"
            case "ptx":
                return self.ptx


@dataclass(frozen=True, slots=True)
class Way:
    """How operands reach dots.

    staged: they pass through shared memory.
    slots: slots of the ring that copies fill; 0 for no ring.
    """

    staged: bool
    slots: int


WAYS = (
    *(Way(True, slots) for slots in (MOST_SLOTS, 4, 3, 2, 0)),
    Way(False, 0),
)
"""Ways of operands, best first. Every kernel fits shared memory with the last one."""


@dataclass(slots=True)
class TilesState(State):
    """A kernel of register tiles between two passes, and the results of the passes that ran.

    warps: warps of a CTA; 0 until `choose-warps` runs.
    boxes: whether bulk copies may bring tiles.
    ctas: the largest number of CTAs of a launch on an SM; None for any number.
    registers: registers of a thread; None where they are not known yet.
    ahead: whether operands may be computed or loaded a step ahead of their products.
    gaps: whether rows of sparse tensors may have gaps.
    computed: sparse arguments whose tiles are addressed at run time.
    pieces: for each of them, the bytes of values that are neighbours.
    undescribed: why its tiles cannot be described.
    way: how operands reach dots.
    arguments: the origin of each argument.
    parameters: parameters of the launch.
    views, dense_views: views of sparse and of dense tensors that the launch checks.
    dense: why dots of sparse tiles are dense products.
    maps: tensor maps that box copies need.
    ring_rooms: bytes of shared memory that rings may take, best first.
    """

    target: Target
    warps: int
    boxes: bool
    ctas: int | None
    registers: int | None = None
    ahead: bool = True
    gaps: bool = False
    computed: frozenset[str] = frozenset()
    pieces: Mapping[str, int] = field(default_factory=dict[str, int])
    undescribed: str | None = None
    way: Way = WAYS[0]
    arguments: Sequence[Group] = ()
    parameters: tuple[ArgumentParameter, ...] = ()
    views: tuple[SparseView, ...] = ()
    dense_views: tuple[DenseView, ...] = ()
    dense: tuple[str, ...] = ()
    maps: tuple[BoxParameter, ...] = ()
    ring_rooms: tuple[int, ...] = ()
    rooms: Rooms = field(init=False)
    lowered: Module = field(init=False)
    ptx: str = field(init=False)

    @property
    def wide(self) -> bool:
        """Whether neighbouring elements are moved together.

        An element that is moved alone takes a whole register. Then no registers remain for values that could stay there
        during a loop.
        """
        return self.way.staged and has_known_addresses(self.kernel)


def _read_arguments(state: TilesState) -> object:
    """read-arguments: records the arguments as the user passes them."""
    state.arguments = argument_groups(state.kernel)
    return state.arguments


def _read_parameters(state: TilesState) -> object:
    """read-parameters: records the parameters of a launch, and the sizes and strides that the kernel uses."""
    state.parameters = tuple(read_parameters(state.kernel, state.arguments))
    state.views, state.dense_views = read_views(state.kernel), read_dense_views(state.kernel)
    return state.parameters, state.views, state.dense_views


def _address_sparse_tiles(state: TilesState) -> None:
    found_at, groups = address_sparse_tiles(state.kernel, state.computed), iter(state.arguments)
    state.pieces = found_at.pieces
    found: list[Group] = []
    for argument, name in state.kernel.argument_names.items():
        part: Part = "address" if isinstance(argument.type, PointerType) else "value"
        found.append((name, part, None) if name in found_at.added else next(groups))
    state.arguments = found


def _decompose(state: TilesState) -> None:
    state.module = decompose_sparse_tensors(state.module, whole_rows=not state.gaps)


def _multiply_kept(state: TilesState) -> None:
    multiplied = multiply_kept(state.kernel)
    state.dense = multiplied.dense
    layouts = [multiplied.layouts.get(argument) for argument in state.kernel.body.block.args]
    state.parameters = tuple(
        each if layout is None else replace(each, element=element_name(layout))
        for each, layout in zip(state.parameters, layouts, strict=True)
    )


def _expand_blocks(state: TilesState) -> None:
    state.module = expand_blocks(state.module)


def _describe_boxes(state: TilesState) -> None:
    if state.boxes and state.target.bulk_copies:
        state.maps = describe_boxes(state.kernel, state.parameters)


def _find_chunks(state: TilesState) -> None:
    if has_known_addresses(state.kernel):
        find_chunks(state.kernel, [*(each.multiple for each in state.parameters), *(1 for _ in state.maps)])


def _choose_warps(state: TilesState) -> object:
    """choose-warps: chooses the warps of a CTA, and the shared memory that rings may take."""
    state.warps = state.warps or choose_warps(state.kernel, warpgroups=state.target.has("wgmma.sp"))
    state.ring_rooms = _ring_rooms(state)
    return state.warps, state.ring_rooms


def _ring_rooms(state: TilesState) -> tuple[int, ...]:
    """Bytes of shared memory for rings, best first: for as many CTAs as fit an SM by registers and warps, then for
    fewer.
    """
    machine, threads = state.target, LANES * state.warps
    guess = most_sums(state.kernel) // threads + OTHER_REGISTERS
    most = ctas_of(machine, state.registers or guess, threads, state.ctas)
    return tuple(machine.shared_bytes(ctas) for ctas in range(max(1, most), 0, -1))


def _assign_encodings(state: TilesState) -> None:
    way, warpgroups = state.way, state.target.has("wgmma.sp")
    copied = state.wide and way.slots > 0
    state.module = assign_encodings(
        state.module,
        state.warps,
        registers=state.target.registers_per_sm,
        staged=way.staged,
        warpgroups=warpgroups,
        copied=copied,
    )


def _hoist_invariants(state: TilesState) -> None:
    if state.wide:
        hoist_invariants(state.module)


def _make_ahead(state: TilesState) -> None:
    if state.wide and state.way.slots and state.ahead:
        make_ahead(state.module)


def _prefetch_loads(state: TilesState) -> None:
    if state.wide:
        prefetch_loads(state.module, state.warps, rings=state.way.slots > 0)


def _ring_copies(state: TilesState) -> None:
    if state.wide and state.way.slots:
        peak_of = functools.partial(shared_peak, means=Means.of(state.target))
        ring_copies(state.module, state.ring_rooms, peak_of, state.way.slots)


def _drop_boxes(state: TilesState) -> None:
    """drop-boxes: removes the descriptors of boxes that no ring copies."""
    state.maps = used_boxes(state.kernel, state.maps)


def _place_shared(state: TilesState) -> object:
    """place-shared: gives tiles and exchanges their places in shared memory."""
    state.rooms = place_shared(state.kernel, state.target)
    return state.rooms


def _lower(state: TilesState) -> object:
    parameters = [*state.parameters, *state.maps]
    state.lowered = lower_tiles(state.kernel, parameters, state.warps, state.target, state.rooms)
    if state.ahead:
        rotate_loops(state.lowered.kernels[0])
    state.ptx = print_module(state.lowered)
    return state.ptx


def _eliminate(state: TilesState) -> None:
    """eliminate-common-subexpressions: computes equal values once (xDSL's pass)."""
    cse(state.module)


DECOMPOSE: tuple[Pass[TilesState], ...] = (
    COPY,
    COUNT_LOOPS,
    on_module(shape_loads),
    on_module(fold_sums),
    PROPAGATE_SPARSITY,
    DROP_ASSUMPTIONS,
    JOIN_EQUAL_INTEGERS,
    Pass("read-arguments", _read_arguments),
    MAKE_HOST_DESCRIPTORS,
    Pass("address-sparse-tiles", _address_sparse_tiles),
    TURN_ACROSS,
    on_module(describe_sparse_tiles),
    Pass("read-parameters", _read_parameters),
    Pass("decompose-sparse-tensors", _decompose),
    Pass("multiply-kept", _multiply_kept),
)
"""Passes that lower to tile IR without sparse types."""

DESCRIBE: tuple[Pass[TilesState], ...] = (
    Pass("expand-blocks", _expand_blocks),
    Pass("eliminate-common-subexpressions", _eliminate),
    on_module(join_choices),
    Pass("describe-boxes", _describe_boxes),
    on_module(split_addresses),
    Pass("find-chunks", _find_chunks),
    on_module(join_remainders),
    Pass("choose-warps", _choose_warps),
)
"""Passes that lower to tile IR with pointers and masks. Each load then says how its tile may be moved."""

ENCODE: tuple[Pass[TilesState], ...] = (
    Pass("assign-encodings", _assign_encodings),
    Pass("hoist-invariants", _hoist_invariants),
    on_module(sink_conversions),
    Pass("make-ahead", _make_ahead),
    Pass("prefetch-loads", _prefetch_loads),
    Pass("ring-copies", _ring_copies),
    Pass("drop-boxes", _drop_boxes),
    Pass("place-shared", _place_shared),
)
"""Passes that give each tile an encoding, and move operands by one of `WAYS`."""

LOWER: tuple[Pass[TilesState], ...] = (Pass("lower-tiles", _lower),)
"""The pass that lowers to PTX."""

PASSES = (*DECOMPOSE, *DESCRIBE, *ENCODE, *LOWER)
"""All passes, in order. With `LOUVER_DUMP`, each writes its result to a file with "tiles" before the name of the pass.
"""


def compile_tiles(
    tile_ir: ModuleOp,
    target_name: str = "sm_90a",
    *,
    warps: int | None = None,
    boxes: bool = True,
    ctas: int | None = None,
    registers: int | None = None,
    ahead: bool = True,
    gaps: bool = False,
    computed: frozenset[str] | None = None,
    watch: Watch | None = None,
) -> CompiledTiles:
    """Lowers tile IR to PTX by `PASSES`. Operands use the first of `WAYS` with which the kernel fits shared memory.

    warps: warps of a CTA, a power of two; None to choose them from the kernel's dots.
    boxes: whether bulk copies may bring tiles.
    ctas: the largest number of CTAs of a launch on an SM; None for as many as fit by their registers.
    registers: registers of a thread; None where they are not known. Rings leave shared memory for all CTAs that fit by
    them.
    ahead: whether operands may be computed a step ahead, into a second slot, or loaded ahead in a rotated loop.
    gaps: whether rows of a sparse tensor's values may have gaps. Its sizes in the kernel are then those of the tensor, which
        give the length of its metadata.
    computed: sparse arguments whose tiles are addressed at run time; None for those whose tiles cannot be described.
    watch: receives the result of each pass; by default the dump that the environment asks for.

    Raises UnsupportedKernelError, with operation and source line, for an operation that cannot be lowered. Raises
    ValueError for any other number of warps. The PTX is not assembled here.
    """
    machine = target(target_name)
    if warps is not None and (not 1 <= warps <= MAX_WARPS or warps & (warps - 1)):
        raise ValueError(f"a kernel has a power of two of warps, 1 to {MAX_WARPS}, got {warps}")
    watch = watch or Dump.of(tile_ir, names(PASSES), "tiles-")
    plain = TilesState(tile_ir, machine, warps or 0, boxes, ctas, registers, ahead, gaps, computed or frozenset())
    plain = _decomposed(plain, watch, fixed=computed is not None)
    decomposed = plain.module
    run_passes(DESCRIBE, plain, watch)
    for way in WAYS:
        state = replace(plain, way=way)
        run_passes(ENCODE, state, watch)
        if state.rooms.bytes <= machine.max_shared_bytes:
            break
    else:
        raise AssertionError("a kernel without copies and staged tiles has room")
    run_passes(LOWER, state, watch)
    kernel = state.lowered.kernels[0]
    parameters = with_tails((*state.parameters, *state.maps))
    signature = Signature(kernel.name, parameters, kernel.threads, kernel.dynamic_shared)
    taken = replace(conditions(state.kernel), views=state.views, dense_views=state.dense_views)
    made = CompiledTiles(
        machine, tile_ir, decomposed, state.module, state.lowered, state.ptx, signature, taken, state.dense
    )
    return replace(
        made,
        boxes=boxes,
        ctas=ctas,
        registers=registers,
        ahead=ahead,
        gaps=gaps,
        computed=plain.computed,
        addressed=_told_addresses(plain),
    )


def _decomposed(state: TilesState, watch: Watch, *, fixed: bool) -> TilesState:
    """The kernel without sparse types. fixed: whether the state names the arguments whose tiles are addressed at run time."""
    found = replace(state)
    try:
        run_passes(DECOMPOSE, found, watch)
        return found
    except UnsupportedKernelError as error:
        sparse = frozenset(marked_sparse(state.kernel))
        if fixed or state.gaps or not sparse:
            raise
        refusal = error
    computed = frozenset(
        each for each in sparse if len(sparse) == 1 or not _decomposes(replace(state, computed=sparse - {each}))
    )
    found = replace(state, computed=computed or sparse, undescribed=str(refusal))
    try:
        run_passes(DECOMPOSE, found, watch)
        return found
    except UnsupportedKernelError as error:
        refusal.add_note(f"At an address that is computed: {error}")
        raise refusal from None


def _told_addresses(state: TilesState) -> tuple[str, ...]:
    """A sentence for each argument whose tiles are addressed at run time."""
    why = "" if state.undescribed is None else f": {state.undescribed.splitlines()[0]}"
    return tuple(
        f"{name} is read at computed addresses, in pieces of {size} bytes of values{why}"
        for name, size in state.pieces.items()
    )


def _decomposes(state: TilesState) -> bool:
    try:
        run_passes(DECOMPOSE, state)
        return True
    except UnsupportedKernelError:
        return False


Group = tuple[str, Part, int | None]
"""The origin of an argument: the user's argument, the part of it, and the dimension of that part."""


_SIZES: tuple[Part, ...] = ("size", "stride")


def argument_groups(function: FuncOp) -> list[Group]:
    """The origin of each argument of a kernel, before make-host-descriptors.

    A descriptor's sizes and strides follow it.
    """
    found: list[Group] = []
    for index, (argument, name) in enumerate(function.argument_names.items()):
        if len(found) > index:
            continue
        if isinstance(argument.type, DescriptorType):
            found.append((name, "address", None))
            for part in _SIZES:
                for dimension in range(argument.type.block.get_num_dims()):
                    found.append((name, part, dimension))
        elif isinstance(argument.type, PointerType):
            found.append((name, "address", None))
        else:
            found.append((name, "value", None))
    return found


def read_parameters(function: FuncOp, groups: Sequence[Group]) -> list[ArgumentParameter]:
    """The parameters of `function` after decompose-sparse-tensors. Here it still has sparse types."""
    found: list[ArgumentParameter] = []
    taken: set[str] = set(RESERVED)

    def add(name: str, group: Group, part: Part, type_: ParameterType, element: str, multiple: int) -> None:
        safe = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
        safe = safe if safe[:1].isalpha() else f"arg_{safe}"
        while safe in taken:
            safe += "_"
        taken.add(safe)
        found.append(ArgumentParameter(safe, group[0], part, group[2], type_, element, multiple))

    multiples = multiples_of(function)
    for index, ((argument, name), group) in enumerate(zip(function.argument_names.items(), groups, strict=True)):
        if not isinstance(argument.type, PointerType):
            add(name, group, group[1], _number_type(argument.type, function), str(argument.type), multiples[index])
            continue
        element = str(argument.type.pointee)
        if encoding_of(argument) is None:
            add(name, group, "address", "u64", element, multiples[index])
        else:
            add(name, group, "values", "u64", element, ARRAY_ALIGNMENT)
            add(f"{name}_metadata", group, "metadata", "u64", element_name(argument.type.pointee), ARRAY_ALIGNMENT)
    return found


def _number_type(type_: Attribute, function: FuncOp) -> ParameterType:
    match type_:
        case IntegerType() if type_.width.data in (1, 8, 16, 32):
            return "u32"
        case IntegerType() | IndexType():
            return "u64"
        case Float32Type() | Float16Type() | BFloat16Type():
            return "f32"
        case _:
            raise unsupported(f"arguments are pointers, integers, f32, f16 and bf16, not {type_}", function)
