"""`louver.advise`: compares formats for a product, by measurement if asked."""

from __future__ import annotations

from collections.abc import Iterable

from louver.advice.formats import Format, formats_of
from louver.advice.product import Advice, checked_size, compare, device_at_hand, device_named
from louver.formats.dynamo import opaque
from louver.formats.given import check_switch
from louver.measure.formats import timer
from louver.measure.machine import require_torch


@opaque
def advise(
    m: int,
    n: int,
    k: int,
    *,
    formats: Iterable[str | Format] | None = None,
    device: str | None = None,
    measure: bool = False,
) -> Advice:
    """Which format a weight [m, k] should have for products with n tokens.

    formats: to compare, such as ["f16 2:4", "e4m3"]; by default dense and 2:4 of f16, bf16, e4m3 and s8, and some patterns of
    vectors. device: name of a GPU whose times are recorded; by default the one at hand, else an H200.
    measure: time the formats on the GPU at hand, on random data, by PyTorch.

    A time is measured here, else of a record of this very product, else predicted by rates that are fitted to records; its
    interval says how far to trust it. Raises TypeError or ValueError for sizes, formats and devices that are none, and
    CannotMeasureError if this machine cannot measure.
    """
    check_switch("measure", measure)
    sizes = checked_size("m", m), checked_size("n", n), checked_size("k", k)
    listed = None if formats is None else list(formats) if not isinstance(formats, str) else formats
    if measure and device is not None:
        raise ValueError(f"formats are measured on the GPU at hand: leave out measure or device, got {device!r}")
    if not measure:
        return compare(*sizes, listed, device_at_hand() if device is None else device_named(device), {})
    # Formats are checked before PyTorch is imported.
    wanted, run = formats_of(listed), timer(require_torch())
    taken = {(each, *sizes): time for each, time in run(wanted, *sizes).items()}
    return compare(*sizes, wanted, device_at_hand(), taken)
