"""Schedules without a producer, with metadata in the ring, that wait for every step's products, in clusters that share either
operand, and whose warpgroups take tiles in turn, on the device.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from louver.choose.configure import deepest
from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.isa.targets import SM_90A
from louver.library.state import TensorState
from louver.measure.launches import rows_of
from support.device_products import guarded, to_numpy, to_torch
from support.products import assert_exact, operands

pytestmark = pytest.mark.sampled(2)

ALONE = Schedule.of(tile_m=64, consumers=1, stages=1, specialized=False, in_flight=0)
STAGE = Schedule.of(stages=2, metadata="stage")
BARRIER = Schedule.of(stages=2, metadata="barrier")

SCHEDULES = {
    "alone": ALONE,
    "alone-wide-step": ALONE.changed(tile_k=128),
    "alone-barrier": ALONE.changed(metadata="barrier"),
    "one-stage": ALONE.changed(specialized=True),
    "drained": Schedule.of(stages=2, in_flight=0),
    "stage": STAGE,
    "stage-wide-step": STAGE.changed(tile_k=128),
    "stage-two-blocks": STAGE.changed(tile_m=256, tile_n=128),
    "stage-bulk": STAGE.changed(store="bulk"),
    "barrier": BARRIER,
    "barrier-wide-step-drained": BARRIER.changed(tile_k=128, in_flight=0),
    "barrier-cluster": BARRIER.changed(cluster=2),
    "cluster": Schedule.of(stages=2, cluster=2, store="bulk"),
    "barrier-three-consumers": BARRIER.changed(tile_m=192, tile_n=192, consumers=3),
}


@pytest.mark.parametrize("k", [1328, 80])
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("dtype", ["f16", "e4m3", "s8"])
def test_every_structure(rng: np.random.Generator, name: str, dtype: str, k: int) -> None:
    """Several tiles a CTA; no size a multiple of a tile's; rows of whole chunks for the bulk stores; K steps that turn the ring, and
    fewer than it holds.
    """
    m, n = 3216, 2576
    problem = Problem("linear", dtype, dtype, "f16")
    given = operands(rng, m, n, k, dtype)
    # One tensor has metadata in both forms, one after the other.
    state, target, x = TensorState(), guarded((n, m), "f16"), to_torch(given.b.T)
    torch: Any = sys.modules["torch"]
    for schedule in (deepest(problem, SCHEDULES[name], SM_90A), Schedule.of(tile_n=128, stages=3)):
        target.view.fill_(float("nan"))
        launcher = state.launcher(given.s, problem, schedule, 0, 0)
        matrices = rows_of(x), rows_of(target.view)
        launch = launcher.bound(launcher.sized(n, *matrices), *matrices)
        for _ in range(3):
            launch.on(torch.cuda.current_stream().cuda_stream)()
        assert_exact(to_numpy(target.view).T, given, bias=False)
    target.assert_untouched()


@pytest.mark.parametrize("name", ["stage", "cluster", "barrier-cluster"])
def test_dense_operands_contiguous_along_n(rng: np.random.Generator, name: str) -> None:
    m, n, k = 3216, 2576, 1320
    given = operands(rng, m, n, k)
    target, b = guarded((m, n), "f16"), to_torch(given.b)
    problem = Problem("matmul", b_layout="n_major")
    schedule = deepest(problem, SCHEDULES[name], SM_90A)
    launcher = TensorState().launcher(given.s, problem, schedule, 0, 0)
    matrices = rows_of(b), rows_of(target.view)
    launch = launcher.bound(launcher.sized(n, *matrices), *matrices)
    torch: Any = sys.modules["torch"]
    for _ in range(3):
        launch.on(torch.cuda.current_stream().cuda_stream)()
    assert_exact(to_numpy(target.view), given, bias=False)
    target.assert_untouched()
