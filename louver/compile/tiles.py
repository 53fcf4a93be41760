"""The pipeline of register tiles: tile IR to PTX for any kernel, its passes named in order.

What warpgroup products cannot do comes this way: small tiles, several dots, operands changed on their way to a dot, reductions,
branches, atomic sums. Every tile lies in registers, where its encoding says.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type, IndexType, IntegerType, ModuleOp
from xdsl.ir import Attribute
from xdsl.transforms.common_subexpression_elimination import cse

from louver.compile.canonical.across import turn_across
from louver.compile.canonical.canonicalize import drop_assumptions
from louver.compile.canonical.count_loops import count_loops
from louver.compile.canonical.fold_sums import fold_sums
from louver.compile.canonical.host_descriptors import make_host_descriptors
from louver.compile.canonical.join_choices import join_choices
from louver.compile.canonical.join_equal_integers import join_equal_integers
from louver.compile.canonical.propagate_sparsity import encoding_of, propagate_sparsity
from louver.compile.canonical.shape_loads import shape_loads
from louver.compile.conditions import conditions
from louver.compile.decompose.decompose_sparse_tensors import decompose_sparse_tensors
from louver.compile.decompose.dense_views import read_dense_views
from louver.compile.decompose.describe_sparse_tiles import describe_sparse_tiles
from louver.compile.decompose.exact_dots import exact_dots
from louver.compile.decompose.expand_blocks import expand_blocks
from louver.compile.decompose.multiply_kept import multiply_kept
from louver.compile.decompose.sparse_views import read_views
from louver.compile.dump import Dump
from louver.compile.lower.tiles import lower_tiles, place_shared
from louver.compile.lower.tiles.shared_memory import exchange_bytes
from louver.compile.plan.encode import assign_encodings, choose_warps
from louver.compile.plan.encode.exchange_plan import Means
from louver.compile.plan.encode.unit import held_sums
from louver.compile.plan.feeds.chunks import find_chunks
from louver.compile.plan.feeds.describe_boxes import describe_boxes, used_boxes
from louver.compile.plan.feeds.hoist_invariants import hoist_invariants
from louver.compile.plan.feeds.make_ahead import make_ahead
from louver.compile.plan.feeds.prefetch_loads import prefetch_loads
from louver.compile.plan.feeds.ring_copies import MOST_SLOTS, ring_copies
from louver.compile.plan.feeds.sink_conversions import sink_conversions
from louver.compile.plan.feeds.split_addresses import split_addresses
from louver.compile.plan.feeds.steps_ahead import Feeds
from louver.compile.signature import RESERVED
from louver.compile.tile_signature import ArgumentParameter, BoxParameter, ParameterType, Part, TileSignature
from louver.ir.refusal import unsupported
from louver.ir.tile import DescriptorType, DotOp, FuncOp, PointerType, element_name
from louver.ir.tile.aliases import text_with_aliases
from louver.ir.tile.multiples import has_known_addresses, multiples_of
from louver.isa.instruction import LANES
from louver.isa.targets import Target, target
from louver.ptx.module import Kernel, Module
from louver.ptx.printer import print_module

TileStage = Literal["tile", "decomposed", "encoded", "ptx"]
"""Stages that print, in order."""

MAX_WARPS = 32
"""Warps of a CTA, at most."""


OTHER_REGISTERS = 64
"""Registers of a thread beside sums: addresses, loads a step ahead."""

SM_WARPS = 16
"""Warps that share an SM, at most: where there are more, copies are too few steps ahead."""

CTA_SHARED_BYTES = 1024
"""Shared memory that the system takes of each CTA (CUDA C++ Programming Guide, compute capability 8 and newer)."""

ARRAY_ALIGNMENT = 16
"""What the addresses of the arrays of a sparse tensor are multiples of."""


@dataclass(frozen=True, slots=True)
class CompiledTiles:
    """A kernel at every stage. tile: as the frontend has it. decomposed: without sparse types. encoded: with registers in types.

    dense: why dots of sparse tiles are dense products, one text for each. boxes: whether bulk copies were allowed. ctas: that were said to
    share an SM.
    """

    target: Target
    tile: ModuleOp
    decomposed: ModuleOp
    encoded: ModuleOp
    module: Module
    ptx: str
    signature: TileSignature
    dense: tuple[str, ...] = ()
    boxes: bool = True
    ctas: int | None = None

    @property
    def kernel(self) -> Kernel:
        """The kernel, as the emulator runs it."""
        return self.module.kernels[0]

    @property
    def ctas_by_shared(self) -> int:
        """How many CTAs share an SM at most for their shared memory."""
        whole = self.target.max_shared_bytes + CTA_SHARED_BYTES
        return whole // (self.kernel.dynamic_shared + CTA_SHARED_BYTES)

    def with_ctas(self, count: int) -> CompiledTiles:
        """The same for so many CTAs on an SM at once: the assembler gives each thread no more registers than these leave it."""
        module = Module(self.module.target, [replace(self.kernel, min_ctas=count)])
        return replace(self, module=module, ptx=print_module(module))

    def text(self, stage: TileStage) -> str:
        """What a stage prints."""
        match stage:
            case "tile":
                return str(self.tile) + "\n"
            case "decomposed":
                return str(self.decomposed) + "\n"
            case "encoded":
                return text_with_aliases(self.encoded) + "\n"
            case "ptx":
                return self.ptx


PASSES = (
    "count-loops",
    "shape-loads",
    "fold-sums",
    "propagate-sparsity",
    "drop-assumptions",
    "join-equal-integers",
    "make-host-descriptors",
    "turn-across",
    "describe-sparse-tiles",
    "decompose-sparse-tensors",
    "multiply-kept",
    "expand-blocks",
    "exact-dots",
    "eliminate-common-subexpressions",
    "join-choices",
    "describe-boxes",
    "split-addresses",
    "find-chunks",
    "assign-encodings",
    "hoist-invariants",
    "sink-conversions",
    "make-ahead",
    "prefetch-loads",
    "ring-copies",
    "lower-tiles",
)
"""Every pass, in order; `LOUVER_DUMP` has each write what it made, its name behind "tiles"."""


def compile_tiles(
    tile_ir: ModuleOp,
    target_name: str = "sm_90a",
    *,
    warps: int | None = None,
    boxes: bool = True,
    ctas: int | None = None,
) -> CompiledTiles:
    """Tile IR to PTX, by `PASSES`.

    warps: of a CTA, a power of two; None leaves it to the kernel's dots. boxes: whether bulk copies may bring tiles.
    ctas: of a launch that share an SM at most; None for as many as registers let fit. Raises UnsupportedKernelError, with operation and source
    line, for what cannot be lowered, and ValueError for another number of warps; nothing is assembled here.
    """
    machine = target(target_name)
    if warps is not None and (not 1 <= warps <= MAX_WARPS or warps & (warps - 1)):
        raise ValueError(f"a kernel has a power of two of warps, 1 to {MAX_WARPS}, got {warps}")
    dump = Dump.of(tile_ir, PASSES, "tiles-")
    dense = tile_ir.clone()
    count_loops(dense)
    dump.write("count-loops", dense)
    shape_loads(dense)
    dump.write("shape-loads", dense)
    if has_known_addresses(_kernel(dense)):
        fold_sums(dense)
    dump.write("fold-sums", dense)
    propagate_sparsity(dense)
    dump.write("propagate-sparsity", dense)
    drop_assumptions(dense)
    dump.write("drop-assumptions", dense)
    join_equal_integers(dense)
    dump.write("join-equal-integers", dense)
    groups = argument_groups(_kernel(dense))
    make_host_descriptors(dense)
    dump.write("make-host-descriptors", dense)
    turn_across(dense)
    dump.write("turn-across", dense)
    dense_views = read_dense_views(_kernel(dense))
    describe_sparse_tiles(dense)
    dense.verify()
    dump.write("describe-sparse-tiles", dense)
    parameters = read_parameters(_kernel(dense), groups)
    views = read_views(_kernel(dense))
    decomposed = decompose_sparse_tensors(dense, whole_rows=True)
    taken = conditions(_kernel(decomposed))
    dump.write("decompose-sparse-tensors", decomposed)
    multiplied = multiply_kept(_kernel(decomposed))
    decomposed.verify()
    dump.write("multiply-kept", decomposed)
    for index, argument in enumerate(_kernel(decomposed).body.block.args):
        if argument in multiplied.layouts:
            parameters[index] = replace(parameters[index], element=element_name(multiplied.layouts[argument]))
    plain = expand_blocks(decomposed)
    dump.write("expand-blocks", plain)
    exact_dots(plain)
    dump.write("exact-dots", plain)
    cse(plain)
    dump.write("eliminate-common-subexpressions", plain)
    join_choices(plain)
    dump.write("join-choices", plain)
    maps = describe_boxes(_kernel(plain), parameters) if boxes and machine.bulk_copies else ()
    plain.verify()
    dump.write("describe-boxes", plain)
    split_addresses(plain)
    dump.write("split-addresses", plain)
    if has_known_addresses(_kernel(plain)):
        find_chunks(_kernel(plain), [*(each.multiple for each in parameters), *(1 for _ in maps)])
    dump.write("find-chunks", plain)
    count = choose_warps(_kernel(plain), warpgroups=machine.has("wgmma.sp")) if warps is None else warps
    encoded, module, maps = _lowered(plain, (parameters, maps), count, machine, dump, ctas)
    ptx = print_module(module)
    dump.write("lower-tiles", ptx)
    kernel = module.kernels[0]
    signature = TileSignature(
        kernel.name,
        tuple(parameters),
        kernel.threads,
        kernel.dynamic_shared,
        views,
        dense_views,
        taken.reaches,
        taken.multiples,
        taken.rows_apart,
        maps,
    )
    return CompiledTiles(
        machine, tile_ir, decomposed, encoded, module, ptx, signature, dense=multiplied.dense, boxes=boxes, ctas=ctas
    )


Parameters: TypeAlias = tuple[Sequence[ArgumentParameter], Sequence[BoxParameter]]
"""Of arguments, and of the boxes behind them."""

_FEEDS: tuple[tuple[bool, Feeds, int], ...] = (
    *((True, "any", slots) for slots in (MOST_SLOTS, 4, 3, 2)),
    *((True, "boxes", slots) for slots in (MOST_SLOTS, 4, 3, 2)),
    (True, "any", 0),
    (False, "any", 0),
)
"""Ways of operands, best first: whether they go through shared memory, which come by a ring, and its slots."""


def _lowered(
    plain: ModuleOp, parameters: Parameters, warps: int, machine: Target, dump: Dump, ctas: int | None
) -> tuple[ModuleOp, Module, tuple[BoxParameter, ...]]:
    """The kernel with encodings, and as PTX, with the boxes that it copies: the first way of operands that is possible.

    Operands of dots are copied to shared memory, into as many slots as there is room for, else brought there by way of registers, and
    last not brought there at all.
    """
    arguments, boxes = parameters
    rooms_of_rings = _ring_rooms(_kernel(plain), warps, machine, ctas)
    for staged, feeds, slots in _FEEDS:
        if feeds == "boxes" and not boxes:
            continue
        encoded = _encoded(plain, warps, machine, dump, rooms_of_rings, staged=staged, feeds=feeds, slots=slots)
        used = used_boxes(_kernel(encoded), boxes)
        rooms = place_shared(_kernel(encoded), machine)
        if rooms.bytes <= machine.max_shared_bytes:
            return encoded, lower_tiles(_kernel(encoded), [*arguments, *used], warps, machine, rooms), used
    raise AssertionError("a kernel without copies and staged tiles has room")


def _encoded(
    plain: ModuleOp,
    warps: int,
    machine: Target,
    dump: Dump,
    rooms: Sequence[int],
    *,
    staged: bool,
    feeds: Feeds,
    slots: int,
) -> ModuleOp:
    """With an encoding for each tile. rooms: for rings. staged: whether operands of dots go through shared memory. slots: of copies that bring them."""
    # Elements that are moved one by one wait in a register each, and leave none for what could wait there for a loop.
    wide = staged and has_known_addresses(_kernel(plain))
    encoded = assign_encodings(
        plain, warps, staged=staged, warpgroups=machine.has("wgmma.sp"), copied=wide and slots > 0
    )
    dump.write("assign-encodings", encoded)
    if wide:
        hoist_invariants(encoded)
    dump.write("hoist-invariants", encoded)
    sink_conversions(encoded)
    dump.write("sink-conversions", encoded)
    if wide and slots:
        make_ahead(encoded, feeds)
    dump.write("make-ahead", encoded)
    if wide:
        prefetch_loads(encoded, warps, rings=feeds if slots else None)
    dump.write("prefetch-loads", encoded)
    if wide and slots:
        exchanged = functools.partial(exchange_bytes, means=Means.of(machine))
        ring_copies(encoded, rooms, exchanged, slots, feeds)
    dump.write("ring-copies", encoded)
    return encoded


def _ring_rooms(function: FuncOp, warps: int, machine: Target, ctas: int | None) -> tuple[int, ...]:
    """Bytes of shared memory for rings, best first: shared by as many CTAs as registers and warps let fit an SM, then by fewer.

    ctas: how many of a launch share an SM at most; None for any number.
    """
    sums = sum(held_sums(op) for op in function.body.walk() if isinstance(op, DotOp))
    most = min(machine.registers_per_sm // (sums + OTHER_REGISTERS * LANES * warps), SM_WARPS // warps)
    most = most if ctas is None else min(most, ctas)
    whole = machine.max_shared_bytes + CTA_SHARED_BYTES
    return tuple(whole // ctas - CTA_SHARED_BYTES for ctas in range(max(1, most), 0, -1))


def _kernel(module: ModuleOp) -> FuncOp:
    kernels = [op for op in module.body.ops if isinstance(op, FuncOp) and op.is_public]
    if len(kernels) != 1:
        raise ValueError(f"a module holds one kernel, got {len(kernels)}: compile one kernel at a time")
    return kernels[0]


Group = tuple[str, Part, int | None]
"""What an argument is: of which argument of the user's, which part, and of which dimension."""


_SIZES: tuple[Part, ...] = ("size", "stride")


def argument_groups(function: FuncOp) -> list[Group]:
    """Each argument of a kernel, before make-host-descriptors: a descriptor is followed by its sizes and strides."""
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
    """The parameters of the kernel that decompose-sparse-tensors makes of `function`, which has its sparse types still."""
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
