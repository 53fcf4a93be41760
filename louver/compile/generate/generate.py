"""Generates schedule IR from a product nest and a schedule. One generator serves all schedules.

Warpgroup 0 is the producer: one of its threads fills the ring by bulk copies. The other warpgroups multiply
(`multiply`) and store. Without specialization there is only one warpgroup, and one of its threads begins the copies of
each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import ArrayAttr, IntAttr, ModuleOp, StringAttr, UnitAttr, i32
from xdsl.ir import Attribute, Block, Region, SSAValue

from louver.compile.generate.copies import Edge, Operand, copy_sparse, copy_stage, edge_of, expect, stage_metadata_bytes
from louver.compile.generate.epilogue import build_epilogue, epilogue_parameters
from louver.compile.generate.gather import fill_stage, first_rows, gathered_parameters, require_gatherable
from louver.compile.generate.generation import Generation, place
from louver.compile.generate.multiply import begin, constant, loop, multiply, require_multiply_add
from louver.compile.plan.layout import dense_layout, output_layout, require_picks, values_layout
from louver.compile.plan.schedule import Schedule, check_registers, lists_of, register_split, steps_of
from louver.compile.signature import RANGES, TAIL_MAP, kernel_name, parameter_name
from louver.formats.dtypes import multiplied_as
from louver.formats.pattern import has_kernels, without_kernels
from louver.ir.building import building
from louver.ir.product import Batch, ProductNest, require_rows, unit_of
from louver.ir.sched import ops, staged
from louver.ir.sched.types import MapType, PointerType, SizeType, WgmmaAttr
from louver.ir.tile.elements import element_attribute
from louver.isa.rule import RuleError
from louver.isa.targets import Target
from louver.isa.wgmma import Wgmma


def generate(nest: ProductNest, schedule: Schedule, target: Target) -> ModuleOp:
    """Schedule IR for `nest` with `schedule`. Raises ValueError if they cannot be combined.

    The tile of the schedule may differ from the tile of the kernel. With any tile, each element of the output is
    computed once, as a sum over all of K, and operands are zero beyond K.
    """
    if nest.a.index is not None and (nest.tile_m, nest.tile_n) != (schedule.tile.m, schedule.tile.n):
        raise RuleError(
            "the schedule's tile must be the kernel's where an array selects the matrix of each tile, got "
            f"{nest.tile_m}×{nest.tile_n} and {schedule.tile.m}×{schedule.tile.n}"
        )
    require_rows(nest)
    selection = nest.a.selection
    if nest.a.pattern is not None and not has_kernels("products", nest.a.pattern, nest.a.element):
        raise RuleError(without_kernels("products", nest.a.pattern, nest.a.element))
    unit = unit_of(nest.a.pattern, nest.a.element)
    steps = steps_of(nest.a.element, unit, lifted=selection.lifted)
    if schedule.tile.k not in steps:
        raise RuleError(f"tile_k of {nest.a.element} is {' or '.join(map(str, steps))}, got {schedule.tile.k}")
    if selection.indexed:
        require_gatherable(schedule)
    lists = lists_of(nest.a.pattern, schedule)
    picked = None
    if not selection.lifted and schedule.ring.metadata != "global":
        picked = require_picks(nest.a.pattern, unit, schedule)
    promoted, turned = nest.promoted is not None, nest.turns
    check_registers(schedule, nest.accumulator, target, promoted=promoted, lists=lists, unit=unit, turned=turned)
    if nest.promoted is not None and nest.promoted < schedule.tile.k:
        raise RuleError(
            f"sums are promoted once a K step at most, got {nest.promoted} columns (max_num_imprecise_acc) and tile_k "
            f"{schedule.tile.k}: promote less often, or use a smaller tile_k"
        )
    if unit == "fma":
        require_multiply_add(schedule)
    if unit == "fma" and schedule.pairs:
        raise RuleError(
            "pairs exchange sums of warpgroup products, got products of f32 on CUDA cores: use work 'ranges'"
        )
    plan = Generation(
        nest,
        schedule,
        target,
        values_layout(schedule, nest.a.element, selection),
        dense_layout(schedule, nest.b.element, "k" if nest.b.k_major or turned else "mn", picked),
        None
        if schedule.store.way == "direct"
        else output_layout(schedule, nest.store.element, transposed=nest.store.transposed, gated=nest.gated),
        None if unit == "fma" else _warpgroup_product(nest, schedule),
    )
    shared = plan.b.box[1] // 8 if plan.b.major == "k" else plan.b.copies
    if plan.shared and shared % schedule.order.cluster:
        raise RuleError(
            f"the dense tile cannot be shared by {schedule.order.cluster} CTAs: tile_n is {schedule.tile.n}"
        )
    kernel = _kernel(plan)
    place(kernel, nest.places)
    return ModuleOp([kernel])


def _warpgroup_product(nest: ProductNest, schedule: Schedule) -> Wgmma:
    return Wgmma(
        n=schedule.tile.n,
        a=multiplied_as(nest.a.element),
        b=multiplied_as(nest.b.element),
        d=nest.accumulator,
        sparse=nest.a.selection.lifted,
        transpose_b=not (nest.b.k_major or nest.turns),
    )


def _parameters(plan: Generation) -> dict[str, Attribute]:
    nest = plan.nest
    b_box = list(plan.b.box)
    # A multicast splits boxes by rows. CTAs share an MN-major tile by whole boxes.
    if plan.shared and plan.b.major == "k":
        b_box[1] //= plan.schedule.order.cluster
    types: dict[str, Attribute] = {
        "a_map": MapType.of("a", _entry_box(plan.a.box, nest.a.batch), plan.a.element_bytes, plan.a.swizzle),
    }
    if plan.gathers:
        types |= gathered_parameters(plan)
    else:
        types["b_map"] = MapType.of("b", _entry_box(b_box, nest.b.batch), plan.b.element_bytes, plan.b.swizzle)
    if plan.tails:
        types[TAIL_MAP] = types["b_map"]
    if plan.lifted or plan.staged:
        types["metadata"] = PointerType(StringAttr("metadata"), StringAttr("u32"))
    if plan.d is None:
        types["d"] = PointerType(StringAttr("d"), StringAttr(nest.store.element))
    else:
        box, adds = _entry_box(plan.d.box, nest.store.batch), nest.store.element if nest.store.add else ""
        types["d_map"] = MapType.of("d", box, plan.d.element_bytes, plan.d.swizzle, adds)
    types |= epilogue_parameters(nest.epilogue)
    for size in ("M", "N", "K", *(["kept"] if plan.indexed else [])):
        types[size] = SizeType(StringAttr(size), IntAttr(32))
    if plan.d is None:
        types["pitch"] = SizeType(StringAttr("pitch"), IntAttr(64))
    if nest.store.batch is not None:
        types["batch"] = SizeType(StringAttr("batch"), IntAttr(32))
        if plan.d is None:
            types["batch_pitch"] = SizeType(StringAttr("batch_pitch"), IntAttr(64))
    if nest.a.index is not None:
        name = parameter_name(nest.a.index.argument)
        types[name] = PointerType(StringAttr(name), StringAttr(nest.a.index.element))
        types["entries"] = SizeType(StringAttr("entries"), IntAttr(32))
    if plan.schedule.order.raster is None:
        types["raster"] = SizeType(StringAttr("raster"), IntAttr(32))
    if plan.schedule.cuts:
        types |= {name: SizeType(StringAttr(name), IntAttr(32)) for name in RANGES}
    if plan.schedule.cuts and not plan.schedule.pairs:
        types["workspace"] = PointerType(StringAttr("workspace"), StringAttr(nest.accumulator))
        types["counters"] = PointerType(StringAttr("counters"), StringAttr("u32"))
    return types


def _entry_box(box: Sequence[int], batch: Batch | None) -> list[int]:
    """The box of a copy, innermost dimension first. In a batch it has one matrix."""
    return list(box) if batch is None else [*box, 1]


def _kernel(plan: Generation) -> ops.KernelOp:
    schedule = plan.schedule
    types = _parameters(plan)
    body = Block(arg_types=list(types.values()))
    for argument, name in zip(body.args, types, strict=True):
        argument.name_hint = name
    values: dict[str, SSAValue] = dict(zip(types, body.args, strict=True))
    with building(body):
        _ring("a", schedule.ring.stages, plan.a.bytes)
        _ring("b", schedule.ring.stages, max(plan.lists, 1) * plan.b.bytes)
        if plan.blocks:
            _ring("blocks", 1, plan.blocks)
        if plan.d is not None:
            _ring("d", 1, plan.d.bytes)
        if plan.staged:
            _ring("metadata", schedule.ring.stages, stage_metadata_bytes(plan))
        for name, count in _barriers(schedule).items():
            ops.BarriersOp(properties={"sym_name": StringAttr(name), "stages": ops.i32_attr(count)})
        _roles(plan, values)
    properties: dict[str, Attribute] = {
        "sym_name": StringAttr(kernel_name(plan.nest.name, types)),
        "params": ArrayAttr([StringAttr(name) for name in types]),
        "threads": ops.i32_attr(schedule.roles.threads),
        "cluster": ops.i32_attr(schedule.cluster_ctas),
        "tile": ArrayAttr([ops.i32_attr(size) for size in (schedule.tile.m, schedule.tile.n, schedule.tile.k)]),
    }
    if plan.mma is not None:
        properties["mma"] = WgmmaAttr.of(plan.mma)
    if schedule.pairs:
        properties["pairs"] = UnitAttr()
    if schedule.occupancy.resident > 1:
        properties["resident"] = ops.i32_attr(schedule.occupancy.resident)
    if schedule.occupancy.dependent:
        properties["dependent"] = UnitAttr()
    return ops.KernelOp(properties=properties, regions=[Region(body)])


def _roles(plan: Generation, values: dict[str, SSAValue]) -> None:
    """Generate the roles.

    In a dependent kernel one thread copies stored values. Another thread waits for the earlier grids and copies the
    dense operand. If rows are gathered, all threads of one role do both.
    """
    schedule = plan.schedule
    if not schedule.roles.specialized:
        _role("consumer", 0, 1, None, _consumer(plan, values))
        return
    unit = unit_of(plan.nest.a.pattern, plan.nest.a.element)
    registers, own = register_split(
        schedule,
        plan.target,
        lists=plan.lists,
        unit=unit,
        turned=plan.nest.turns,
        batched=plan.nest.store.batch is not None,
    )
    producers: dict[str, tuple[Operand, ...]] = {"producer": ("sparse", "dense")}
    if schedule.occupancy.dependent and not plan.gathers:
        producers = {"values": ("sparse",), "dense": ("dense",)}
    for warp, (name, operands) in enumerate(producers.items()):
        _role(name, 0, 1, registers, _producer(plan, values, operands), None if plan.gathers else warp)
    _role("consumer", 1, schedule.roles.consumers, own, _consumer(plan, values))


def _barriers(schedule: Schedule) -> dict[str, int]:
    """The names of barriers, and their numbers: one for each stage, and one for each barrier of a pair."""
    names = ["full", "empty"]
    if schedule.ring.metadata == "barrier":
        names.append("metadata_full")
    if schedule.order.cluster > 1:
        names.append("invited")
    return dict.fromkeys(names, schedule.ring.stages) | (dict.fromkeys(PAIR_BARRIERS, 1) if schedule.pairs else {})


def _ring(name: str, stages: int, size: int) -> None:
    ops.RingOp(properties={"sym_name": StringAttr(name), "stages": ops.i32_attr(stages), "bytes": ops.i32_attr(size)})


def _role(name: str, first: int, warpgroups: int, registers: int | None, body: Block, warp: int | None = None) -> None:
    """Generate a role. warp: the warp of the single thread that runs it; None if whole warpgroups run it."""
    properties: dict[str, Attribute] = {
        "sym_name": StringAttr(name),
        "first": ops.i32_attr(first),
        "warpgroups": ops.i32_attr(warpgroups),
    }
    if registers is not None:
        properties["registers"] = ops.i32_attr(registers)
    if warp is not None:
        properties["single"] = UnitAttr()
    if warp:
        properties["warp"] = ops.i32_attr(warp)
    ops.RoleOp(properties=properties, regions=[Region(body)])


def _producer(plan: Generation, values: dict[str, SSAValue], operands: Sequence[Operand]) -> Block:
    role = Block()
    with building(role):
        _wait_for_grids(plan, "dense" in operands)
        tile = _tile_block(plan)
        with building(tile):
            body, count = Block(arg_types=[i32]), plan.sets if plan.gathers else 1
            edge = edge_of(plan, values, tile) if "dense" in operands else Edge()
            with building(body):
                for index in range(count):
                    if plan.gathers:
                        _gather_stage(plan, values, _origin(plan, tile), body.args[0], index)
                    else:
                        copy_stage(plan, values, _origin(plan, tile), body.args[0], edge, operands)
                    ops.AdvanceOp()
            loop(count, body, "again" if plan.gathers else None)
            if plan.gathers:
                ops.NextTileOp()
        _tiles(plan, values, tile, [_first_rows(plan, values)] if plan.gathers else [])
    return role


def _wait_for_grids(plan: Generation, reads: bool) -> None:
    """Generate the wait of a dependent kernel before a role reads data that earlier kernels may write.

    reads: whether the role reads such data directly. A walk over tiles may read an array of entries too. A role that
    waits for the dense operand before it reads such data needs no further wait.
    """
    if plan.schedule.occupancy.dependent and (reads or plan.nest.a.index is not None):
        ops.WaitGridsOp()


def _gather_stage(
    plan: Generation, values: dict[str, SSAValue], tile: Sequence[SSAValue], step: SSAValue, index: int
) -> None:
    """Generate the copies of step number `index` of a body that begins at `step`.

    One thread begins the copies of the values. All threads copy rows.
    """

    def begin() -> None:
        ops.AcquireOp(properties={"barriers": StringAttr("empty")})
        values_of = Block()
        with building(values_of):
            expect(plan)
            copy_sparse(plan, values, tile, arith.AddiOp(step, constant(index)).result if index else step)
        staged.OneThreadOp(regions=[Region(values_of)])

    fill_stage(plan, step, index, begin)


def _first_rows(plan: Generation, values: dict[str, SSAValue]) -> Region:
    block = _tile_block(plan)
    with building(block):
        first_rows(plan, values, _origin(plan, block), block.args[-1] if plan.schedule.cuts else constant(0))
    return Region(block)


def _tiles(plan: Generation, values: dict[str, SSAValue], tile: Block, ahead: list[Region]) -> None:
    properties: dict[str, Attribute] = {}
    if plan.schedule.order.raster is not None:
        properties["raster"] = ops.i32_attr(plan.schedule.order.raster)
    if plan.schedule.cuts:
        properties["ranges"] = UnitAttr()
    index = plan.nest.a.index
    numbers: list[SSAValue] = []
    if index is not None:
        properties["along"] = StringAttr(index.axis)
        numbers.append(values[parameter_name(index.argument)])
    ops.TilesOp(operands=[numbers], properties=properties, regions=[Region(tile), ahead])


def _tile_block(plan: Generation) -> Block:
    entries = plan.nest.store.batch is not None or plan.nest.a.index is not None
    names = ["m", "n", *(["entry"] if entries else []), *(["first"] if plan.schedule.cuts else [])]
    tile = Block(arg_types=[i32] * len(names))
    for argument, name in zip(tile.args, names, strict=True):
        argument.name_hint = name
    return tile


def _origin(plan: Generation, tile: Block) -> Sequence[SSAValue]:
    """The first row and column of a tile, and its entry, if it has one."""
    return tile.args[:-1] if plan.schedule.cuts else tile.args


def _consumer(plan: Generation, values: dict[str, SSAValue]) -> Block:
    role = Block()
    with building(role):
        _wait_for_grids(plan, not plan.schedule.roles.specialized)
        tile = _tile_block(plan)
        ahead = [_ahead(plan, values)] if plan.loaded else []
        with building(tile):
            multiply(plan, values, None if plan.schedule.roles.specialized else _own_copies(plan, values, tile))
            if ahead:
                ops.NextTileOp()
            if plan.schedule.pairs:
                _exchange(plan, values, _origin(plan, tile))
            elif plan.schedule.cuts:
                complete = Block()
                with building(complete):
                    _store(plan, values, _origin(plan, tile))
                ops.CombineOp(operands=[values["workspace"], values["counters"]], regions=[Region(complete)])
            else:
                _store(plan, values, tile.args)
        _tiles(plan, values, tile, ahead)
    return role


PAIR_BARRIERS = ("room", "sums")
"""The barriers of `sched.exchange`."""


def _exchange(plan: Generation, values: dict[str, SSAValue], tile: Sequence[SSAValue]) -> None:
    m, n, *entry = tile
    stored = Block(arg_types=[i32])
    with building(stored):
        _store(plan, values, [m, stored.args[0], *entry])
    room, sums = map(StringAttr, PAIR_BARRIERS)
    properties = {"rings": ArrayAttr([StringAttr("a"), StringAttr("b")]), "room": room, "sums": sums}
    ops.ExchangeOp(operands=[n], properties=properties, regions=[Region(stored)])


def _ahead(plan: Generation, values: dict[str, SSAValue]) -> Region:
    block = _tile_block(plan)
    with building(block):
        begin(values, block.args[-1] if plan.schedule.cuts else constant(0))
    return Region(block)


def _own_copies(plan: Generation, values: dict[str, SSAValue], tile: Block) -> Callable[[SSAValue], None]:
    """The copies of a warpgroup without a producer. One of its threads fills the stage at the start of a step."""
    edge = edge_of(plan, values, tile)

    def fill(step: SSAValue) -> None:
        body = Block()
        with building(body):
            copy_stage(plan, values, _origin(plan, tile), step, edge)
        staged.OneThreadOp(regions=[Region(body)])

    return fill


def _store(plan: Generation, values: dict[str, SSAValue], tile: Sequence[SSAValue]) -> None:
    m, n, *entry = tile
    own = [] if plan.nest.store.batch is None else entry
    body = Block(arg_types=[element_attribute(plan.nest.accumulator)] * (2 if plan.nest.gated else 1))
    with building(body):
        result = build_epilogue(plan.nest, body.args, values)
        ops.YieldOp(operands=[result])
    properties: dict[str, Attribute] = {"transposed": UnitAttr()} if plan.nest.store.transposed else {}
    if plan.nest.store.add:
        properties["add"] = UnitAttr()
    if plan.d is None:
        ops.StoreOp(operands=[values["d"], m, n, own], properties=properties, regions=[Region(body)])
        return
    properties |= {
        "ring": StringAttr("d"),
        "element": StringAttr(plan.nest.store.element),
        "columns": ops.i32_attr(plan.d.columns),
    }
    if plan.schedule.order.l2 == "values":
        properties["evict"] = StringAttr("first")
    ops.BulkStoreOp(operands=[values["d_map"], m, n, own], properties=properties, regions=[Region(body)])
