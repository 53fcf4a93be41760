"""An integer that a loop counts beside its own number is made of that."""

from __future__ import annotations

from support.golden import Golden
from support.pass_golden import before, check_pass


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "drop-counters", before("drop-counters", "counted_offsets"))
