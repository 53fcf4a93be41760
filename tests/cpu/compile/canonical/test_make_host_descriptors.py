"""A descriptor as an argument becomes an address, sizes and strides, and one made in the kernel."""

from __future__ import annotations

from support.golden import Golden
from support.pass_golden import before, check_pass


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "make-host-descriptors", before("make-host-descriptors", "given_descriptors"))
