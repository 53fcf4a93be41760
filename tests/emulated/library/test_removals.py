from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import louver
from louver.choose.ranges import Ranges
from louver.compile.compiled import CompiledProduct
from louver.compile.plan.schedule import Schedule, gathers
from louver.emulator import Order
from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.frontend.problem import Problem
from louver.ir.sched import ops
from louver.isa.targets import SM_90A
from louver.isa.wgmma import Wgmma
from louver.library import reference
from louver.library.emulate import emulate
from louver.ptx.assembler import assemble
from louver.ptx.module import Inst, Kernel, Module
from louver.ptx.printer import print_module
from support.compiled import compiled_product
from support.gathered import shared, vectors
from support.removal import ORDERS, removals, survey, undetected, work_removals

# One of each structure: what is stored how, one CTA or a cluster, a ring that wraps early or late, who feeds it with what.
# The first one runs fastest.
STRUCTURES = {
    "promoted": (
        Problem("linear", "e4m3", "e4m3", "f32", accumulate="promoted"),
        Schedule.of(tile_n=16, tile_k=128, stages=3),
        1,
    ),
    "direct": (Problem("linear", bias="row"), Schedule.of(tile_n=16, stages=3), 1),
    "bulk": (Problem("linear"), Schedule.of(tile_n=16, stages=3, store="bulk"), 1),
    "cluster": (Problem("matmul"), Schedule.of(tile_n=64, stages=2, cluster=2, store="bulk"), 2),
    "chunks": (Problem("linear", out="f32"), Schedule.of(tile_n=48, stages=2, store="bulk", staging=16), 1),
    "two-blocks": (Problem("matmul", b_layout="n_major"), Schedule.of(tile_m=256, tile_n=64, tile_k=128, stages=2), 1),
    "alone": (
        Problem("linear"),
        Schedule.of(tile_m=64, tile_n=16, tile_k=64, consumers=1, stages=1, specialized=False, in_flight=0),
        1,
    ),
    "metadata-in-the-stage": (Problem("linear"), Schedule.of(tile_n=16, stages=3, metadata="stage", in_flight=0), 1),
    "metadata-on-its-own-barrier": (
        Problem("matmul"),
        Schedule.of(tile_n=64, tile_k=128, stages=2, cluster=2, metadata="barrier"),
        2,
    ),
    "dependent": (
        Problem("linear", bias="row"),
        Schedule.of(tile_n=16, stages=3, metadata="stage", resident=2, dependent=True),
        1,
    ),
    "dependent-cluster": (
        Problem("matmul"),
        Schedule.of(tile_n=64, stages=2, cluster=2, store="bulk", dependent=True),
        2,
    ),
    "dense": (Problem("matmul", pattern=None, b_layout="n_major"), Schedule.of(tile_n=64, tile_k=128, stages=2), 1),
    "gathered-two-lists": (
        Problem("matmul", pattern="2:8@64", b_layout="n_major"),
        Schedule.of(tile_n=64, stages=3, store="bulk"),
        1,
    ),
    "gathered-dependent": (
        Problem("matmul", pattern="2:8@128", b_layout="n_major"),
        Schedule.of(tile_n=16, tile_k=128, stages=2, dependent=True),
        1,
    ),
    "gathered": (
        Problem("matmul", pattern="2:8@128", b_layout="n_major"),
        Schedule.of(tile_n=16, tile_k=128, stages=2),
        1,
    ),
    "gathered-turned": (
        Problem("matmul", "s8", "s8", "f16", pattern="2:8@64", b_layout="n_major"),
        Schedule.of(tile_m=64, consumers=1, tile_n=128, tile_k=128, stages=2, store="bulk", staging=32, dependent=True),
        1,
    ),
    "shared-vectors": (
        Problem("matmul", pattern="2:8@V128", b_layout="n_major"),
        Schedule.of(tile_n=16, tile_k=128, stages=2),
        1,
    ),
    "shared-vectors-turned": (
        Problem("matmul", "s8", "s8", "s32", pattern="2:8@V64", b_layout="n_major"),
        Schedule.of(tile_n=64, tile_k=128, stages=2),
        1,
    ),
    "shared-vectors-in-the-stage": (
        Problem("matmul", pattern="2:8@V64", b_layout="n_major"),
        Schedule.of(tile_n=64, stages=3, metadata="stage"),
        1,
    ),
    "shared-vectors-on-a-barrier": (
        Problem("matmul", pattern="2:8@V128", b_layout="n_major"),
        Schedule.of(tile_n=16, tile_k=128, stages=2, metadata="barrier", dependent=True),
        1,
    ),
    "cuda-cores": (
        Problem("matmul", "f32", "f32", "f32", pattern="2:8@64", b_layout="n_major"),
        Schedule.of(tile_m=64, tile_n=16, tile_k=32, stages=2, in_flight=0, consumers=1),
        1,
    ),
    "cuda-cores-picks": (
        Problem("matmul", "f32", "f32", "f32", pattern="2:8@32", b_layout="n_major"),
        Schedule.of(tile_m=64, tile_n=64, tile_k=32, stages=2, in_flight=0, consumers=1, metadata="stage"),
        1,
    ),
    "ranges": (Problem("linear", bias="row"), Schedule.of(tile_n=16, stages=3, work="ranges"), 2),
    "ranges-bulk": (Problem("matmul"), Schedule.of(tile_n=64, stages=2, cluster=2, store="bulk", work="ranges"), 4),
    "pairs": (Problem("linear", bias="row"), Schedule.of(tile_n=16, stages=3, work="pairs"), 2),
    "pairs-bulk": (
        Problem("matmul"),
        Schedule.of(tile_n=64, stages=2, store="bulk", work="pairs", metadata="stage", dependent=True),
        2,
    ),
}


UNNOTICED = {"alone": "wgmma.fence", "cuda-cores": "bar.warp.sync", "cuda-cores-picks": "bar.warp.sync"}
"""Removals that no run shows, by structure. The PTX ISA allows the first one; ptxas asks for it: without it, it serializes the products.
Lanes of a warp of the emulator go on together, so that one of them releases a stage when all have read it.
"""


def attempts(compiled: CompiledProduct, sms: int, rng: np.random.Generator, count: int = 2):
    """A function that runs a kernel in place of the compiled one, on `count` problems, and checks the results bit for bit.

    Each has two tiles a CTA. The first has two rounds of the main loop and all steps of the rest, the second a few of them.
    K ends within the last product of the last step, so that every product of a step multiplies data.
    Of ranges the first problem has two rounds of the main loop in one range and all steps of the rest in the other, of two CTAs; the
    second one more parts than are read together. Of pairs each CTA has two whole tiles before its range.
    """
    problems = []
    schedule = compiled.schedule
    m, n = 2 * schedule.tile.m * schedule.order.cluster, schedule.tile.n
    products = [n.op.k for n in compiled.kernel.body.walk() if isinstance(n, Inst) and isinstance(n.op, Wgmma)]
    # CUDA cores take 8 columns of a step at a time. The producer's loop goes round twice.
    round_steps, columns = (512 // schedule.tile.k, products[0]) if products else (1, 8)
    unroll = max(op.unroll.value.data for op in compiled.sched.walk() if isinstance(op, ops.LoopOp))
    most = 3 * round_steps - 1 if products else 2 * unroll
    cuts: list[tuple[int, Ranges | None]] = [(most, None), (3, None)]
    if schedule.pairs:
        m = 5 * schedule.tile.m
        cuts = [
            (4 * round_steps - 1, Ranges(5, 4, 2, 2 * round_steps)),
            (round_steps - 1, Ranges(5, 4, 2, round_steps // 2)),
        ]
    elif schedule.cuts:
        granule = round_steps // 2
        cuts = [
            (4 * round_steps - 1, Ranges(2, 0, 2, 2 * round_steps)),
            (5 * granule - 1, Ranges(2, 0, 5, granule)),
        ]
    given = [(n, *cut) for cut in cuts[:count]]
    if gathers(compiled.nest.a.pattern, schedule.ring.metadata):
        # Rows of a tile that ends behind N are copied by instructions of their own.
        given.append((n - 8, *cuts[0]))
    for n, steps, ranges in given:
        k = schedule.tile.k * steps - columns + 8
        if compiled.nest.a.selection.indexed:
            # So many columns are kept of more.
            pattern = Pattern.parse(compiled.nest.a.pattern)
            k = k * pattern.m // pattern.shared
        numpy = element_type(compiled.nest.a.element).numpy
        w = rng.integers(-4, 5, (m, k)).astype(numpy)
        s, w = left_operand(rng, compiled, w)
        x = rng.integers(-4, 5, (n, k)).astype(numpy)
        has_bias = any(parameter.name == "bias" for parameter in compiled.signature.parameters)
        bias = rng.integers(-4, 5, m).astype(np.float16) if has_bias else None
        y = reference.product(w, x.T, bias, element_type(compiled.nest.store.element).numpy)
        dense = x if compiled.nest.b.k_major else np.ascontiguousarray(x.T)
        problems.append((s, dense, bias, ranges, y.T if compiled.nest.store.transposed else y))

    def attempt(kernel: Kernel, order: Order) -> None:
        changed = replace(compiled, module=Module(compiled.module.target, [kernel]))
        for s, dense, bias, ranges, expected in problems:
            got, _ = emulate(changed, s, dense, bias, sm_count=sms, order=order, ranges=ranges)
            assert np.array_equal(got, expected), "the result is wrong"

    return attempt


def left_operand(rng: np.random.Generator, compiled: CompiledProduct, w: np.ndarray):
    """The operand that the product takes of `w`, and its meaning as a matrix."""
    pattern = compiled.nest.a.pattern
    if pattern is None:
        return w, w
    if pattern == "2:4":
        s = louver.compress(louver.prune(w, pattern), pattern)
        return s, s.dense()
    if compiled.nest.a.selection.lifted:
        return shared(rng, w.shape, pattern, element_type(w.dtype).name)
    given = vectors(rng, *w.shape, pattern, element_type(w.dtype).name)
    return given.rows(compiled.schedule), given.a


@pytest.mark.timeout(900)
@pytest.mark.sampled(7, every=7)
@pytest.mark.parametrize("name", STRUCTURES)
def test_every_wait_fence_and_arrival_is_needed_and_its_absence_noticed(name: str, rng: np.random.Generator) -> None:
    problem, schedule, sms = STRUCTURES[name]
    compiled = compiled_product(problem, schedule)
    outcomes = survey(compiled.kernel, attempts(compiled, sms, rng))
    assert len(outcomes) >= (9 if name.startswith("cuda-cores") else 30)
    missed = undetected(outcomes)
    assert not [str(removal) for removal in missed if UNNOTICED.get(name, "none") not in removal.what]
    if name == "alone":
        assert missed and not serialized(compiled.kernel)
        bare = compiled.kernel
        for position in sorted((removal.position for removal in missed), reverse=True):
            bare = next(removal.kernel for removal in removals(bare) if removal.position == position)
        assert serialized(bare)


def serialized(kernel: Kernel) -> bool:
    """Whether ptxas says that it serializes the kernel's products."""
    remarks = assemble(print_module(Module(SM_90A.name, [kernel])), SM_90A.name).warnings
    return any("serialized" in remark.text for remark in remarks)


@pytest.mark.timeout(1200)
@pytest.mark.sampled(7, every=4)
@pytest.mark.parametrize("name", STRUCTURES)
def test_every_product_load_and_store_is_needed(name: str, rng: np.random.Generator) -> None:
    problem, schedule, sms = STRUCTURES[name]
    compiled = compiled_product(problem, schedule)
    outcomes = survey(
        compiled.kernel, attempts(compiled, sms, rng, 2 if schedule.cuts else 1), ORDERS[:1], work_removals
    )
    if not name.startswith("cuda-cores"):
        products = sum("wgmma.mma_async" in outcome.removal.what for outcome in outcomes)
        assert products >= 2 * (512 // schedule.tile.k) - 1
    assert not [str(removal) for removal in undetected(outcomes)]
