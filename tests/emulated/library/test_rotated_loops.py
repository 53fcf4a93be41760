"""Rotated loops of register tiles: nothing in their order is missing, and the emulator sees each part of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from louver.compile.lower.tiles import rotate
from louver.compile.plan.register_tiles import RegisterTiles
from louver.compile.problem_tiles import ProblemTiles, compile_problem_tiles
from louver.emulator.order import Order
from louver.frontend.problem import Problem
from louver.library.emulate import emulate
from louver.ptx.module import Kernel
from support.fused import fused_operands
from support.removal import survey, undetected


@pytest.fixture(autouse=True)
def _short_steps_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotate, "LEAST_ROTATED", 1)


def test_every_wait_and_barrier_of_a_rotated_loop_counts(rng: np.random.Generator) -> None:
    """More steps than slots, so that each slot is filled again."""
    problem, schedule = Problem("linear"), RegisterTiles("sm_86", 64, 64, 64, 2, 16, True)
    made = ProblemTiles.of(problem, schedule, compile_problem_tiles(problem, schedule))
    given = fused_operands(rng, problem, 64, 64, 64 * 14)

    def attempt(kernel: Kernel, order: Order) -> None:
        module = replace(made.tiles.module, kernels=[kernel])
        y, _ = emulate(
            replace(made, tiles=replace(made.tiles, module=module)), given.s, given.b.T, sm_count=1, order=order
        )
        given.assert_close(y.T)

    outcomes = survey(made.kernel, attempt)
    # Behind the loop, which has waited and met once more, nothing is copied and no slot is read.
    within = [outcome for outcome in outcomes if outcome.removal.what != "bar.warp.sync 4294967295;"][:-3]
    assert len(within) == 8 and not undetected(within)
