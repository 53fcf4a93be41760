"""Two products of one dense operand become a product of a gated pair."""

from __future__ import annotations

from support.golden import Golden
from support.pass_golden import before, check_pass


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "fuse-gated-pair", before("fuse-gated-pair", "gated_layer"))
