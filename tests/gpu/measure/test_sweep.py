from __future__ import annotations

from typing import Any

import pytest

from random_products.cases import GROUP, cases
from random_products.check import checked, described

GROUPS = 8
SMALL = 300_000_000


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("vectors", [0.0, 1.0])
def test_a_group_of_the_sweep_is_right(torch: Any, vectors: float, group: int) -> None:
    wanted = list(cases(GROUP * GROUPS, 11, vectors))[group * GROUP : (group + 1) * GROUP]
    found = [checked(torch, "cuda", case) for case in wanted if case.m * case.n * case.k < SMALL]
    assert len(found) > 3
    assert [(described(outcome.case), outcome.wrong) for outcome in found if outcome.wrong] == []
