"""Predicted times of products on an H200, for choices that are made without one."""

from __future__ import annotations

import functools
from typing import Final

from louver.frontend.problem import Problem
from louver.ir.product import selection_of
from louver.isa.targets import target
from louver.library.configure import choose
from louver.library.demand import Demand
from louver.library.ranges import Cutting
from louver.library.times import CLOCK, H200, copy_clocks

TARGET: Final = "sm_90a"
SM_COUNT: Final = 132

DENSE: Final = 0.8
"""Time of cuBLAS over the model's for a dense product, without the launch: the rates are fitted to sparse products, and say 22 to 27% too much."""


@functools.lru_cache(maxsize=4096)
def predicted_us(rows: int, columns: int, tokens: int, element: str, pattern: str | None) -> float:
    """µs of `linear` with a weight [rows, columns] on an H200.

    element: of weight and tokens. pattern: of the weight; None for the dense product of cuBLAS.

    Raises ValueError for a pattern and an element type without kernels.
    """
    gathers = pattern is not None and selection_of(pattern).indexed
    problem = Problem("linear", element, element, element, pattern, b_layout="n_major" if gathers else "k_major")
    demand = Demand.of_problem(problem)
    schedule = choose(problem, rows, tokens, target(TARGET), SM_COUNT, aligned_output=True, k=columns, cuts=True)
    cutting, k = Cutting.of(demand, schedule), demand.depth(columns, schedule.ring.metadata)
    cut = cutting.best(rows, tokens, k, 1, SM_COUNT) if schedule.cuts else cutting.whole(rows, tokens, k, 1)
    clocks = cutting.cycles(cut, rows, tokens, k, 1, SM_COUNT)
    if gathers:
        # Tokens are copied to rows of K first.
        clocks += copy_clocks(tokens * columns * 2, H200)
    if pattern is None:
        clocks = H200.begin + DENSE * (clocks - H200.begin)
    return clocks / CLOCK
