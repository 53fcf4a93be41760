"""`louver.advise`: compares formats for a product, by measurement if asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import louver
from louver.advice.formats import Format, formats_of
from louver.advice.product import Advice, checked_size, compare, device_at_hand, device_named
from louver.advice.rates import Time
from louver.formats.dtypes import check_switch
from louver.formats.dynamo import opaque
from louver.isa.targets import TARGETS
from louver.measure.contenders import DENSE_CALLS, REFUSALS, dense_product
from louver.measure.machine import require_torch
from louver.measure.operands import converted, torch_dtype
from louver.measure.protocol import Protocol, median, spread
from louver.measure.sustained import Load, prepare, take_turns

ADVICE: Final = Protocol(rounds=10, burst_seconds=0.01, pause_seconds=0.01)
"""As the records' protocol for long lists of problems, with shorter bursts and more rounds: where two formats are close, a median of few
bursts chooses by chance.
"""


def bursts(
    torch: Any, formats: Iterable[Format], m: int, n: int, k: int, protocol: Protocol = ADVICE
) -> tuple[dict[Format, tuple[float, ...]], dict[Format, str]]:
    """Seconds of a call in each burst, by format; and why this GPU or PyTorch refuses the other formats.

    Formats that no GPU multiplies in these sizes (`Format.refusal`) are left out. Products of vectors include the copy of their
    tokens; those of 8 bits read tokens of 8 bits.
    """
    loads: dict[Format, Load] = {}
    refused: dict[Format, str] = {}
    for each in formats:
        if each.refusal(m, n, k):
            continue
        sets = protocol.sets(each.nbytes(m, k))
        try:
            loads[each] = prepare(torch, _call(torch, each, (m, n, k), sets), sets, protocol)
        except REFUSALS as error:
            refused[each] = (str(error) or type(error).__name__).splitlines()[0]
    return take_turns(loads, protocol), refused


def timer(torch: Any) -> Callable[[Iterable[Format], int, int, int], Mapping[Format, Time | str]]:
    """A function that measures formats of a product on PyTorch's current device: times, or why there is none."""

    def measured(formats: Iterable[Format], m: int, n: int, k: int) -> Mapping[Format, Time | str]:
        taken, refused = bursts(torch, formats, m, n, k)
        times = {each: Time.spread(median(t) * 1e6, min(spread(t), 0.99), "measured") for each, t in taken.items()}
        return times | refused

    return measured


def _call(torch: Any, format: Format, sizes: tuple[int, int, int], sets: int) -> Callable[[int], Any]:
    """A call with weight `index % sets`. All weights hold the same numbers, in memory of their own."""
    m, n, k = sizes
    element, out = format.element, format.problem.out

    def draw(rows: int) -> Any:
        return converted(torch, torch.randn(rows, k, device="cuda"), element)

    x, weight = draw(n), draw(m)
    y = torch.empty(n, m, dtype=torch_dtype(torch, out), device="cuda")
    if format.pattern is None:
        dense = [weight.clone().t() for _ in range(sets)]
        multiply = dense_product(torch, DENSE_CALLS[element, out], y)
        return lambda index: multiply(x, dense[index % sets])
    pruned = louver.prune(weight, format.pattern)
    sparse = [louver.compress(pruned, format.pattern) for _ in range(sets)]
    return lambda index: louver.linear(x, sparse[index % sets], out=y)


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
    wanted, run = formats_of(listed), timer(require_torch(TARGETS))
    taken = {(each, *sizes): time for each, time in run(wanted, *sizes).items()}
    return compare(*sizes, wanted, device_at_hand(), taken)
