"""A branch that only computes becomes a choice between both results."""

from __future__ import annotations

from support.golden import Golden
from support.pass_golden import before, check_pass


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "select-branches", before("select-branches", "persistent_groups"))
