"""A product whose right operand is sparse becomes the transpose of one whose left operand is."""

from __future__ import annotations

from support.golden import Golden
from support.pass_golden import before, check_pass


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "turn-right-sparse", before("turn-right-sparse", "weight_blocks"))
