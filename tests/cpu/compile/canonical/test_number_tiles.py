"""Programs numbered along one axis get an axis for rows and one for columns."""

from __future__ import annotations

from support.golden import Golden
from support.pass_golden import before, check_pass


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "number-tiles", before("number-tiles", "split_rounds"))
