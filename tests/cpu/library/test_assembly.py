"""What the assembler makes of the library's kernels: no lost performance, no spill, and the instructions they stand for."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any, get_args

import pytest

from louver.choose.configure import MIN_N_MAJOR, candidates_for, choose, deepest
from louver.choose.demand import Demand
from louver.choose.tile_shapes import TILE_N, TileShape
from louver.compile.pipeline import compile_product
from louver.compile.plan.schedule import Schedule
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import PRODUCTS, BLayout, Problem
from louver.isa.targets import SM_90A
from louver.isa.wgmma import FP8, INTEGER
from louver.ptx.assembler import assemble
from louver.ptx.sass import disassemble, opcodes
from support.fused import EPILOGUES, FULL

pytestmark = pytest.mark.sampled(7)

MANY = 1 << 16
"""Rows enough that no tile is made narrower to keep SMs busy."""

TALL = (2816, 2304)
"""M and N of which tiles of 256×192 make one wave of an H200's SMs, and those of 128×256 one and a half."""

Product = tuple[Problem, Schedule]


def every_product() -> list[Product]:
    """Every kernel that `choose` can ask for."""
    problems = [
        Problem(kind, dtype, dtype, out, b_layout=layout, bias=bias)
        for kind, layout, bias in _forms()
        for dtype in ("f16", "bf16")
        for out in ("f16", "bf16", "f32")
    ]
    return [
        (problem, schedule)
        for problem in problems
        for schedule in dict.fromkeys(
            choose(problem, m, n, SM_90A, 132, aligned_output=aligned)
            for m, n in (*((MANY, width) for width in TILE_N), TALL)
            for aligned in (False, True)
        )
    ]


EIGHT_BITS = {
    **{(a, b): "QGMMA.SP.64x{n}x64.F32." + f"{a.upper()}.{b.upper()}" for a in FP8 for b in FP8},
    **{(a, b): "IGMMA.SP.64x{n}x64." + f"{a.upper()}.{b.upper()}" for a in INTEGER for b in INTEGER},
}
"""The product that each mix of 8-bit types becomes, for a tile of width n."""


def eight_bit_products() -> list[Product]:
    """Every mix of 8-bit types, output and store, on the tiles that `choose` gives to many and to few columns."""
    problems = [
        Problem(kind, a, b, out, bias="row" if kind == "linear" else None)
        for a, b in EIGHT_BITS
        for out in PRODUCTS[a, b]
        for kind in ("linear", "matmul")
    ]
    return [
        (problem, schedule)
        for problem in problems
        for schedule in dict.fromkeys(
            choose(problem, m, n, SM_90A, 132, aligned_output=aligned)
            for m, n in ((MANY, 16), (MANY, 128), (MANY, 256), TALL)
            for aligned in (False, True)
        )
    ]


def shown(product: Product) -> bool:
    """Each mix, output, width and store, but not each of them with every other; the widest tiles more often."""
    problem, schedule = product
    outputs = PRODUCTS[problem.a, problem.b]
    turn = (list(EIGHT_BITS).index((problem.a, problem.b)) + (problem.kind == "linear")) % len(outputs)
    same = problem.a == problem.b and problem.a in ("e4m3", "s8")
    return outputs[turn] == problem.out or (same and schedule.tile.n >= 192)


def _forms() -> list[tuple[str, BLayout, str | None]]:
    linear = [("linear", "k_major", bias) for bias in (None, "row")]
    return [*linear, *(("matmul", layout, None) for layout in get_args(BLayout))]


def name(product: Product) -> str:
    problem, schedule = product
    bias = ("-bias" if problem.bias else "") + ("-pairs" if schedule.pairs else "")
    return f"{problem.kind}{bias}-{problem.b_layout}-{problem.a}-{problem.b}-{problem.out}-n{schedule.tile.n}-{schedule.store.way}"


def representative(product: Product) -> bool:
    """Every tile width, form, store and output once or twice; the widest tiles, which are shortest of registers, more often."""
    problem, schedule = product
    turn = (schedule.tile.n.bit_length() + len(problem.kind) + (schedule.store.way == "bulk")) % 3
    output = ("f16", "bf16", "f32")[turn]
    biased_if_linear = (problem.bias is not None) == (problem.kind == "linear")
    wide = schedule.tile.n >= 192 and problem.a == "bf16" and problem.out in ("bf16", "f32")
    return biased_if_linear and (wide or (problem.a == "f16" and problem.out == output))


def marked(products: list[Product], default: Callable[[Product], bool]) -> list[object]:
    return [
        pytest.param(*product, id=name(product), marks=() if default(product) else pytest.mark.slow)
        for product in products
    ]


@pytest.mark.parametrize(("problem", "schedule"), marked(every_product(), representative))
def test_kernels_assemble_cleanly(problem: Problem, schedule: Schedule) -> None:
    check_assembly(problem, schedule, f"HGMMA.SP.64x{schedule.tile.n}x32.F32")


@pytest.mark.sampled(7, every=7)
@pytest.mark.parametrize(("problem", "schedule"), marked(eight_bit_products(), shown))
def test_kernels_of_8_bit_types_assemble_cleanly(problem: Problem, schedule: Schedule) -> None:
    check_assembly(problem, schedule, EIGHT_BITS[problem.a, problem.b].format(n=schedule.tile.n))


def cuts(problem: Problem, schedule: Schedule) -> bool:
    """Whether the library cuts K with the tile of this schedule."""
    demand, tile = Demand.of_problem(problem), schedule.tile
    return TileShape.of(tile.m, tile.n, schedule.roles.consumers, demand).cuts(demand)


def cut_products() -> list[Product]:
    """The kernels that cut K: every tile that may be cut, each store and kind of sums, and the longest epilogues."""
    sums = [
        Problem("linear", "f16", "f16", "f16", bias="row"),
        Problem("matmul", "bf16", "bf16", "f32", b_layout="n_major"),
        Problem("linear", "f16", "f16", "f16", accumulate="f16"),
        Problem("linear", "e4m3", "e4m3", "bf16", bias="row"),
        Problem("linear", "e4m3", "e4m3", "f32", accumulate="promoted"),
        Problem("matmul", "s8", "s8", "s32"),
        Problem("linear", "bf16", "bf16", "bf16", bias="row", epilogue=FULL),
        Problem("matmul", "e4m3", "e4m3", "f32", bias="row", epilogue=EPILOGUES["c-f16"]),
        Problem("linear", "s8", "s8", "s8", bias="row", epilogue=EPILOGUES["gated-scaled"]),
    ]
    ranges = [
        (problem, schedule.changed(work="ranges"))
        for problem in sums
        for schedule in dict.fromkeys(
            choose(problem, m, n, SM_90A, 132, aligned_output=aligned)
            for m, n in (*((MANY, width) for width in TILE_N), TALL)
            for aligned in (False, True)
        )
        if cuts(problem, schedule)
    ]
    pairs = dict.fromkeys(
        (problem, schedule)
        for problem in sums
        for n in TILE_N
        for aligned in (False, True)
        for schedule, _ in candidates_for(Demand.of_problem(problem), SM_90A, n, bulk=aligned)
        if schedule.pairs
    )
    return [*ranges, *pairs]


@pytest.mark.sampled(7, every=2)
@pytest.mark.parametrize(("problem", "schedule"), [pytest.param(*each, id=name(each)) for each in cut_products()])
def test_kernels_that_cut_k_assemble_cleanly(problem: Problem, schedule: Schedule) -> None:
    check_clean(problem, schedule)


LONGEST: dict[str, dict[str, Any]] = {
    "c": {"epilogue": Epilogue(c="f32", activation="gelu")},
    "c-f16": {"epilogue": EPILOGUES["c-f16"], "bias": "row"},
    "columns": {"epilogue": Epilogue(dense_scale="column", dense_bias="f32")},
    "vectors": {"epilogue": Epilogue(scale="row", dense_scale="column", dense_bias="f32")},
    "gated-scaled": {"epilogue": EPILOGUES["gated-scaled"], "bias": "row"},
    "gated-scales": {"epilogue": Epilogue(scale="row", dense_scale="column", activation="silu", gated=True)},
    "full": {"epilogue": FULL, "bias": "row"},
    "batch": {"batch": "both", "bias": "row"},
}


def candidates() -> list[object]:
    """Every candidate with the longest epilogues, with those at the limits of tiles, and with batches. They are in whole
    tiles and ranges, for each width of output element.
    """
    found: dict[Product, str] = {}
    for kind, (a, out), (key, options) in itertools.product(
        ("linear", "matmul"), (("bf16", "bf16"), ("e4m3", "f16"), ("e4m3", "f32"), ("s8", "s8")), LONGEST.items()
    ):
        problem = Problem(kind, a, a, out, **options)
        for n, bulk in itertools.product((8, 16, 32, 64, 4096), (False, True)):
            for schedule, _ in candidates_for(Demand.of_problem(problem), SM_90A, n, bulk=bulk):
                found[problem, schedule] = key
                if not schedule.cuts and cuts(problem, schedule):
                    found[problem, schedule.changed(work="ranges")] = key
    return [pytest.param(*each, id=f"{key}-{name(each)}") for each, key in found.items()]


@pytest.mark.sampled(7, every=20)
@pytest.mark.parametrize(("problem", "schedule"), candidates())
def test_no_candidate_spills(problem: Problem, schedule: Schedule) -> None:
    check_clean(problem, schedule)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("m", "n", "consumers", "work"),
    [
        (128, 16, 2, "ranges"),
        (128, 128, 2, "ranges"),
        (192, 128, 3, "ranges"),
        (192, 16, 3, "tiles"),
        (256, 64, 2, "tiles"),
    ],
)
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_producers_of_batches_do_not_spill(kind: Any, m: int, n: int, consumers: int, work: str) -> None:
    problem = Problem(kind, "bf16", "bf16", "bf16", bias="row", batch="both")
    shape = TileShape.of(m, n, consumers, Demand.of_problem(problem))
    schedule = shape.schedule(Demand.of_problem(problem), bulk=True, metadata="stage", work=work)
    check_clean(problem, deepest(problem, schedule, SM_90A))


def vectors_with_short_sums() -> list[object]:
    """Every candidate for vectors with sums in f16, which leave the largest tiles the fewest registers."""
    problems = (
        Problem("matmul", a, a, "f16", accumulate="f16", pattern=pattern, b_layout="n_major")
        for a in ("f16", "e4m3")
        for pattern in ("2:64@V256", "4:8@256", "2:8@V128")
    )
    found = (
        (problem, schedule)
        for problem in problems
        for n in (16, 4096)
        for schedule, _ in candidates_for(Demand.of_problem(problem), SM_90A, n, bulk=True)
    )
    return [pytest.param(*each, id=f"{each[0].a}-{each[0].pattern}-{name(each)}") for each in dict.fromkeys(found)]


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("problem", "schedule"), vectors_with_short_sums())
def test_no_candidate_for_vectors_spills(problem: Problem, schedule: Schedule) -> None:
    check_clean(problem, schedule)


def fused_products() -> list[Product]:
    """Every epilogue on the widest tiles, for each width of output element that a product may have, and both stores."""
    problems = [
        Problem(kind, a, a, out, bias="row", epilogue=epilogue)
        for epilogue in EPILOGUES.values()
        for kind in ("linear", "matmul")
        for a, out in (("bf16", "bf16"), ("s8", "s8"), ("e4m3", "f32"))
    ]
    return [
        (problem, schedule)
        for problem in problems
        for schedule in dict.fromkeys(
            choose(problem, m, n, SM_90A, 132, aligned_output=aligned)
            for m, n in ((MANY, 256), TALL)
            for aligned in (False, True)
        )
    ]


def fused_name(product: Product) -> str:
    problem, _ = product
    return f"{next(key for key, epilogue in EPILOGUES.items() if epilogue == problem.epilogue)}-{name(product)}"


def fused_shown(product: Product) -> bool:
    """The longest epilogues, and those that read arrays."""
    return product[0].epilogue in (FULL, EPILOGUES["c-f16"], EPILOGUES["gelu-tanh"], EPILOGUES["gated-scaled"])


@pytest.mark.sampled(7, every=7)
@pytest.mark.parametrize(
    ("problem", "schedule"),
    [
        pytest.param(*product, id=fused_name(product), marks=() if fused_shown(product) else pytest.mark.slow)
        for product in fused_products()
    ],
)
def test_fused_epilogues_assemble_cleanly(problem: Problem, schedule: Schedule) -> None:
    check_clean(problem, schedule)


READS = ("bias", "scale", "dense_scale", "dense_bias")


@pytest.mark.sampled(7, every=7)
@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
@pytest.mark.parametrize("left_out", [*READS, "all"])
@pytest.mark.parametrize(("a", "out"), [("bf16", "bf16"), ("e4m3", "f32"), ("s8", "f16")])
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_all_that_may_be_read_beside_the_tallest_tile(kind: str, a: str, out: str, left_out: str, gated: bool) -> None:
    """All vectors but one, or C instead of them."""
    if gated and left_out == "all":
        pytest.skip("a gated product takes no c")
    reads = {"scale": "row", "dense_scale": "column", "dense_bias": "f32"}
    given = {"c": "f32"} if left_out == "all" else {name: how for name, how in reads.items() if name != left_out}
    epilogue = Epilogue(alpha=True, activation="gelu", gated=gated, out_scale="tensor", **given)
    bias = None if left_out in ("bias", "all") else "row"
    problem = Problem(kind, a, a, out, bias=bias, epilogue=epilogue)
    schedule = choose(problem, *TALL, SM_90A, 132, aligned_output=True)
    assert schedule.tile.n == 192
    check_clean(problem, schedule)


@pytest.mark.parametrize("aligned", [False, True], ids=["direct", "bulk"])
@pytest.mark.parametrize(
    "problem",
    [
        Problem("linear", "bf16", "bf16", "bf16", bias="row", batch="dense"),
        Problem("matmul", "f16", "f16", "f32", b_layout="n_major", batch="both"),
        Problem("matmul", "e4m3", "e4m3", "bf16", batch="sparse", epilogue=EPILOGUES["c-f16"]),
        pytest.param(Problem("linear", "s8", "s8", "s32", batch="both"), marks=pytest.mark.slow),
        pytest.param(Problem("linear", "f16", "f16", "f32", batch="dense", epilogue=FULL), marks=pytest.mark.slow),
    ],
    ids=lambda problem: f"{problem.kind}-{problem.batch}-{problem.a}-{problem.out}",
)
def test_batches_assemble_cleanly_on_the_widest_tiles(problem: Problem, aligned: bool) -> None:
    schedule = choose(problem, MANY, 256, SM_90A, 132, aligned_output=aligned)
    check_clean(problem, schedule)


def check_clean(problem: Problem, schedule: Schedule) -> None:
    """The kernel has no spill, and the assembler warns of nothing."""
    assembly = assemble(compile_product(problem, schedule).ptx)
    assert assembly.clean, (assembly.kernels, [warning.text for warning in assembly.warnings])


def check_assembly(problem: Problem, schedule: Schedule, sparse: str) -> None:
    """Assembled without remarks, all of its products are those named `sparse`."""
    assembly = assemble(compile_product(problem, schedule).ptx)
    assert not [warning.text for warning in assembly.warnings]
    assert assembly.clean, assembly.kernels
    sass = disassemble(assembly.cubin)
    found = opcodes(sass)
    # Two products of 64 bytes of K a step: eight in the main loop's body, two in the rest.
    assert sum(count for opcode, count in found.items() if opcode.startswith(sparse)) >= 10
    assert not [opcode for opcode in found if "GMMA" in opcode and not opcode.startswith(sparse)]
    assert {opcode.split(".")[1] for opcode in found if opcode.startswith("USETMAXREG")} == {"DEALLOC", "TRY_ALLOC"}
    assert any(opcode.startswith("UTMALDG") for opcode in found)
    for limit, most in registers_by_role(sass):
        assert most < limit, "a role uses a register that setmaxnreg has taken from it"


def registers_by_role(sass: str) -> list[tuple[int, int]]:
    """What each setmaxnreg leaves a warp, and the highest register in the code from there to the next one."""
    _, *roles = re.split(r"USETMAXREG\.", sass)
    limits = [int(re.search(r"0x[0-9a-f]+", role.partition(";")[0])[0], 16) for role in roles]
    return [(limit, max(map(int, re.findall(r"\bR(\d+)\b", role)))) for limit, role in zip(limits, roles, strict=True)]


def test_the_default_set_has_every_8_bit_mix_output_and_store() -> None:
    chosen = [product for product in eight_bit_products() if shown(product)]
    assert {(problem.a, problem.b) for problem, _ in chosen} == set(EIGHT_BITS)
    assert {schedule.store.way for _, schedule in chosen} == {"direct", "bulk"}
    assert {schedule.tile.n for _, schedule in chosen} == {16, 128, 192, 256}
    for pair in EIGHT_BITS:
        chosen_of_kind = {p.out for p, _ in chosen if (p.a in FP8) == (pair[0] in FP8)}
        assert chosen_of_kind == set(PRODUCTS[pair])


def test_the_default_set_has_every_width_and_store() -> None:
    chosen = [product for product in every_product() if representative(product)]
    assert {schedule.tile.n for _, schedule in chosen} == {*TILE_N, 192}
    assert {(problem.kind, problem.b_layout, bool(problem.bias)) for problem, _ in chosen} == {
        ("linear", "k_major", True),
        ("matmul", "k_major", False),
        ("matmul", "n_major", False),
    }
    assert {schedule.store.way for _, schedule in chosen} == {"direct", "bulk"}
    assert {problem.out for problem, _ in chosen} == {"f16", "bf16", "f32"}
    assert min(s.tile.n for p, s in every_product() if p.b_layout == "n_major") == MIN_N_MAJOR["wgmma"]


@pytest.mark.parametrize("work", ["ranges", "pairs"])
def test_few_tokens_of_shared_vectors_assemble_cleanly_in_ranges(work: str) -> None:
    """Their producer gathers rows and copies metadata, for ranges too."""
    problem = Problem("matmul", "bf16", "bf16", "e4m3", pattern="2:5@V256", b_layout="n_major", bias="row")
    schedule = choose(problem, 2, 64, SM_90A, 132, aligned_output=True, k=3379, cuts=True)
    assert (schedule.work.unit, schedule.ring.metadata) == ("pairs", "stage")
    assembly = assemble(compile_product(problem, schedule.changed(work=work)).ptx)
    assert assembly.clean, assembly.faults


@pytest.mark.parametrize("pattern", ["3:5@33", "2:8@128"])
def test_two_ctas_of_cuda_cores_on_an_sm_assemble_cleanly(pattern: str) -> None:
    """Their producers gather with few registers."""
    schedule = Schedule.of(tile_n=128, tile_k=32, stages=2, in_flight=0, consumers=1, resident=2)
    problem = Problem("matmul", "f32", "f32", "f32", pattern=pattern, b_layout="n_major")
    assembly = assemble(compile_product(problem, schedule).ptx)
    assert assembly.clean, assembly.faults
