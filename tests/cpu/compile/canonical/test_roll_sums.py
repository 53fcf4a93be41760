"""Products without a loop become a loop over K."""

from __future__ import annotations

from support.golden import Golden
from support.pass_golden import before, check_pass


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "roll-sums", before("roll-sums", "whole_blocks"))
