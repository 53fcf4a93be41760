"""The rest of K behind a loop becomes a step of the loop."""

from __future__ import annotations

from support.golden import Golden
from support.pass_golden import before, check_pass


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "join-tails", before("join-tails", "last_step"))
