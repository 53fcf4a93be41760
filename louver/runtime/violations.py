"""Pages of violations in host memory that devices write: a kernel reports in its own page that it broke a rule.

A launch does not wait for its kernel, so the report is read at a later call. `louver.synchronize` waits first.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from louver.formats.dynamo import opaque
from louver.runtime.driver import call, device_context
from louver.runtime.memory import wait_for_device

NAN_PLACE = 16
"""Bytes from the flag, i32, which a kernel sets to 1, to numbers that are NaN in every format."""

PAGE_BYTES = 64
"""Bytes of a page. A piece of a row, 16 bytes, fits behind the flag."""

RULE = (
    "elements of a sparse tensor are read in pieces: 16 neighbours along the sparse axis (8 of f32) that begin at a whole group, with "
    "one mask for a group, inside of the tensor"
)
"""The rule that a kernel broke which sets the flag."""


_PORTABLE_AND_MAPPED = 1 | 2
"""CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP: all devices see the memory, at its host address."""


class AddressError(ValueError):
    """A kernel read a sparse tensor at addresses that break the rule of pieces. Results that depend on them are NaN, and wrong if they
    are integers.
    """

    def __init__(self, kernels: str) -> None:
        super().__init__(
            f"{kernels} read a sparse tensor at a computed address against this rule: {RULE}. Rows of its results are NaN; "
            "integers there have all bits set: compress along the axis that the kernel sums over, mask rows and columns outside, "
            "and begin along the sparse axis at multiples of 16"
        )


def new_page() -> NDArray[np.uint8]:
    """A page without a violation."""
    page = np.full(PAGE_BYTES, 0xFF, np.uint8)
    page[:NAN_PLACE] = 0
    return page


def is_violated(page: NDArray[np.uint8]) -> bool:
    """Whether a kernel has set the flag."""
    return bool(page[0])


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """The page of a kernel on a device. address: for the device. data: the same bytes for the host."""

    kernel: str
    ordinal: int
    address: int
    data: NDArray[np.uint8]

    def check(self) -> None:
        """Raises AddressError once if the kernel has reported since the last check."""
        if is_violated(self.data):
            self.data[:] = new_page()
            raise AddressError(self.kernel)


@functools.cache
def _pages() -> dict[tuple[str, int], Page]:
    return {}


def page_of(kernel: str, ordinal: int) -> Page:
    """The page of a kernel on a device, made the first time. It lives as long as the process, because graphs may write it."""
    key = kernel, ordinal
    if key not in _pages():
        with device_context(ordinal):
            address = int(
                call("cuMemHostAlloc", PAGE_BYTES, _PORTABLE_AND_MAPPED, doing="allocating a page of violations")
            )
        data: NDArray[np.uint8] = np.ctypeslib.as_array((ctypes.c_uint8 * PAGE_BYTES).from_address(address))
        data[:] = new_page()
        _pages()[key] = Page(kernel, ordinal, address, data)
    return _pages()[key]


def check_violations() -> None:
    """Raises AddressError for a kernel that has reported a violation."""
    for page in list(_pages().values()):
        page.check()


@opaque
def synchronize() -> None:
    """Waits for all work on the devices that run kernels with computed addresses, and raises what these kernels reported.

    Raises AddressError, a ValueError, that names the kernel. Its results have NaN in the rows that it could not read. Without
    such a kernel it returns at once.
    """
    for ordinal in sorted({page.ordinal for page in _pages().values()}):
        wait_for_device(ordinal, "waiting for kernels")
    check_violations()
