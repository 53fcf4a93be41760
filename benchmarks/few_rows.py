"""A user's kernel whose tiles have more tokens than the call: `python benchmarks/few_rows.py --out FILE.json`.

Protocol: a Triton kernel of descriptors with tiles of 128×128, compiled as a product and by register tiles, on f16 weights of 14336×4096 and a
growing number of tokens. Bursts of graph replays by turns, medians, as `louver bench gemm` times products. Each result is first compared with
float64.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import triton_kernels

import louver
from louver.measure.machine import header, require_torch
from louver.measure.operands import make_operands, verify
from louver.measure.problems import GemmProblem
from louver.measure.protocol import Protocol, median
from louver.measure.record import write_record
from louver.measure.report.table import Table, right
from louver.measure.sustained import prepare, take_turns
from louver.user.hints import REGISTER_TILES
from script import arguments

M, K = 14336, 4096
TOKENS = (8, 16, 48, 64, 100, 128, 136, 200, 256, 1024)
TILE = {"BM": 128, "BN": 128, "BK": 64}
WAYS: dict[str, dict[str, Any]] = {"product": {}, "register tiles": {"family": REGISTER_TILES}}


def measure(torch: Any, n: int, protocol: Protocol) -> dict[str, Any]:
    """Microseconds of the kernel for n tokens, by each way of compiling it."""
    problem = GemmProblem(M, n, K, "f16")
    operands = make_operands(torch, problem, sets=protocol.sets(problem.compressed_bytes))
    grid = (-(-M // TILE["BM"]), -(-n // TILE["BN"]))

    def call(kernel: Any, index: int) -> None:
        kernel[grid](operands.y, operands.sparse[index % operands.sets], operands.x, M, n, K, **TILE)

    loads = {}
    for way, hints in WAYS.items():
        run = partial(call, louver.jit(triton_kernels.linear, **hints))
        operands.poison()
        run(0)
        if not verify(torch, operands, 0, operands.y).ok:
            raise ArithmeticError(f"the kernel is wrong for {n} tokens, compiled as {way}")
        loads[way] = prepare(torch, run, operands.sets, protocol)
    taken = {way: round(median(seconds) * 1e6, 2) for way, seconds in take_turns(loads, protocol).items()}
    return {"shape": [M, n, K], "us": taken}


def main() -> None:
    parser = arguments(__doc__)
    given = parser.parse_args()
    torch, protocol = require_torch(), Protocol()
    rows = [measure(torch, n, protocol) for n in TOKENS]
    columns = right("tokens", *(f"{way} µs" for way in WAYS))
    cells = [(str(row["shape"][1]), *(f"{us:.1f}" for us in row["us"].values())) for row in rows]
    print("\n".join(Table(f"{M}×N×{K} f16", columns, cells).lines()))
    if given.out is not None:
        about = {"protocol": " ".join((__doc__ or "").split()), "bursts": protocol.describe_bursts(), "tile": TILE}
        print(f"wrote {write_record(given.out, {'kind': 'few rows', **header(torch), **about, 'rows': rows})}")


if __name__ == "__main__":
    main()
