from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, ModuleOp, StringAttr, UnitAttr, i32
from xdsl.irdl import IRDLOperation, irdl_op_definition
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from louver.choose.configure import choose
from louver.choose.tile_shapes import TILE_N
from louver.choose.tuned import problem_of, tables
from louver.compile.check.check import check_protocol
from louver.compile.check.events import ProtocolError
from louver.compile.generate.assign import assign_shared_memory
from louver.compile.generate.generate import generate
from louver.compile.lower.products.lower_product import lower
from louver.compile.plan.nest import read_nest
from louver.compile.plan.schedule import Schedule
from louver.frontend.builder import build_tile_ir
from louver.frontend.problem import Problem, Tile
from louver.ir.sched import ops, staged
from louver.isa.targets import SM_90A
from louver.measure.tune import neighbours
from louver.ptx.printer import print_module
from support.protocol import add, assigned, drop, found, refuses, set_number
from support.work import calls

MANY = 1 << 20
PROBLEMS = {
    "f16": Problem("linear"),
    "bf16-n-major": Problem("matmul", a="bf16", b="bf16", out="bf16", b_layout="n_major"),
    "e4m3": Problem("linear", "e4m3", "e4m3", "f16", bias="row"),
    "s8": Problem("matmul", "s8", "s8", "s32"),
    "f16-sums": Problem("linear", accumulate="f16"),
    "promoted": Problem("linear", "e4m3", "e4m3", accumulate="promoted"),
    "dense": Problem("linear", pattern=None),
    "indexed": Problem("matmul", pattern="2:8@64", b_layout="n_major"),
    "indexed-and-lifted": Problem("matmul", pattern="2:8@V64", b_layout="n_major"),
    "turned": Problem("matmul", "e4m3", "e4m3", "f16", pattern="2:8@128", b_layout="n_major"),
}


def schedules(problem: Problem) -> Iterator[Schedule]:
    """All that the model chooses, and what a search tries around the choice for the widest tile."""
    for n in TILE_N:
        for aligned in (False, True):
            chosen = choose(problem, MANY, n, SM_90A, 132, aligned_output=aligned)
            yield chosen
            if n == TILE_N[-1]:
                yield from neighbours(problem, chosen, n, SM_90A, aligned=aligned)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", PROBLEMS)
def test_every_configuration_of_the_model_and_of_the_search_keeps_the_rules(name: str) -> None:
    problem = PROBLEMS[name]
    checked: set[Schedule] = set()
    for schedule in schedules(problem):
        key = schedule.changed(raster=16)
        if key in checked:
            continue
        checked.add(key)
        try:
            module = assigned(problem, schedule)
        except (ValueError, VerifyException):
            continue  # not every neighbour can be generated
        check_protocol(module)
    assert len(checked) > 10


def test_every_schedule_of_the_package_s_tables_keeps_the_rules() -> None:
    checked: set[tuple[Problem, Schedule]] = set()
    for entry in tables():
        problem = problem_of(entry.place)
        schedule = entry.usable(problem, SM_90A)
        if (problem, schedule) not in checked:
            checked.add((problem, schedule))
            check_protocol(assigned(problem, schedule))


def test_the_check_costs_as_much_for_more_stages() -> None:
    few, many = (assigned(PROBLEMS["f16"], Schedule.of(stages=stages)) for stages in (2, 4))
    # A hundred thousand calls take some ten milliseconds.
    assert calls(lambda: check_protocol(many)) < min(100_000, 1.1 * calls(lambda: check_protocol(few)))


# What is done to schedule IR, and the rule that it then breaks. Each is given the kernel.

BASE = Schedule.of(stages=4)
CLUSTER = Schedule.of(stages=4, cluster=2)
STAGE = Schedule.of(stages=4, metadata="stage")
BARRIER = Schedule.of(stages=4, metadata="barrier")
RANGES = Schedule.of(tile_n=128, stages=4, work="ranges")
PAIRS = Schedule.of(tile_n=128, stages=4, work="pairs")
ALONE = Schedule.of(tile_m=64, consumers=1, stages=1, specialized=False, in_flight=0)
DEPENDENT = Schedule.of(tile_n=128, stages=4, metadata="stage", dependent=True)
DEPENDENT_ALONE = ALONE.changed(dependent=True)


def swap_sets(kernel: ops.KernelOp) -> None:
    for op in kernel.walk():
        if isinstance(op, ops.MmaOp):
            op.set = ops.i32_attr(1 - op.set.value.data)


def refill_in_use(kernel: ops.KernelOp) -> None:
    """The set of the products in flight, before they are waited for."""
    wait = found(kernel, ops.MmaWaitOp)
    copy = next(op for op in kernel.walk() if isinstance(op, ops.LoadMetadataOp) and op.parent is wait.parent).clone()
    copy.set = found(kernel, ops.MmaOp).set
    wait.parent.insert_op_before(copy, wait)


def one_set(kernel: ops.KernelOp) -> None:
    for op in kernel.walk():
        if isinstance(op, staged.ReadMetadataOp | ops.MmaOp):
            op.set = ops.i32_attr(0)


def expect_twice(kernel: ops.KernelOp) -> None:
    op = found(kernel, ops.ExpectOp)
    op.parent.insert_op_before(op.clone(), op)


def release_twice(kernel: ops.KernelOp) -> None:
    op = found(kernel, ops.ReleaseOp)
    op.parent.insert_op_after(op.clone(), op)


def invite_first(kernel: ops.KernelOp) -> None:
    op = found(kernel, ops.InviteOp)
    op.detach()
    acquire = found(kernel, ops.AcquireOp)
    acquire.parent.insert_op_before(op, acquire)


def expect_whole_tiles(kernel: ops.KernelOp) -> None:
    for op in kernel.walk():
        if isinstance(op, ops.ExpectOp):
            op.operands = []


def copy_whole_tiles(kernel: ops.KernelOp) -> None:
    for op in kernel.walk():
        if isinstance(op, ops.BulkLoadOp) and op.rows is not None:
            op.operands = [op.map, *op.coordinates]
            op.properties["operandSegmentSizes"] = DenseArrayBase.from_list(i32, [1, len(op.operands) - 1, 0, 0])


def copy_one_whole_tile(kernel: ops.KernelOp) -> None:
    load = next(op for op in kernel.walk() if isinstance(op, ops.BulkLoadOp) and op.rows is not None)
    load.operands = [load.map, *load.coordinates]
    load.properties["operandSegmentSizes"] = DenseArrayBase.from_list(i32, [1, len(load.operands) - 1, 0, 0])


def overlap(kernel: ops.KernelOp) -> None:
    ring = next(op for op in kernel.walk() if isinstance(op, ops.RingOp) and op.sym_name.data == "b")
    ring.offset = ops.i32_attr(ring.offset.value.data - 1024)


def begin_at_zero(kernel: ops.KernelOp) -> None:
    """The first metadata of a range that begins elsewhere."""
    zero = arith.ConstantOp(IntegerAttr(0, i32))
    ahead = found(kernel, ops.TilesOp, role="consumer").ahead.block.first_op
    ahead.parent.insert_op_before(zero, ahead)
    ahead.operands[1] = zero.result


def join_early(kind: type[Any]) -> Callable[[ops.KernelOp], None]:
    """Sums of ranges, in front of the wait for the last products."""

    def change(kernel: ops.KernelOp) -> None:
        op, wait = found(kernel, kind), found(kernel, ops.MmaWaitOp, -1)
        op.detach()
        wait.parent.insert_op_before(op, wait)

    return change


def swap_barriers(kernel: ops.KernelOp) -> None:
    op = found(kernel, ops.ExchangeOp)
    op.room, op.sums = op.sums, op.room


def whole_tiles(kernel: ops.KernelOp) -> None:
    found(kernel, ops.TilesOp, role="producer").ranges = None


def wait_at_last(kernel: ops.KernelOp) -> None:
    """Of a role: for the grids before it, when it has done all else."""
    wait = found(kernel, ops.WaitGridsOp)
    role = wait.parent
    wait.detach()
    role.insert_op_after(wait, role.last_op)


def wait_elsewhere(kernel: ops.KernelOp) -> None:
    """By the thread that copies stored values: nobody learns it from its arrival alone before the copies of the other."""
    wait = found(kernel, ops.WaitGridsOp)
    wait.detach()
    tiles = found(kernel, ops.TilesOp, role="values")
    tiles.parent.insert_op_before(wait, tiles)


def begin_with(kind: type[Any]) -> Callable[[ops.KernelOp], None]:
    """The consumers' tile: before they have waited for anything."""

    def change(kernel: ops.KernelOp) -> None:
        loop = found(kernel, ops.LoopOp, role="consumer")
        loop.parent.insert_op_before(found(kernel, kind).clone(), loop)

    return change


BEFORE = "only when it knows that the grids before it have ended"

MUTATIONS: dict[str, tuple[Schedule, Callable[[ops.KernelOp], None], str]] = {
    "no wait for a stage": (BASE, drop(ops.WaitOp), "reads a stage only after its bytes have arrived, got stage 0"),
    "no acquire": (BASE, drop(ops.AcquireOp), "only when it knows that the one before has ended|has been waited for"),
    "no release": (
        BASE,
        drop(ops.ReleaseOp, 1),
        "every wait ends, got ones that do not, for phase . of stage . of @empty",
    ),
    "no expect": (
        BASE,
        drop(ops.ExpectOp),
        "every wait ends, .* stage 0 of @full with 0 of 1 arrivals and 40960 of 40960 bytes",
    ),
    "expected twice": (
        BASE,
        expect_twice,
        "a phase gets the arrivals and the bytes that it counts, no more, got 2 of 1",
    ),
    "released twice": (BASE, release_twice, "a phase counts all that arrive|knows that the one before|no more"),
    "too few bytes": (BASE, add("full", "transaction_bytes", -16), "bytes that it counts, no more"),
    "too many bytes": (BASE, add("full", "transaction_bytes", 16), "every wait ends, .* of @full .* of 40976 bytes"),
    "too few arrivals": (BASE, add("empty", "arrivals", -4), "before has ended|counts all that arrive"),
    "too many arrivals": (BASE, add("empty", "arrivals", 4), "every wait ends, .* of @empty .* 8 of 12 arrivals"),
    "no wait for products": (BASE, drop(ops.MmaWaitOp), "released only after the wait that retires the products"),
    "waits for one group less": (
        BASE,
        set_number(ops.MmaWaitOp, "pending", 2),
        "released only after the wait that retires",
    ),
    "released a step early": (BASE, set_number(ops.ReleaseOp, "lag", 0), "released only after the wait that retires"),
    "released a step late": (
        BASE,
        set_number(ops.ReleaseOp, "lag", 2),
        "a phase counts all that arrive in it, so that it ends after the last of them",
    ),
    "the other set": (
        BASE,
        swap_sets,
        "reads the metadata of its own step, got nothing in metadata set 1",
    ),
    "a set refilled in use": (
        BASE,
        refill_in_use,
        "refilled only after the wait .* in flight that read metadata set 0",
    ),
    "metadata of another step": (
        BASE,
        set_number(ops.LoadMetadataOp, "ahead", 0, 1),
        "its own step, got those of tile 0",
    ),
    "metadata from the middle of a load": (
        BASE,
        set_number(ops.LoadMetadataOp, "ahead", 2, 1),
        "begins at a multiple of the 4 steps that it covers, got step 2: sched.load_metadata",
    ),
    "no fence": (BASE, drop(ops.MmaFenceOp), "only after a fence that follows other accesses"),
    "no commit": (BASE, drop(ops.MmaCommitOp), "released only after the wait that retires"),
    "a copy is missing": (BASE, drop(ops.BulkLoadOp), "every wait ends, .* of @full"),
    "a copy in the wrong place": (
        BASE,
        set_number(ops.BulkLoadOp, "offset", 1024),
        "fill the 8192 bytes of a stage side",
    ),
    "a whole tile is expected": (BASE, expect_whole_tiles, "the rows that the copies bring, got a whole tile"),
    "the first of two copies brings a whole tile": (
        BASE.changed(tile_k=128, tile_n=64),
        copy_one_whole_tile,
        "the rows that the copies bring",
    ),
    "other rows are left": (
        BASE,
        set_number(staged.RowsLeftOp, "most", 32),
        "a tile has at most \\d+ rows of the dense operand",
    ),
    "a whole tile is copied": (BASE, copy_whole_tiles, "the rows that the copies bring, got"),
    "rings overlap": (
        BASE,
        overlap,
        "rings and barriers must not overlap in shared memory, got bytes 0 to 32768 for @a",
    ),
    "metadata: no wait": (BARRIER, drop(ops.WaitOp), "reads a stage only after its bytes .* of @metadata with no wait"),
    "metadata: no expect": (BARRIER, drop(ops.ExpectOp), "every wait ends, .* of @metadata_full with 0 of 1 arrivals"),
    "metadata: no copy": (BARRIER, drop(staged.CopyMetadataOp), "every wait ends, .* of @metadata_full .* 0 of 1024"),
    "metadata: not read": (BARRIER, drop(staged.ReadMetadataOp), "its own step, got nothing in metadata set 0"),
    "metadata: the other set": (
        BARRIER,
        set_number(staged.ReadMetadataOp, "set", 1),
        "its own step, got nothing in metadata set 0",
    ),
    "metadata: a set refilled in use": (BARRIER, one_set, "refilled only after the wait .* metadata set 0"),
    "metadata: with the operands, no wait": (STAGE, drop(ops.WaitOp), "reads a stage only after its bytes"),
    "metadata: with the operands, no copy": (STAGE, drop(staged.CopyMetadataOp), "every wait ends, .* of @full"),
    "alone: no acquire": (ALONE, drop(ops.AcquireOp, 1), "only when it knows that the one before has ended"),
    "alone: no release": (ALONE, drop(ops.ReleaseOp), "every wait ends, .* of @empty"),
    "alone: no wait for products": (ALONE, drop(ops.MmaWaitOp), "released only after the wait that retires"),
    "alone: no wait": (ALONE, drop(ops.WaitOp), "reads a stage only after its bytes have arrived"),
    "alone: a group left running": (ALONE, set_number(ops.MmaWaitOp, "pending", 1), "released only after the wait"),
    "cluster: no wait": (CLUSTER, drop(ops.WaitOp, 1), "reads a stage only after its bytes have arrived"),
    "cluster: half the arrivals": (CLUSTER, add("empty", "arrivals", -4), "before has ended|counts all that arrive"),
    "cluster: no acquire": (CLUSTER, drop(ops.AcquireOp), "has been waited for|knows that the one before"),
    "cluster: not invited": (CLUSTER, drop(ops.InviteOp), "every wait ends, .* of @invited with 0 of 1 arrivals"),
    "cluster: uninvited": (CLUSTER, drop(ops.WaitOp), "knows that the one before|has been waited for"),
    "cluster: invited too early": (CLUSTER, invite_first, "has been waited for|knows that the one before"),
    "ranges: metadata of step 0": (RANGES, begin_at_zero, "its own step, got those of tile 3, step 0"),
    "ranges: in one role": (RANGES, whole_tiles, "all roles walk the same items, got ranges of K in some"),
    "ranges: no wait before they are combined": (
        RANGES,
        join_early(ops.CombineOp),
        "read only after the wait that retires all products, got products in flight: sched.combine",
    ),
    "pairs: no wait before sums are exchanged": (
        PAIRS,
        join_early(ops.ExchangeOp),
        "read only after the wait that retires all products, got products in flight: sched.store",
    ),
    "pairs: half of the warps make room": (PAIRS, add("room", "arrivals", -4), "counts all that arrive|waited for"),
    "pairs: too many warps make room": (PAIRS, add("room", "arrivals", 4), "every wait ends, .* of @room with 8 of 12"),
    "pairs: too few bytes": (PAIRS, add("sums", "transaction_bytes", -16), "bytes that it counts, no more"),
    "pairs: too many bytes": (PAIRS, add("sums", "transaction_bytes", 16), "every wait ends, .* of @sums"),
    "pairs: one barrier for the other": (PAIRS, swap_barriers, "no more|every wait ends"),
    "dependent: no wait": (DEPENDENT, drop(ops.WaitGridsOp), f"{BEFORE}.*sched.bulk_load %b_map.*role @dense"),
    "dependent: a wait after the copies": (DEPENDENT, wait_at_last, f"{BEFORE}.*sched.bulk_load %b_map"),
    "dependent: a wait of the other thread": (DEPENDENT, wait_elsewhere, f"{BEFORE}.*sched.bulk_load %b_map"),
    "dependent: one thread expects nothing": (
        DEPENDENT,
        drop(ops.ExpectOp, 1),
        "every wait ends, .* of @full with 1 of 2",
    ),
    "dependent: the other one": (DEPENDENT, drop(ops.ExpectOp), "every wait ends, .* of @full with 1 of 2"),
    "dependent: values in use": (DEPENDENT, drop(ops.AcquireOp), "has ended|has been waited for"),
    "dependent: tokens in use": (DEPENDENT, drop(ops.AcquireOp, 1), "has ended|has been waited for"),
    "dependent: alone, no wait": (DEPENDENT_ALONE, drop(ops.WaitGridsOp), f"{BEFORE}.*sched.bulk_load %b_map"),
    "dependent: an early store": (DEPENDENT, begin_with(ops.StoreOp), f"{BEFORE}.*sched.store"),
    "dependent: an early bulk store": (
        DEPENDENT.changed(store="bulk"),
        begin_with(ops.BulkStoreOp),
        f"{BEFORE}.*sched.bulk_store",
    ),
    "dependent: combined early": (
        DEPENDENT.changed(work="ranges"),
        begin_with(ops.CombineOp),
        f"{BEFORE}.*sched.combine",
    ),
    "ranges: no release": (RANGES, drop(ops.ReleaseOp, 1), "every wait ends"),
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_schedule_is_refused(name: str) -> None:
    schedule, change, message = MUTATIONS[name]
    refuses(PROBLEMS["f16"], schedule, change, message)


def shared(kernel: ops.KernelOp) -> tuple[ops.RoleOp, ops.RoleOp]:
    values, dense, _ = kernel.roles
    return values, dense


def wait_in_a_plain_kernel(kernel: ops.KernelOp) -> None:
    kernel.dependent = None


def same_warp(kernel: ops.KernelOp) -> None:
    shared(kernel)[1].warp = None


def fifth_warp(kernel: ops.KernelOp) -> None:
    shared(kernel)[1].warp = ops.i32_attr(4)


def whole_warpgroup(kernel: ops.KernelOp) -> None:
    shared(kernel)[0].single = None


def own_registers(kernel: ops.KernelOp) -> None:
    shared(kernel)[1].registers = ops.i32_attr(40)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop(ops.WaitGridsOp), "and no other one, got none in a dependent kernel"),
        (
            wait_in_a_plain_kernel,
            r"a dependent kernel has a sched\.wait_grids, and no other one, got one in another kernel",
        ),
        (same_warp, "roles that share a warpgroup are single, each in a warp of its own, got @values, @dense"),
        (whole_warpgroup, "roles that share a warpgroup are single, each in a warp of its own, got @values, @dense"),
        (fifth_warp, "a single role runs in warp 0 to 3, got 4 of @dense"),
        (own_registers, "roles that share a warpgroup give the same registers for it, got @values, @dense"),
    ],
)
def test_roles_that_share_a_warpgroup(change: Callable[[ops.KernelOp], None], message: str) -> None:
    module = assigned(PROBLEMS["f16"], DEPENDENT)
    module.verify()
    (kernel,) = module.body.block.ops
    assert isinstance(kernel, ops.KernelOp)
    change(kernel)
    with pytest.raises(VerifyException, match=message):
        module.verify()


def test_one_role_fills_a_ring() -> None:
    """So that what each announces is all of the bytes that a barrier counts."""
    module = assigned(PROBLEMS["f16"], DEPENDENT)
    (kernel,) = module.body.block.ops
    copies = [op for op in kernel.walk() if isinstance(op, ops.BulkLoadOp)]
    copies[1].ring = copies[0].ring
    with pytest.raises(ValueError, match="one role fills a ring, got several that fill @a"):
        assign_shared_memory(module, SM_90A)


def test_sums_of_ranges_are_stored_when_they_are_combined() -> None:
    """Only there, and whole tiles are not."""
    module = assigned(PROBLEMS["f16"], RANGES)
    module.verify()
    (kernel,) = module.body.block.ops
    assert isinstance(kernel, ops.KernelOp)
    combine = found(kernel, ops.CombineOp)
    store = combine.body.block.first_op
    store.detach()
    combine.parent.insert_op_after(store, combine)
    with pytest.raises(VerifyException, match=r"combined before they are stored, got sched\.store alone"):
        module.verify()
    store.detach()
    for op in kernel.walk():
        if isinstance(op, ops.TilesOp):
            op.ranges = None
    with pytest.raises(VerifyException, match="sums of ranges are combined, got a walk over whole tiles"):
        module.verify()


PROMOTED = Schedule.of(tile_n=128, tile_k=128, stages=4)


def flip_fresh(index: int) -> Callable[[ops.KernelOp], None]:
    def change(kernel: ops.KernelOp) -> None:
        op = found(kernel, ops.MmaOp, index)
        op.fresh = None if op.fresh else UnitAttr()

    return change


def promote_twice(kernel: ops.KernelOp) -> None:
    op = found(kernel, ops.PromoteOp)
    op.parent.insert_op_after(op.clone(), op)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (flip_fresh(0), "after a promotion begins anew, .* got one of block 0 that adds to what was promoted before"),
        (flip_fresh(1), "no other one does, got one of block 0 that drops sums that are not promoted"),
        (drop(ops.PromoteOp), "no other one does, got one of block 0 that drops sums that are not promoted"),
        (drop(ops.PromoteOp, -1), "drops sums that are not promoted|all sums are promoted before the store"),
        (drop(ops.ClearOp), "sums are promoted once, to cleared ones, got none that the tile has cleared"),
        (promote_twice, "sums are promoted once, to cleared ones, got no sums since the last promotion"),
        (drop(ops.MmaWaitOp, 1), "released only after the wait|read only after the wait that retires all products"),
        (drop(ops.MmaFenceOp, 1), "only after a fence that follows other accesses"),
    ],
)
def test_sums_are_promoted_once_each(change: Callable[[ops.KernelOp], None], message: str) -> None:
    module = assigned(PROBLEMS["promoted"], PROMOTED)
    check_protocol(module)
    (kernel,) = module.body.block.ops
    assert isinstance(kernel, ops.KernelOp)
    change(kernel)
    with pytest.raises(ProtocolError, match=message):
        check_protocol(module)


def last_before_store(kernel: ops.KernelOp) -> None:
    waits = [op for op in kernel.walk() if isinstance(op, ops.MmaWaitOp) and op.pending.value.data == 0]
    for op in waits:
        op.pending = ops.i32_attr(1)


def test_accumulators_are_stored_after_all_products() -> None:
    module = assigned(PROBLEMS["f16"], BASE)
    (kernel,) = module.body.block.ops
    assert isinstance(kernel, ops.KernelOp)
    last_before_store(kernel)
    for op in [op for op in kernel.walk() if isinstance(op, ops.ReleaseOp)]:
        op.detach()
    with pytest.raises(ProtocolError, match="read only after the wait that retires all products|every wait ends"):
        check_protocol(module)


def test_a_staging_area_is_nobody_else_s() -> None:
    module = assigned(PROBLEMS["e4m3"], Schedule.of(tile_k=128, stages=4, store="bulk"))
    (kernel,) = module.body.block.ops
    assert isinstance(kernel, ops.KernelOp)
    found(kernel, ops.BulkStoreOp).ring = StringAttr("b")
    with pytest.raises(ProtocolError, match="a staging area is filled by its stores alone, got copies into @b"):
        check_protocol(module)


def test_errors_name_the_operation_its_role_and_step() -> None:
    module = assigned(PROBLEMS["f16"], BASE)
    (kernel,) = module.body.block.ops
    assert isinstance(kernel, ops.KernelOp)
    found(kernel, ops.WaitOp).detach()
    with pytest.raises(ProtocolError) as caught:
        check_protocol(module)
    assert "sched.mma" in caught.value.operation
    assert "(role @consumer, tile 0, step 0)" in caught.value.operation


def test_metadata_of_constant_steps_begins_there() -> None:
    module = assigned(PROBLEMS["f16"], BASE)
    (kernel,) = module.body.block.ops
    step = found(kernel, ops.LoadMetadataOp, -1).step.owner
    step.value = IntegerAttr(8, i32)
    loads = [line for line in print_module(lower(module, SM_90A.name)).splitlines() if "ld.global.b32" in line]
    assert loads[0].endswith("+4096];"), "the third load of 2,048 bytes"
    step.value = IntegerAttr(2, i32)
    with pytest.raises(ValueError, match="multiple of the 4 steps that it covers, got 2: .*sched.load_metadata"):
        lower(module, SM_90A.name)


def test_the_boxes_of_a_bulk_store_divide_its_chunks_and_tile() -> None:
    def staged(tile_n: int) -> tuple[ModuleOp, ops.BulkStoreOp]:
        module = assigned(PROBLEMS["f16"], Schedule.of(tile_n=tile_n, store="bulk", staging=96))
        (kernel,) = module.body.block.ops
        assert isinstance(kernel, ops.KernelOp)
        return module, found(kernel, ops.BulkStoreOp)

    module, store = staged(176)
    store.columns = IntegerAttr(40, i32)
    with pytest.raises(ValueError, match="chunks of 40 columns and the tile's 176, got boxes of 16: use the box"):
        lower(module, SM_90A.name)
    module, store = staged(176)
    whole = staged(192)[1].destination.type
    Rewriter.replace_value_with_new_type(store.destination, whole)
    with pytest.raises(ValueError, match="chunks of 96 columns and the tile's 176, got boxes of 96: use the box"):
        lower(module, SM_90A.name)


def test_an_operation_without_a_rule_is_not_passed_over() -> None:
    @irdl_op_definition
    class Nap(IRDLOperation):
        name = "sched.nap"
        assembly_format = "attr-dict"

    module = assigned(PROBLEMS["f16"], BASE)
    (kernel,) = module.body.block.ops
    assert isinstance(kernel, ops.KernelOp)
    wait = found(kernel, ops.WaitOp)
    wait.parent.insert_op_before(Nap(), wait)
    with pytest.raises(ValueError, match=r"the check has no rule for sched.nap"):
        check_protocol(module)


def test_memory_is_assigned_before_the_check() -> None:
    schedule = BASE
    nest = read_nest(build_tile_ir(PROBLEMS["f16"], Tile(schedule.tile.m, schedule.tile.n, schedule.tile.k)))
    with pytest.raises(ValueError, match="shared memory is assigned before the check, got none for @a"):
        check_protocol(generate(nest, schedule, SM_90A))


def test_pipeline_runs_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    from louver.compile import pipeline

    seen: list[ModuleOp] = []
    monkeypatch.setattr(pipeline, "check_protocol", seen.append)
    compiled = pipeline.compile_product(PROBLEMS["f16"], BASE)
    assert seen == [compiled.sched]
