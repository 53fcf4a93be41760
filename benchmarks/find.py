"""Times a dense Triton kernel whose weight holds 2:4: `python benchmarks/find.py --out FILE.json`.

The kernel is the product of Triton's tutorial. Ways: Triton's own, Louver's dense kernel, `find` without `frozen` (check,
compression, sparse kernel, and the dense kernel that leaves), and `find` with `frozen`. Results are compared with float64
on some rows first. Graph replays are interleaved, the median of the rounds counts, and weights rotate, so that they leave
the L2 cache. The record has what the kernel itself measured and chose, too.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import triton
import triton.language as tl

import louver
from louver.measure.machine import header, require_torch
from louver.measure.protocol import Protocol, median, spread
from louver.measure.record import write_record
from louver.measure.sustained import prepare, take_turns
from louver.user.finding import FindingKernel, Outcome
from louver.user.hints import Hints
from louver.user.jit_kernel import JitKernel
from louver.user.source import TritonSource

SHAPES = ((4096, 4096, 4096), (256, 4096, 4096), (4096, 14336, 4096))
"""Tokens, outputs, K."""

TILE = {"BM": 128, "BN": 256, "BK": 64, "GROUP": 8}

WARPS = {"num_warps": 8, "num_stages": 3}

PROTOCOL = Protocol(rounds=5, burst_seconds=0.04)


@triton.jit
def matmul(
    x, w, y, M, N, K, x_row, x_column, w_row, w_column, y_row,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    across, down = tl.cdiv(N, BN), tl.cdiv(M, BM)
    group = program // (GROUP * across)
    tall = min(down - group * GROUP, GROUP)
    rows = (group * GROUP + program % (GROUP * across) % tall) * BM + tl.arange(0, BM)
    columns = (program % (GROUP * across) // tall) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    xs = x + (rows % M)[:, None] * x_row + k[None, :] * x_column
    ws = w + k[:, None] * w_row + (columns % N)[None, :] * w_column
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = tl.load(xs, mask=k[None, :] < K - step * BK, other=0.0)
        right = tl.load(ws, mask=k[:, None] < K - step * BK, other=0.0)
        sums = tl.dot(left, right, sums)
        xs += BK * x_column
        ws += BK * w_row
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(y + rows[:, None] * y_row + columns[None, :], sums.to(tl.float16), mask=inside)


class LouversOwn(TritonSource):
    """The kernel, never launched by Triton."""

    @property
    def native(self) -> Any:
        return None


class AlwaysFound(dict[Any, Outcome]):
    """The outcome of a kernel that is timed as found, even where it is slower."""

    def get(self, key: Any, default: Any = None) -> Any:
        return Outcome(True, "timed")


def row(torch: Any, shape: tuple[int, int, int]) -> dict[str, Any]:
    """The times of all ways, in µs."""
    m, n, k = shape
    sets = PROTOCOL.sets(n * k)
    x = torch.randn(m, k, device="cuda", dtype=torch.float16)
    weights = [louver.prune(torch.randn(n, k, device="cuda", dtype=torch.float16), "2:4") for _ in range(sets)]
    y = torch.empty(m, n, device="cuda", dtype=torch.float16)
    grid = (-(-m // TILE["BM"]) * -(-n // TILE["BN"]),)
    measured = louver.jit(matmul, find=("w",))
    own = JitKernel(LouversOwn(matmul), Hints())
    found = FindingKernel(own, ("w",), ())
    found._outcomes = AlwaysFound()
    kernels = {
        "triton": matmul,
        "louver dense": own,
        "find": found,
        "find, frozen": louver.jit(matmul, find=("w",), frozen=("w",)),
        "library": None,
    }
    sparse = [louver.compress(w, "2:4") for w in weights]

    def call(kernel: Any, index: int) -> None:
        w = weights[index % sets].T
        if kernel is None:
            louver.linear(x, sparse[index % sets], out=y)
            return
        kernel[grid](x, w, y, m, n, k, *x.stride(), *w.stride(), y.stride(0), **TILE, **WARPS)

    loads: dict[str, Any] = {}
    for name, kernel in kernels.items():
        for index in range(sets):
            y.fill_(float("nan"))
            call(kernel, index)
            right = x[:64].double() @ weights[index].T.double()
            if not torch.allclose(y[:64].double(), right, rtol=2e-3, atol=2e-2):
                raise ArithmeticError(f"{name} is wrong at {shape}")
        loads[name] = prepare(torch, lambda index, kernel=kernel: call(kernel, index), sets, PROTOCOL)
    call(measured, 0)
    (outcome,) = measured._outcomes.values()
    times = take_turns(loads, PROTOCOL)
    w = weights[0].T
    dense = own.explain(x, w, y, m, n, k, *x.stride(), *w.stride(), y.stride(0), **TILE, **WARPS)
    return {
        "tokens": m,
        "outputs": n,
        "k": k,
        "us": {name: round(1e6 * median(each), 2) for name, each in times.items()},
        "spread": {name: round(spread(each), 3) for name, each in times.items()},
        "chosen": "find" if outcome.found else "dense",
        "why": outcome.why,
        "dense kernel": dense.family,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch = require_torch()
    rows = []
    for shape in SHAPES:
        rows.append(row(torch, shape))
        print(rows[-1], flush=True)
    if given.out is not None:
        write_record(given.out, {"kind": "find", **header(torch), "protocol": PROTOCOL.describe_bursts(), "rows": rows})


if __name__ == "__main__":
    main()
