"""Products of dense operands whose rows do not begin with lines of 128 bytes: `python benchmarks/copied_operands.py --out FILE.json`.

Protocol: f16, outputs allocated before. Times of `louver.matmul(s, b)` with b [K, N] and of `louver.linear(x, s)` with x [N, K], a view whose rows
are K + 8 elements apart, which choose between a copy and reading in place; of a plan, which reads in place; of the product of an operand with whole lines, the limit; and of
`torch.matmul` with the dense weight. Bursts of graph replays by turns, medians, as `louver bench gemm` times products. Each result is first
compared with float64. The shapes of `FITTED` decided about rates of the time model, the others did not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from epilogues import check

import louver
from louver.measure.machine import header, require_torch
from louver.measure.operands import make_operands
from louver.measure.problems import GemmProblem
from louver.measure.protocol import Protocol, median
from louver.measure.record import write_record
from louver.measure.report.table import Column, Table, right
from louver.measure.sustained import prepare, take_turns
from script import arguments

FITTED = (
    *(("matmul", 6400, n, 2560) for n in (8, 32, 136, 264, 1000)),
    *(("matmul", 14336, n, 4096) for n in (8, 72, 1000)),
    *(("linear", 6400, n, 2560) for n in (8, 64, 256, 4096)),
)
OTHERS = (
    *(("matmul", 4096, n, 11008) for n in (8, 40, 96, 296, 1000)),
    *(("matmul", 5120, n, 13824) for n in (24, 120)),
    *(("linear", 4544, n, 18176) for n in (32, 512, 3000)),
    *(("linear", 3072, n, 8192) for n in (16, 128)),
)


def measure(torch: Any, kind: str, shape: tuple[int, int, int], protocol: Protocol) -> dict[str, Any]:
    """Microseconds of each way."""
    m, n, k = shape
    problem = GemmProblem(m, n, k, "f16")
    operands = make_operands(torch, problem, sets=protocol.sets(problem.compressed_bytes))
    sparse, dense, sets = operands.sparse, operands.dense, operands.sets
    tokens = torch.zeros(n, k + 8, dtype=torch.float16, device="cuda")[:, :k].copy_(operands.x)
    columns = kind == "matmul"
    given = operands.x.t().contiguous() if columns else tokens
    y = torch.empty((m, n) if columns else (n, m), dtype=torch.float16, device="cuda")
    plans = [louver.plan(kind, s, n, like=given) for s in sparse]
    whole = operands.x.t() if columns else operands.x
    product = louver.matmul if columns else lambda s, x, out: louver.linear(x, s, out=out)
    calls: dict[str, Callable[[int], object]] = {
        "called": lambda i: product(sparse[i], given, out=y),
        "in place": lambda i: plans[i](given, out=y),
        "whole lines": lambda i: product(sparse[i], whole, out=y),
        "dense": lambda i: (
            torch.matmul(dense[i], given, out=y) if columns else torch.matmul(given, dense[i].t(), out=y)
        ),
    }
    for name, call in calls.items():
        y.fill_(float("nan"))
        call(0)
        a, b = dense[0].double(), operands.x.t().double()
        check(f"{kind} {shape} {name}", y if columns else y.t(), a @ b, a.abs() @ b.abs(), k)
    loads = {name: prepare(torch, lambda i, call=call: call(i % sets), sets, protocol) for name, call in calls.items()}
    taken = {name: round(median(seconds) * 1e6, 2) for name, seconds in take_turns(loads, protocol).items()}
    return {"kind": kind, "m": m, "n": n, "k": k, "us": taken}


def main() -> None:
    parser = arguments(__doc__)
    given = parser.parse_args()
    torch, protocol = require_torch(), Protocol()
    rows = [
        {**measure(torch, kind, shape, protocol), "fitted": cases is FITTED}
        for cases in (FITTED, OTHERS)
        for kind, *sizes in cases
        for shape in [(sizes[0], sizes[1], sizes[2])]
    ]
    ways, factors = ("called", "in place", "whole lines", "dense"), ("in place", "dense")
    cells = [
        (
            f"{row['kind']} {row['m']}×{row['n']}×{row['k']}",
            *(f"{row['us'][way]:.1f}" for way in ways),
            *(f"{row['us'][way] / row['us']['called']:.2f}" for way in factors),
        )
        for row in rows
    ]
    headings = (*(f"{way} µs" for way in ways), *(f"{way} / called" for way in factors))
    columns = (Column("product"), *right(*headings))
    print("\n".join(Table("copied operands", columns, cells).lines()))
    if given.out:
        about = {"protocol": " ".join((__doc__ or "").split()), "bursts": protocol.describe_bursts()}
        write_record(given.out, {"kind": "copied operands", **header(torch), **about, "rows": rows})


if __name__ == "__main__":
    main()
