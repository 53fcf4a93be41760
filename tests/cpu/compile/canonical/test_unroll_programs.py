"""A persistent kernel becomes a program for each tile."""

from __future__ import annotations

from support.golden import Golden
from support.pass_golden import before, check_pass


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "unroll-programs", before("unroll-programs", "persistent_groups"))
