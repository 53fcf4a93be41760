"""Host time of a call with a sparse weight in PyTorch, eager and compiled, on a GPU. Prints a table, and JSON with --json.

Eager: `F.linear` on a parameter of `louver.torch.SparseTensor`, above a subclass whose `__torch_function__` does nothing
(the floor) and above `louver.linear` on the same weight (the product). Compiled: a module of one `SparseLinear`, without
CUDA graphs, above the same module with a dense layer. The calls are made in batches while the device is idle; the least
batch counts, because other work on the host only adds time.

    python benchmarks/host_cost.py [--json PATH] [--tokens 16] [--size 4096]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import louver
import louver.torch
from louver.torch.core import core_of

BATCH, BATCHES = 64, 200


class Floor(Tensor):
    """A subclass that costs only the way into `__torch_function__`."""

    result: Any = None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls.result


def host_us(call: Callable[[], object]) -> float:
    """The least host time of a call in µs."""
    best = float("inf")
    for _ in range(BATCHES):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(BATCH):
            call()
        best = min(best, time.perf_counter() - start)
    torch.cuda.synchronize()
    return best / BATCH * 1e6


def measured(tokens: int, size: int) -> dict[str, float]:
    """Host times in µs by name."""
    torch.manual_seed(0)
    x = torch.randn(tokens, size, device="cuda", dtype=torch.bfloat16)
    dense = nn.Linear(size, size, bias=False, device="cuda", dtype=torch.bfloat16).requires_grad_(False)
    sparse = louver.torch.SparseLinear.of(dense, prune=True)
    tensor = louver.torch.SparseTensor(sparse.weight.values, sparse.weight.indices, "2:4", size)
    weight, arrays = nn.Parameter(tensor, requires_grad=False), (sparse.weight.values, sparse.weight.indices)
    Floor.result = x
    floor = torch.empty(size, size, device="cuda", dtype=torch.bfloat16).as_subclass(Floor)
    product = core_of(*arrays, "2:4", size)
    times: dict[str, float] = {}
    with torch.no_grad():
        expected = functional.linear(x, tensor.to_dense()).float()
        for y in (functional.linear(x, weight), sparse(x), louver.linear(x, product)):
            assert (y.float() - expected).abs().max() < 0.02 * expected.abs().max()
        times["floor of __torch_function__"] = host_us(lambda: functional.linear(x, floor))
        times["F.linear, dense"] = host_us(lambda: functional.linear(x, dense.weight))
        times["louver.linear"] = host_us(lambda: louver.linear(x, product))
        times["F.linear, SparseTensor"] = host_us(lambda: functional.linear(x, weight))
        times["nn.Linear"] = host_us(lambda: dense(x))
        times["SparseLinear"] = host_us(lambda: sparse(x))
        times["torch.ops.louver.linear"] = host_us(lambda: torch.ops.louver.linear(x, *arrays))
        for name, layer in (("nn.Linear, compiled", dense), ("SparseLinear, compiled", sparse)):
            torch.compiler.reset()
            compiled = torch.compile(nn.Sequential(layer), fullgraph=True)
            compiled(x)
            times[name] = host_us(lambda compiled=compiled: compiled(x))
    times["F.linear, SparseTensor, above floor and product"] = (
        times["F.linear, SparseTensor"] - times["floor of __torch_function__"] - times["louver.linear"]
    )
    times["SparseLinear, compiled, above dense"] = times["SparseLinear, compiled"] - times["nn.Linear, compiled"]
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--size", type=int, default=4096)
    given = parser.parse_args()
    times = measured(given.tokens, given.size)
    for name, us in times.items():
        print(f"{us:8.2f} µs  {name}")
    if given.json:
        record = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "us": times}
        given.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
