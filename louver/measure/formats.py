"""Times formats of a product on the GPU at hand, in turns, on random data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import louver
from louver.advice.formats import Format
from louver.advice.times import Time
from louver.measure.contenders import DENSE_CALLS, dense_product
from louver.measure.graph import Load, prepare, take_turns
from louver.measure.operands import converted, torch_dtype
from louver.measure.protocol import Protocol, median, spread

ADVICE: Final = Protocol(rounds=4, burst_seconds=0.01, pause_seconds=0.01)
"""As the records' protocol for long lists of problems, with shorter bursts and one round more."""


def bursts(
    torch: Any, formats: Iterable[Format], m: int, n: int, k: int, protocol: Protocol = ADVICE
) -> dict[Format, tuple[float, ...]]:
    """Seconds of a call in each burst, by format. Formats that PyTorch or the pattern refuses for these sizes are left out.

    Products of vectors include the copy of their tokens; those of 8 bits read tokens of 8 bits.
    """
    offered = [each for each in formats if not each.refusal(m, n, k)]
    loads: dict[Format, Load] = {}
    for each in offered:
        sets = protocol.sets(each.nbytes(m, k))
        loads[each] = prepare(torch, _call(torch, each, (m, n, k), sets), sets, protocol)
    return take_turns(loads, protocol)


def timer(torch: Any) -> Callable[[Iterable[Format], int, int, int], Mapping[Format, Time]]:
    """A function that measures formats of a product on PyTorch's current device."""

    def measured(formats: Iterable[Format], m: int, n: int, k: int) -> Mapping[Format, Time]:
        taken = bursts(torch, formats, m, n, k)
        return {each: Time.spread(median(t) * 1e6, min(spread(t), 0.99), "measured") for each, t in taken.items()}

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
