"""Promises of a user about computed values go; the multiples of arguments and the neighbours of remainders stay."""

from __future__ import annotations

from support.golden import Golden
from support.pass_golden import before, check_pass


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "drop-assumptions", before("drop-assumptions", "weight_pointers"))
