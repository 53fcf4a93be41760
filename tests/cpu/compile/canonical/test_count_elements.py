"""A loop over steps of K counts elements of K."""

from __future__ import annotations

from support.golden import Golden
from support.pass_golden import before, check_pass


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "count-elements", before("count-elements", "counted_offsets"))
