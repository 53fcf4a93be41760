"""The same kernel twice: `python benchmarks/beside_triton.py --out FILE.json`, with a sparse tensor by `louver.jit` and with its dense
array by Triton itself.

Kernels as users write them (`triton_kernels.py`), f16 operands, weights pruned to 2:4; one tile size for both. Triton takes the fastest
of a few num_warps and num_stages; Louver's choices are its own. Results are compared with float64 on some rows first. Times as
`louver bench gemm` takes them: graphs, bursts by turns, medians; one set of operands, so that what fits stays in the L2 cache.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import louver

sys.path.insert(0, str(Path(__file__).resolve().parent))

OPTIONS = ((4, 3), (4, 4), (8, 3), (8, 4))
"""num_warps and num_stages that Triton may take."""

TILES = ((128, 256, 64), (128, 128, 64), (64, 64, 64), (32, 64, 64))
ENTRIES = 8


@dataclass(frozen=True)
class Case:
    """A call: its kernel's arguments in order, the sparse one and the output by name; sizes and constants beside them."""

    kernel: str
    tile: tuple[int, int, int]
    grid: tuple[int, ...]
    arrays: dict[str, Any]
    sparse: str
    sizes: dict[str, int]
    constants: dict[str, int]
    operations: int

    def known(self, weight: Any) -> dict[str, Any]:
        """The arguments, with the weight dense or compressed."""
        tile = dict(zip(("BM", "BN", "BK"), self.tile, strict=True))
        return {**self.arrays, self.sparse: weight, **self.sizes, **self.constants, **tile}


def cases(torch: Any, kernel: str, tile: tuple[int, int, int]) -> Case:
    """A kernel's operands, at tiles of M×N×K."""
    generator = torch.Generator(device="cuda").manual_seed(0)

    def draw(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", generator=generator).half()

    m = n = k = 1024 if kernel == "batch" else 16 if kernel == "few_rows" else 4096
    if kernel == "few_rows":
        n = k = 4096
    blocks = -(-m // tile[0]), -(-n // tile[1])
    sizes, constants = {"M": m, "N": n, "K": k}, {}
    y = torch.full((m, n), float("nan"), device="cuda", dtype=torch.float16)
    sparse, operations = "w", 2 * m * n * k
    match kernel:
        case "by_pointers" | "few_rows":
            arrays = {"y": y, "x": draw(m, k), "w": draw(n, k), "bias": draw(n)}
        case "batch":
            many = (ENTRIES, m, n)
            arrays = {"y": y.expand(many).clone(), "w": draw(ENTRIES, m, k), "x": draw(ENTRIES, k, n)}
            blocks, operations = (*blocks, ENTRIES), operations * ENTRIES
        case "experts":
            expert = torch.arange(blocks[0], device="cuda", dtype=torch.int32) % ENTRIES
            arrays = {"y": y, "x": draw(m, k), "w": draw(ENTRIES, n, k), "expert": expert}
        case "row_maxima":
            most = torch.full((blocks[1], m), float("nan"), device="cuda")
            arrays = {"y": y, "w": draw(m, k), "x": draw(n, k), "most": most}
        case "split_sums":
            arrays = {"y": torch.zeros(m, n, device="cuda"), "w": draw(m, k), "x": draw(n, k)}
            constants, blocks = {"SPLIT": 2}, (*blocks, 2)
        case _:
            x = torch.randint(-100, 101, (n, k), device="cuda", dtype=torch.int8, generator=generator)
            arrays = {"y": y, "w": draw(m, k), "x": x, "scale": draw(n).abs() / 100}
    arrays[sparse] = torch.from_numpy(louver.prune(arrays[sparse].cpu().numpy(), "2:4")).cuda()
    name = "by_pointers" if kernel == "few_rows" else kernel
    return Case(name, tile, blocks, arrays, sparse, sizes, constants, operations)


def expected(torch: Any, case: Case) -> Any:
    """The result in float64, on the GPU."""
    given = {name: array.double() for name, array in case.arrays.items() if name not in ("expert", "most")}
    match case.kernel:
        case "by_pointers":
            return given["x"] @ given["w"].T + given["bias"]
        case "batch":
            return given["w"] @ given["x"]
        case "experts":
            rows = given["x"].split(case.tile[0])
            pairs = zip(rows, case.arrays["expert"].tolist(), strict=True)
            return torch.cat([x @ given["w"][entry].T for x, entry in pairs])
        case "split_sums" | "row_maxima":
            return given["w"] @ given["x"].T
        case _:
            return given["w"] @ (given["x"] * given["scale"][:, None]).half().double().T


def measure(torch: Any, case: Case) -> dict[str, Any]:
    """A row of times. Raises ArithmeticError for a wrong result of ours."""
    import triton_kernels

    from louver.bench.graph import prepare
    from louver.bench.protocol import Protocol, interleave, median, spread

    plain, reference = getattr(triton_kernels, case.kernel), expected(torch, case)
    ours, s = louver.jit(plain), louver.compress(case.arrays[case.sparse].cpu().numpy(), "2:4")
    protocol = replace(Protocol(), rounds=5)

    def check(what: str, call: Callable[[int], object]) -> None:
        case.arrays["y"].fill_(0.0 if case.kernel == "split_sums" else float("nan"))
        call(0)
        worst = (case.arrays["y"].double() - reference).abs().max() / reference.abs().max()
        if not worst < 2e-3:
            raise ArithmeticError(
                f"{what} is wrong at {case.kernel} {case.tile}: {worst.item():.2e} of the largest result"
            )
        if case.kernel == "row_maxima":
            rows = torch.stack([each.max(dim=1).values for each in case.arrays["y"].float().split(case.tile[1], dim=1)])
            if not torch.allclose(case.arrays["most"], rows, rtol=1e-2, atol=1e-2):
                raise ArithmeticError(f"{what}: maxima are wrong at {case.kernel} {case.tile}")

    def sparse(_: int) -> None:
        ours[case.grid](**case.known(s))

    check("louver.jit", sparse)
    loads = {"louver": prepare(torch, sparse, 1, protocol)}
    dense: list[tuple[float, str, Any]] = []
    for warps, stages in OPTIONS:
        known = case.known(case.arrays[case.sparse]) | {"num_warps": warps, "num_stages": stages}

        def call(_: int, known: dict[str, Any] = known) -> None:
            plain[case.grid](**known)

        check("Triton", call)
        load = prepare(torch, call, 1, protocol)
        dense.append((load.burst(), f"num_warps={warps}, num_stages={stages}", load))
    best = min(dense, key=lambda each: each[0])
    loads["triton"] = best[2]
    bursts = {name: load.burst for name, load in loads.items()}
    times = interleave(bursts, protocol.rounds, lambda: time.sleep(protocol.pause_seconds))
    row: dict[str, Any] = {"kernel": case.kernel, "tile": list(case.tile), "sizes": case.sizes, "grid": list(case.grid)}
    row |= {f"{name}_us": round(median(taken) * 1e6, 2) for name, taken in times.items()}
    row |= {f"{name}_spread": round(spread(taken), 4) for name, taken in times.items()}
    explained = ours.explain(**case.known(s))
    row |= {
        "family": explained.family,
        "options": best[1],
        "times_dense": round(row["triton_us"] / row["louver_us"], 3),
    }
    row["TFLOP/s"] = round(case.operations / row["louver_us"] / 1e6, 1)
    return row


KERNELS = ("by_pointers", "few_rows", "batch", "experts", "split_sums", "row_maxima", "dequantized")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", choices=KERNELS, action="append", help="kernels to measure, all if not given")
    args = parser.parse_args(arguments)
    from louver.bench.machine import host_header, require_torch
    from louver.bench.record import write_record

    torch = require_torch()
    rows: list[dict[str, Any]] = []
    for kernel in args.only or KERNELS:
        for tile in TILES:
            row = measure(torch, cases(torch, kernel, tile))
            rows.append(row)
            shape = "×".join(map(str, tile))
            print(
                f"{kernel} {shape}: {row['louver_us']:.1f} µs by {row['family']}, Triton's dense {row['triton_us']:.1f} µs: "
                f"{row['times_dense']:.2f} times as fast",
                flush=True,
            )
    if args.out:
        header = host_header(torch)
        header["versions"] |= {"triton": sys.modules["triton"].__version__, "numpy": np.__version__}
        record = {"kind": "beside Triton", **header, "protocol": __doc__, "rows": rows}
        print(f"wrote {write_record(args.out, json.loads(json.dumps(record)))}")


if __name__ == "__main__":
    main()
