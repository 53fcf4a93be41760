from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import louver
from louver.emulator import Order
from louver.emulator.removal import survey, undetected
from louver.formats.dtypes import element_type
from louver.frontend.problem import Problem
from louver.kernels import reference
from louver.kernels.emulate import emulate
from louver.passes.pipeline import CompiledProduct, compile_product
from louver.passes.schedule import Schedule
from louver.ptx.module import Kernel, Module

pytestmark = pytest.mark.sampled(7)

# One of each structure: what is stored how, one CTA or a cluster, a ring that wraps early or late, who feeds it with what.
STRUCTURES = {
    "direct": (Problem("linear", bias="row"), Schedule(tile_n=16, stages=3), 1),
    "bulk": (Problem("linear"), Schedule(tile_n=16, stages=3, store="bulk"), 1),
    "cluster": (Problem("matmul"), Schedule(tile_n=64, stages=2, cluster=2, store="bulk"), 2),
    "cluster-along-n": (Problem("matmul"), Schedule(tile_n=16, stages=2, cluster=2, multicast="values"), 2),
    "chunks": (Problem("linear", out="f32"), Schedule(tile_n=48, stages=2, store="bulk", staging=16), 1),
    "two-blocks": (Problem("matmul", b_layout="n_major"), Schedule(tile_m=256, tile_n=64, tile_k=128, stages=2), 1),
    "promoted": (
        Problem("linear", "e4m3", "e4m3", "f32", accumulate="promoted"),
        Schedule(tile_n=16, tile_k=128, stages=3),
        1,
    ),
    "registers": (Problem("linear"), Schedule(tile_n=16, stages=3, values="registers"), 1),
    "alone": (Problem("linear"), Schedule(64, 16, 64, 1, 1, specialized=False, in_flight=0), 1),
    "ping-pong": (Problem("linear"), Schedule(64, 16, stages=3, pingpong=True), 1),
    "ping-pong-bulk": (Problem("linear"), Schedule(128, 16, stages=2, pingpong=True, store="bulk"), 1),
    "metadata-in-the-stage": (Problem("linear"), Schedule(tile_n=16, stages=3, metadata="stage", in_flight=0), 1),
    "metadata-on-its-own-barrier": (
        Problem("matmul"),
        Schedule(tile_n=64, tile_k=128, stages=2, cluster=2, metadata="barrier"),
        2,
    ),
    "shared-metadata": (
        Problem("matmul"),
        Schedule(tile_n=16, stages=3, cluster=2, multicast="values", metadata="stage"),
        2,
    ),
}


UNNOTICED = {"alone": "wgmma.fence"}
"""What the rules do not ask for, and where: ptxas does, for without these it puts in fences of its own and serializes."""


def attempts(compiled: CompiledProduct, sms: int, rng: np.random.Generator):
    """A function that runs a kernel in place of the compiled one, on two problems, and checks the results bit for bit.

    Both have two tiles a CTA; one has two rounds of the main loop and all steps of the rest, the other only a few of them.
    """
    problems = []
    schedule = compiled.schedule
    # Of tiles taken in turn, two for each warpgroup.
    m, n = (4 if schedule.pingpong else 2) * schedule.tile_m, schedule.tile_n
    if schedule.multicast == "values":
        n *= schedule.cluster
    else:
        m *= schedule.cluster
    round_steps = 512 // schedule.tile_k
    for steps in (3 * round_steps - 1, 3):
        k = schedule.tile_k * (steps - 1) + 8
        numpy = element_type(compiled.nest.a.element).numpy
        w = rng.integers(-4, 5, (m, k)).astype(numpy)
        s = louver.compress(louver.prune(w, "2:4"), "2:4")
        x = rng.integers(-4, 5, (n, k)).astype(numpy)
        has_bias = any(parameter.name == "bias" for parameter in compiled.signature.parameters)
        bias = rng.integers(-4, 5, m).astype(np.float16) if has_bias else None
        y = reference.product(s.dense(), x.T, bias, element_type(compiled.nest.store.element).numpy)
        dense = x if compiled.nest.b.k_major else np.ascontiguousarray(x.T)
        problems.append((s, dense, bias, y.T if compiled.nest.store.transposed else y))

    def attempt(kernel: Kernel, order: Order) -> None:
        changed = replace(compiled, module=Module(compiled.module.target, [kernel]))
        for s, dense, bias, expected in problems:
            got, _ = emulate(changed, s, dense, bias, sm_count=sms, order=order)
            assert np.array_equal(got, expected), "the result is wrong"

    return attempt


@pytest.mark.parametrize("name", STRUCTURES)
def test_every_wait_fence_and_arrival_is_needed_and_its_absence_noticed(name: str, rng: np.random.Generator) -> None:
    problem, schedule, sms = STRUCTURES[name]
    compiled = compile_product(problem, schedule)
    outcomes = survey(compiled.kernel, attempts(compiled, sms, rng))
    assert len(outcomes) >= 30
    missed = [str(removal) for removal in undetected(outcomes)]
    assert not [text for text in missed if name not in UNNOTICED or UNNOTICED[name] not in text]
