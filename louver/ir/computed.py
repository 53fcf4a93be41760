"""Names of the arguments of a sparse tensor whose tiles are addressed at run time, and the page of its violations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

VALUES = ".values"
"""The values, until they take the name of the tensor."""

CODES = ".codes"
"""The codes of all groups, 4 bits each."""

COUNT = ".count"
"""The elements of the dense tensor."""

NAN = ".nan"
"""The place of the NaN of the page, in elements behind the first value."""

COLUMNS = ".columns"
"""The length of a row of the dense tensor, if rows are not the sparse axis."""

VIOLATIONS = "violations.flag"
"""The page: a flag, i32, that a kernel sets to 1, and behind it numbers that are NaN in every format."""

NAN_PLACE = 16
"""Bytes from the flag to the first NaN."""

PAGE_BYTES = 64
"""Bytes of the page. A piece of a row, 16 bytes, fits behind the flag."""



def new_page() -> NDArray[np.uint8]:
    """A page without a violation."""
    page = np.full(PAGE_BYTES, 0xFF, np.uint8)
    page[:NAN_PLACE] = 0
    return page


def is_violated(page: NDArray[np.uint8]) -> bool:
    """Whether a kernel has set the flag."""
    return bool(page[0])


RULE = (
    "elements of a sparse tensor are read in pieces: neighbours along the sparse axis that begin at a whole group, with one mask, "
    "inside of the tensor"
)
"""What a kernel that sets the flag broke."""


class AddressError(ValueError):
    """A kernel read a sparse tensor at addresses that break the rule of pieces. Results that depend on them are NaN."""

    def __init__(self, kernels: str) -> None:
        super().__init__(
            f"{kernels} read a sparse tensor at a computed address against this rule: {RULE}. Rows of its results are NaN: mask rows and "
            "columns outside, and begin along the sparse axis at multiples of 16"
        )
