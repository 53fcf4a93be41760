"""Times formats of a product on the GPU at hand, in turns, on random data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import louver
from louver.advice.formats import Format
from louver.advice.times import Time
from louver.measure.contenders import DENSE_CALLS, REFUSALS, dense_product
from louver.measure.graph import Load, prepare, take_turns
from louver.measure.operands import converted, torch_dtype
from louver.measure.protocol import Protocol, median, spread

ADVICE: Final = Protocol(rounds=4, burst_seconds=0.01, pause_seconds=0.01)
"""As the records' protocol for long lists of problems, with shorter bursts and one round more."""


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
