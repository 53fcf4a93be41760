"""A model's blocks, dense and with sparse weights: `python benchmarks/model.py --blocks 4 --out FILE.json`.

Protocol: blocks with the shapes of Llama 3 8B, random bf16 weights pruned to 2:4 by magnitude. The dense side multiplies the weights with
their zeros by PyTorch; the sparse side is the same model after `louver.torch.compress_`. Both run the same elementwise code, compiled by
`torch.compile`. Prefill: sequences of 2,048 tokens, eager. Decoding: one token a sequence with 1,024 cached tokens, a CUDA graph. Both
sides in one process, in turns, the median of the turns. The logits' hidden states are compared first. Memory: of the swapped weights.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import louver.torch
from louver.measure.machine import header
from louver.measure.record import write_record
from louver.measure.report.header import SCHEMA

WIDTH, INNER, HEADS, KEY_HEADS, HEAD = 4096, 14336, 32, 8, 128
CACHED, TURNS = 1024, 7


@torch.compile(dynamic=True)
def normed(x: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


@torch.compile(dynamic=True)
def activated(gate: Tensor, up: Tensor) -> Tensor:
    return functional.silu(gate) * up


@torch.compile(dynamic=True)
def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1).to(x.dtype)


class Block(nn.Module):
    """A block of Llama 3 8B."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {
            "q": (WIDTH, HEADS * HEAD),
            "k": (WIDTH, KEY_HEADS * HEAD),
            "v": (WIDTH, KEY_HEADS * HEAD),
            "o": (HEADS * HEAD, WIDTH),
            "gate": (WIDTH, INNER),
            "up": (WIDTH, INNER),
            "down": (INNER, WIDTH),
        }
        for name, (columns, rows) in sizes.items():
            setattr(self, name, nn.Linear(columns, rows, bias=False))

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], cache: tuple[Tensor, Tensor] | None) -> Tensor:
        batch, count, _ = x.shape
        n = normed(x)
        q, k, v = (each(n).view(batch, count, -1, HEAD) for each in (self.q, self.k, self.v))
        q, k, v = rotated(q, *angles).transpose(1, 2), rotated(k, *angles).transpose(1, 2), v.transpose(1, 2)
        if cache is not None:
            cache[0][:, :, -1:], cache[1][:, :, -1:] = k, v
            k, v = cache
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=cache is None, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, count, -1))
        n = normed(x)
        return x + self.down(activated(self.gate(n), self.up(n)))


class Stack(nn.Module):
    """Blocks one after the other."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], caches: Sequence[Any]) -> Tensor:
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, angles, cache)
        return x


def angles_of(positions: Tensor) -> tuple[Tensor, Tensor]:
    steps = torch.arange(0, HEAD, 2, device=positions.device).float() / HEAD
    found = torch.outer(positions.float(), 1e4**-steps)[None, :, None]
    return found.cos(), found.sin()


def milliseconds(call: Callable[[], Any]) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def in_turns(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """The median milliseconds of each call."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(TURNS):
        for found, call in zip(times, calls, strict=True):
            found.append(milliseconds(call))
    return [statistics.median(found) for found in times]


def captured(call: Callable[[], Any]) -> Callable[[], Any]:
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def row(name: str, tokens: int, times: Sequence[float]) -> dict[str, Any]:
    dense, sparse = times
    print(f"{name:20} {dense:9.3f} ms dense {sparse:9.3f} ms sparse  {dense / sparse:.3f}")
    return {
        "case": name,
        "tokens": tokens,
        "dense_ms": round(dense, 4),
        "sparse_ms": round(sparse, 4),
        "speedup": round(dense / sparse, 4),
    }


def prefill(models: Sequence[Stack], sequences: int, count: int) -> dict[str, Any]:
    x = torch.randn(sequences, count, WIDTH, device="cuda").bfloat16()
    angles, caches = angles_of(torch.arange(count, device="cuda")), [None] * len(models[0].blocks)
    return row(
        f"prefill {sequences}×{count}", sequences * count, in_turns([lambda m=m: m(x, angles, caches) for m in models])
    )


def decode(models: Sequence[Stack], sequences: int) -> dict[str, Any]:
    x = torch.randn(sequences, 1, WIDTH, device="cuda").bfloat16()
    angles = angles_of(torch.tensor([CACHED - 1], device="cuda"))
    shape = (sequences, KEY_HEADS, CACHED, HEAD)
    caches = [tuple(torch.randn(shape, device="cuda").bfloat16() for _ in range(2)) for _ in models[0].blocks]
    calls = [captured(lambda m=m: m(x, angles, caches)) for m in models]
    return row(f"decode {sequences}", sequences, in_turns(calls))


def check(models: Sequence[Stack]) -> float:
    """The greatest difference of the hidden states, relative to the greatest state. Raises ArithmeticError beyond 5%."""
    x = torch.randn(1, 64, WIDTH, device="cuda").bfloat16()
    angles, caches = angles_of(torch.arange(64, device="cuda")), [None] * len(models[0].blocks)
    dense, sparse = (model(x, angles, caches).float() for model in models)
    found = float((dense - sparse).abs().max() / dense.abs().max())
    if not found < 0.05:
        raise ArithmeticError(f"the sparse model differs from the dense one by {found:.3f} of the greatest state")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--prefill", default="8x2048", help="sequences x tokens")
    parser.add_argument("--decode", default="1,16,64", help="numbers of sequences")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    sequences, count = map(int, given.prefill.split("x"))
    decoded = [int(each) for each in given.decode.split(",")]
    torch.manual_seed(0)
    with torch.no_grad():
        with torch.device("cuda"):
            dense = Stack(given.blocks).bfloat16().eval().requires_grad_(False)
        louver.torch.prune_(dense)
        sparse = copy.deepcopy(dense)
        begin = time.perf_counter()
        report = louver.torch.compress_(sparse, tokens=(*decoded, sequences * count))
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        print(report, f"compress_ took {seconds:.2f} s, timing and compiling included", sep="\n")
        models = (dense, sparse)
        difference = check(models)
        rows = [prefill(models, sequences, count), *(decode(models, each) for each in decoded)]
    weights = [sum(each.bytes[side] for each in report) for side in (0, 1)]
    print(
        f"weights: {weights[1] / weights[0]:.4f} of the dense bytes; greatest difference {difference:.4f} of the greatest state"
    )
    if given.out is not None:
        record = {
            "schema": SCHEMA,
            "kind": "model",
            **header(torch),
            "protocol": " ".join((__doc__ or "").split("\n\n", 1)[1].split()),
        }
        extra = {
            "blocks": given.blocks,
            "compress_seconds": round(seconds, 3),
            "weight_bytes": weights,
            "greatest_difference": difference,
            "rows": rows,
        }
        write_record(given.out, {**record, **extra})


if __name__ == "__main__":
    main()
