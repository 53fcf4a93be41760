from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce

import pytest
from xdsl.utils.exceptions import VerifyException

from louver.compile.generate.assign import assign_shared_memory
from louver.compile.generate.epilogue import epilogue_parameters
from louver.compile.generate.generate import generate
from louver.compile.lower.products import lower
from louver.compile.plan.layout import output_layout
from louver.compile.plan.nest import read_nest
from louver.compile.plan.schedule import Schedule
from louver.compile.read_signature import read_signature
from louver.compile.signature import OWN, RESERVED, Signature
from louver.formats.dtypes import element_type
from louver.frontend.builder import build_tile_ir
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import Problem, Tile
from louver.ir.context import parse_ir
from louver.ir.product import (
    Accumulator,
    Apply,
    Batch,
    Constant,
    LoadMatrix,
    Number,
    ProductNest,
    selection_of,
    walk,
)
from louver.ir.sched import ops
from louver.isa.targets import SM_90A
from louver.library.compiled import from_json, to_json
from louver.ptx.printer import print_module
from support.fused import EPILOGUES, FULL
from support.golden import Golden
from support.signatures import grid

PROBLEMS = {
    "linear-f16-bias": (Problem("linear", bias="row"), Schedule()),
    "matmul-bf16-n-major": (
        Problem("matmul", a="bf16", b="bf16", out="f32", b_layout="n_major"),
        Schedule.of(tile_k=128, stages=2, cluster=2),
    ),
    "linear-narrow": (Problem("linear", out="f32"), Schedule.of(tile_n=8, stages=8)),
    "matmul-cluster": (Problem("matmul"), Schedule.of(cluster=2, stages=4)),
    "linear-fp8-bias": (
        Problem("linear", "e4m3", "e5m2", "bf16", bias="row"),
        Schedule.of(tile_k=128, stages=4, store="bulk"),
    ),
    "linear-f32-bulk": (Problem("linear", out="f32"), Schedule.of(stages=4, store="bulk")),
    "linear-kept-values": (Problem("linear"), Schedule.of(tile_n=64, stages=3, store="bulk", raster=12, l2="values")),
    "linear-alone": (
        Problem("linear"),
        Schedule.of(tile_m=64, tile_n=64, consumers=1, stages=1, specialized=False, in_flight=0),
    ),
    "linear-fp8-metadata-barrier": (
        Problem("linear", "e4m3", "e4m3", "f16"),
        Schedule.of(tile_k=128, stages=3, metadata="barrier"),
    ),
    "linear-gated": (
        Problem("linear", bias="row", epilogue=EPILOGUES["gated-scaled"]),
        Schedule.of(tile_n=128, stages=3),
    ),
    "matmul-fused": (Problem("matmul", out="e4m3", epilogue=FULL), Schedule.of(tile_n=64, stages=3)),
    "matmul-batch": (
        Problem("matmul", out="f32", b_layout="n_major", batch="both"),
        Schedule.of(tile_n=64, stages=3, store="bulk"),
    ),
    "linear-batch": (
        Problem("linear", bias="row", batch="dense", epilogue=EPILOGUES["c-f16"]),
        Schedule.of(tile_n=64, stages=3),
    ),
    "linear-ranges": (Problem("linear", bias="row"), Schedule.of(tile_n=16, stages=3, work="ranges")),
    "linear-pairs": (Problem("linear", bias="row"), Schedule.of(tile_n=16, stages=3, work="pairs")),
    "linear-dependent": (
        Problem("linear", bias="row"),
        Schedule.of(tile_n=16, stages=3, metadata="stage", resident=2, dependent=True),
    ),
    "matmul-int8": (Problem("matmul", "s8", "u8", "s32", bias="row"), Schedule.of(tile_n=48, tile_k=128)),
    "matmul-dense": (
        Problem("matmul", pattern=None, b_layout="n_major"),
        Schedule.of(tile_n=64, tile_k=128, stages=3),
    ),
    "matmul-gathered": (
        Problem("matmul", "bf16", "bf16", "bf16", pattern="2:8@64", b_layout="n_major"),
        Schedule.of(tile_n=64, stages=3),
    ),
    "matmul-turned": (
        Problem("matmul", "s8", "u8", "s32", pattern="2:8@128", b_layout="n_major", batch="both"),
        Schedule.of(tile_n=128, tile_k=128, stages=3),
    ),
    "matmul-shared-vectors": (
        Problem("matmul", "bf16", "bf16", "bf16", pattern="2:8@V128", b_layout="n_major"),
        Schedule.of(tile_n=64, stages=3, metadata="stage"),
    ),
}


def nest_of(problem: Problem, schedule: Schedule) -> ProductNest:
    return read_nest(build_tile_ir(problem, Tile(schedule.tile.m, schedule.tile.n, schedule.tile.k)))


@pytest.mark.parametrize("name", PROBLEMS)
def test_schedule_ir_is_golden_and_round_trips(name: str, golden: Golden) -> None:
    problem, schedule = PROBLEMS[name]
    module = generate(nest_of(problem, schedule), schedule, SM_90A)
    assign_shared_memory(module, SM_90A)
    module.verify()
    text = str(module) + "\n"
    golden.check(f"sched/{name}.mlir", text)
    assert str(parse_ir(text)) + "\n" == text


@pytest.mark.parametrize("name", PROBLEMS)
def test_stages_do_not_overlap_and_bytes_add_up(name: str) -> None:
    problem, schedule = PROBLEMS[name]
    module = generate(nest_of(problem, schedule), schedule, SM_90A)
    assign_shared_memory(module, SM_90A)
    (kernel,) = module.body.block.ops
    assert isinstance(kernel, ops.KernelOp)
    rings = [op for op in kernel.body.block.ops if isinstance(op, ops.RingOp)]
    barriers = [op for op in kernel.body.block.ops if isinstance(op, ops.BarriersOp)]
    spans = [(op.offset.value.data, op.stages.value.data * op.bytes.value.data) for op in rings]
    spans += [(op.offset.value.data, 8 * op.stages.value.data) for op in barriers]
    spans.sort()
    for (start, size), (following, _) in zip(spans, spans[1:], strict=False):
        assert start + size <= following
    assert spans[-1][0] + spans[-1][1] == kernel.shared_bytes.value.data
    full = next(op for op in barriers if op.sym_name.data == "full")
    # One row of a 2:4 tile holds half its columns, others all of them; of gathered rows no bytes are announced.
    columns = 0 if problem.gathers else schedule.tile.n
    stored = schedule.tile.k * (schedule.tile.m // (2 if selection_of(problem.pattern).lifted else 1) + columns)
    expected = stored * element_type(problem.a).bytes
    if schedule.ring.metadata == "stage":
        expected += schedule.tile.m * schedule.tile.k // 8
    assert full.transaction_bytes.value.data == expected
    # A dependent kernel's stored values and dense operand have a thread each.
    assert full.arrivals.value.data == (129 if problem.gathers else 1 + schedule.occupancy.dependent)
    empty = next(op for op in barriers if op.sym_name.data == "empty")
    assert empty.arrivals.value.data == 4 * schedule.roles.consumers
    invited = [op.arrivals.value.data for op in barriers if op.sym_name.data == "invited"]
    assert invited == [schedule.order.cluster - 1] * (schedule.order.cluster > 1)


@pytest.mark.parametrize("name", PROBLEMS)
def test_signature_round_trips_through_json(name: str) -> None:
    problem, schedule = PROBLEMS[name]
    module = generate(nest_of(problem, schedule), schedule, SM_90A)
    assign_shared_memory(module, SM_90A)
    signature = read_signature(module)
    assert from_json(Signature, to_json(signature)) == signature


def test_ctas_by_the_room_of_an_sm() -> None:
    """As many on an SM as it has room for, of which a dependent launch leaves half to the next one; in whole clusters."""

    def ctas(**fields: object) -> int:
        schedule = Schedule.of(tile_n=16, stages=3, **fields)
        module = generate(nest_of(Problem("linear"), schedule), schedule, SM_90A)
        assign_shared_memory(module, SM_90A)
        return grid(read_signature(module), 1 << 20, 16, 132)

    assert [ctas(resident=each) for each in (1, 2, 4)] == [132, 264, 528]
    assert [ctas(resident=each, dependent=True) for each in (1, 2, 4)] == [132, 132, 264]
    assert [ctas(resident=each, cluster=2) for each in (1, 2, 4)] == [132, 264, 528]


def test_grid_is_one_cta_a_tile_and_at_most_one_an_sm() -> None:
    problem, schedule = PROBLEMS["matmul-cluster"]
    module = generate(nest_of(problem, schedule), schedule, SM_90A)
    assign_shared_memory(module, SM_90A)
    signature = read_signature(module)
    assert grid(signature, 1, 1, 132) == 2
    assert grid(signature, 257, 256, 132) == 4
    assert grid(signature, 4096, 8192, 132) == 132
    assert grid(signature, 4096, 8192, 131) == 130


def test_a_schedule_has_tiles_of_its_own() -> None:
    nest = nest_of(Problem(), Schedule())
    assert str(generate(nest, Schedule.of(tile_n=128), SM_90A)) == str(
        generate(nest_of(Problem(), Schedule.of(tile_n=128)), Schedule.of(tile_n=128), SM_90A)
    )
    assert str(generate(nest, Schedule.of(tile_k=128), SM_90A)) == str(
        generate(nest_of(Problem(), Schedule.of(tile_k=128)), Schedule.of(tile_k=128), SM_90A)
    )


def test_a_left_operand_that_no_unit_multiplies_is_refused() -> None:
    nest = nest_of(Problem(), Schedule())
    with pytest.raises(ValueError, match="the left operand must have K contiguous, got M contiguous in a"):
        generate(replace(nest, a=replace(nest.a, k_major=False)), Schedule(), SM_90A)
    with pytest.raises(ValueError, match="GPUs have products of 1:2 for f32; and of f16 for 2:4, .*, got 1:2 f16"):
        generate(replace(nest, a=replace(nest.a, pattern="1:2")), Schedule(), SM_90A)


def test_stages_that_do_not_fit_are_refused() -> None:
    schedule = Schedule.of(stages=6)
    module = generate(nest_of(Problem(), schedule), schedule, SM_90A)
    with pytest.raises(ValueError, match="232448 bytes of shared memory, got a schedule that needs 245"):
        assign_shared_memory(module, SM_90A)


def test_an_integer_product_needs_a_legal_width() -> None:
    problem, schedule = Problem("linear", "s8", "s8", "s32"), Schedule.of(tile_n=40, tile_k=128)
    with pytest.raises(ValueError, match="8, 16, 24, 32 or a multiple of 16 up to 256, got 40"):
        generate(nest_of(problem, schedule), schedule, SM_90A)


@pytest.mark.parametrize(
    ("out", "tile_n", "multiple"), [("f16", 8, 16), ("bf16", 24, 16), ("e4m3", 16, 32), ("e4m3", 240, 32)]
)
def test_bulk_stores_take_tiles_of_32_bytes_of_columns(out: str, tile_n: int, multiple: int) -> None:
    problem = Problem("linear", "e4m3", "e4m3", out)
    schedule = Schedule.of(tile_n=tile_n, tile_k=128, stages=2, store="bulk")
    with pytest.raises(ValueError, match=f"{out} take tiles of a multiple of {multiple} columns, got {tile_n}: store"):
        generate(nest_of(problem, schedule), schedule, SM_90A)


@pytest.mark.parametrize(("out", "staging", "multiple"), [("f16", 8, 16), ("e4m3", 16, 32), ("f32", 4, 8)])
def test_staged_columns_are_made_of_32_bytes(out: str, staging: int, multiple: int) -> None:
    problem = Problem("matmul", "e4m3", "e4m3", out)
    schedule = Schedule.of(tile_n=64, tile_k=128, stages=2, store="bulk", staging=staging)
    with pytest.raises(ValueError, match=f"{out} is staged in multiples of {multiple} columns, got staging {staging}"):
        generate(nest_of(problem, schedule), schedule, SM_90A)


def test_n_major_tiles_are_whole_spans() -> None:
    schedule = Schedule.of(tile_n=24)
    with pytest.raises(ValueError, match="whole swizzle spans"):
        generate(nest_of(Problem(b_layout="n_major"), schedule), schedule, SM_90A)


@pytest.mark.parametrize(("layout", "tile_n"), [("n_major", 64), ("k_major", 8)])
def test_a_tile_that_a_cluster_cannot_share_is_refused(layout: str, tile_n: int) -> None:
    schedule = Schedule.of(tile_n=tile_n, cluster=2, stages=2)
    with pytest.raises(ValueError, match="cannot be shared by 2 CTAs"):
        generate(nest_of(Problem(b_layout=layout), schedule), schedule, SM_90A)


def test_signature_needs_assigned_memory() -> None:
    module = generate(nest_of(Problem(), Schedule()), Schedule(), SM_90A)
    with pytest.raises(ValueError, match="run assign-shared-memory"):
        read_signature(module)


def test_a_wait_that_nobody_serves_is_refused() -> None:
    module = generate(nest_of(Problem(), Schedule()), Schedule(), SM_90A)
    (kernel,) = module.body.block.ops
    for op in list(kernel.walk()):
        if isinstance(op, ops.ReleaseOp):
            op.detach()
    with pytest.raises(ValueError, match="@empty are never arrived at"):
        assign_shared_memory(module, SM_90A)


def test_what_one_thread_begins_is_waited_for_next() -> None:
    problem, schedule = PROBLEMS["linear-alone"]
    module = generate(nest_of(problem, schedule), schedule, SM_90A)
    (kernel,) = module.body.block.ops
    next(op for op in kernel.walk() if isinstance(op, ops.WaitOp)).detach()
    with pytest.raises(VerifyException, match=r"on barriers that the region expects bytes on, \['full'\]"):
        module.verify()


@pytest.mark.parametrize(("dtype", "tile_k", "bytes_"), [("f16", 64, 1024), ("f16", 128, 2048), ("e4m3", 128, 2048)])
def test_a_stage_holds_the_metadata_of_its_step(dtype: str, tile_k: int, bytes_: int) -> None:
    schedule = Schedule.of(tile_k=tile_k, stages=2, metadata="stage")
    module = generate(nest_of(Problem("linear", dtype, dtype, "f16"), schedule), schedule, SM_90A)
    assign_shared_memory(module, SM_90A)
    (kernel,) = module.body.block.ops
    assert isinstance(kernel, ops.KernelOp)
    rings = {op.sym_name.data: op.bytes.value.data for op in kernel.body.block.ops if isinstance(op, ops.RingOp)}
    # One bit for each dense element of the tile.
    assert rings["metadata"] == bytes_ == 128 * tile_k // 8
    full = next(op for op in kernel.walk() if isinstance(op, ops.BarriersOp) and op.sym_name.data == "full")
    assert full.transaction_bytes.value.data == sum(rings.values())


def test_schedules_differ_in_one_field_only_where_they_say_so() -> None:
    base = Schedule()
    assert base.changed(stages=3) != base
    assert generate(nest_of(Problem(), base), base.changed(raster=4), SM_90A).is_structurally_equivalent(
        generate(nest_of(Problem(), base), base.changed(raster=4), SM_90A)
    )


@pytest.mark.parametrize(
    ("kind", "out", "tile_n", "rule"),
    [
        ("linear", "e4m3", 64, "gated products store e4m3 along their rows directly"),
        ("matmul", "s8", 32, "bulk stores of s8 take tiles of a multiple of 64 columns, got 32: store directly"),
        ("linear", "f16", 16, "bulk stores of f16 take tiles of a multiple of 32 columns, got 16"),
    ],
)
def test_gated_products_that_are_not_staged_say_so(kind: str, out: str, tile_n: int, rule: str) -> None:
    problem = Problem(kind, out=out, epilogue=EPILOGUES["gated"])  # type: ignore[arg-type]
    schedule = Schedule.of(tile_n=tile_n, stages=2, store="bulk")
    with pytest.raises(ValueError, match=rule):
        generate(nest_of(problem, schedule), schedule, SM_90A)


@pytest.mark.parametrize("out", ["f16", "f32", "e4m3"])
def test_a_gated_product_stages_half_as_many_rows(out: str) -> None:
    schedule = Schedule.of(tile_n=128)
    whole = output_layout(schedule, out, transposed=False)
    half = output_layout(schedule, out, transposed=False, gated=True)
    assert half.bytes == whole.bytes // 2
    assert half.box == (whole.box[0], 32)


def test_zeros_of_both_signs_stay_apart() -> None:
    zero, negative = Constant(0.0, "f32"), Constant(-0.0, "f32")
    assert zero != negative and zero == Constant(0.0, "f32") and zero != Constant(0.0, "f16")
    nest = read_nest(build_tile_ir(Problem(out="f32"), Tile(128, 256, 64)))
    chosen = Apply.of("where_greater", Accumulator(), zero, Accumulator(), negative)
    text = str(generate(replace(nest, epilogue=chosen), Schedule.of(store="direct"), SM_90A))
    assert "arith.constant 0.000000e+00 : f32" in text and "arith.constant -0.000000e+00 : f32" in text


def test_arguments_may_be_called_as_the_kernel_s_own_parameters() -> None:
    """`pitch_c` is the parameter of the pitch that comes with an array `c`; an argument of that name is another parameter."""
    nest = read_nest(build_tile_ir(Problem("matmul", out="f32", epilogue=Epilogue(c="f16")), Tile(128, 256, 64)))
    (c,) = [node for node in walk(nest.epilogue) if isinstance(node, LoadMatrix)]
    assert list(epilogue_parameters(c)) == ["c", "pitch_c"]
    names = (
        "pitch_c",
        "batch_pitch_c",
        "metadata",
        "d",
        "d_map",
        "M",
        "pitch",
        "own_d",
        "own",
        "_private",
        "WARP_SZ",
        "größe",
        "own_größe",
    )
    numbers = [Number(name) for name in names]
    entries = replace(c, batch=Batch("B", "stride"))
    every = list(epilogue_parameters(reduce(partial(Apply.of, "add"), numbers, entries)))
    assert every[:3] == ["c", "pitch_c", "batch_pitch_c"]
    assert len(set(every)) == len(every) == len(names) + 3
    assert not set(every[3:]) & {"c", *OWN, *RESERVED} and all(each.isascii() for each in every)
    clash = replace(nest, epilogue=reduce(partial(Apply.of, "add"), numbers, nest.epilogue))
    sched = generate(clash, Schedule(), SM_90A)
    assign_shared_memory(sched, SM_90A)
    sched.verify()
    print_module(lower(sched, "sm_90a"))


def test_pairs_need_stages_for_their_sums_and_products_of_warpgroups() -> None:
    schedule = Schedule.of(stages=1, in_flight=0, work="pairs")
    module = generate(nest_of(Problem("linear"), schedule), schedule, SM_90A)
    with pytest.raises(ValueError, match="65536 bytes of sums through its stages, got stages of 40960 bytes: use more"):
        assign_shared_memory(module, SM_90A)
    lanes = Schedule.of(tile_n=64, tile_k=32, stages=2, in_flight=0, work="pairs")
    problem = Problem("matmul", "f32", "f32", "f32", pattern="2:8@64", b_layout="n_major")
    with pytest.raises(ValueError, match="got products of f32 on CUDA cores: use work 'ranges'"):
        generate(nest_of(problem, lanes), lanes, SM_90A)
