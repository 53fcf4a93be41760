"""A model's blocks, dense and with sparse weights: `python benchmarks/model.py --blocks 4 --out FILE.json`.

Protocol: blocks with the shapes of Llama 3 8B, with one projection for q, k and v on all sides; random bf16 weights pruned to 2:4 by
magnitude. Sides: the weights with their zeros by PyTorch, bf16 and e4m3 (`torch._scaled_mm` with a scale for each row and token, gate and
up joined); the same model after `louver.torch.compress_`, and after `quantize_`. Elementwise code is compiled by `torch.compile` on all
sides; mode "compiled" compiles whole blocks. Prefill: sequences of 2,048 tokens, no graph. Decoding: one token a sequence with 1,024
cached tokens, a CUDA graph. All sides in one process, in turns, the median of the turns. Speedups: e4m3 over the better dense side.
Hidden states are compared with those of dense bf16 first. A side that fails has its error as reason, and no time.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
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
SIDES = ("dense bf16", "sparse bf16", "dense e4m3", "sparse e4m3")
FASTER = {"sparse bf16": ("dense bf16",), "sparse e4m3": ("dense bf16", "dense e4m3")}
"""The dense sides that each sparse side is compared with: the fastest of them."""

DIFFERENCES = {"sparse bf16": 0.05, "dense e4m3": 0.4, "sparse e4m3": 0.4}
"""The greatest difference of a side's hidden states from those of dense bf16, relative to their norm."""


@torch.compile(dynamic=True)
def normed(x: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


@torch.compile(dynamic=True)
def activated(joined: Tensor) -> Tensor:
    gate, up = joined.chunk(2, -1)
    return functional.silu(gate) * up


@torch.compile(dynamic=True)
def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1).to(x.dtype)


@torch.compile(dynamic=True)
def quantized(x: Tensor) -> tuple[Tensor, Tensor]:
    wide = x.float()
    scale = (wide.abs().amax(-1, keepdim=True) / 448).clamp_min(1e-12)
    return (wide / scale).to(torch.float8_e4m3fn), scale


class Mlp(nn.Module):
    """A gated layer."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, INNER, bias=False), nn.Linear(WIDTH, INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class JoinedMlp(nn.Module):
    """The same layer with gate and up projection in one weight, the fastest dense form."""

    def __init__(self, mlp: Mlp) -> None:
        super().__init__()
        self.joined = nn.Linear(WIDTH, 2 * INNER, bias=False, device="meta")
        self.joined.weight = nn.Parameter(torch.cat([mlp.gate.weight, mlp.up.weight]), False)
        self.down = mlp.down

    def forward(self, x: Tensor) -> Tensor:
        return self.down(activated(self.joined(x)))


class ScaledLinear(nn.Module):
    """A dense linear layer in e4m3, with a scale for each row and token."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight, scale = quantized(layer.weight.detach())
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale.reshape(1, -1))

    def forward(self, x: Tensor) -> Tensor:
        given, scale = quantized(x.reshape(-1, x.shape[-1]))
        weight: Any = self.weight
        y = torch._scaled_mm(
            given, weight.t(), scale_a=scale, scale_b=self.scale, out_dtype=x.dtype, use_fast_accum=True
        )
        return y.reshape(*x.shape[:-1], -1)


class Block(nn.Module):
    """A block of Llama 3 8B."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * KEY_HEADS) * HEAD, bias=False)
        self.o = nn.Linear(HEADS * HEAD, WIDTH, bias=False)
        self.mlp: nn.Module = Mlp()

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], cache: tuple[Tensor, Tensor] | None) -> Tensor:
        batch, count, _ = x.shape
        heads = self.qkv(normed(x)).view(batch, count, -1, HEAD)
        q, k, v = heads.split([HEADS, KEY_HEADS, KEY_HEADS], 2)
        q, k, v = rotated(q, *angles).transpose(1, 2), rotated(k, *angles).transpose(1, 2), v.transpose(1, 2)
        if cache is not None:
            cache[0][:, :, -1:], cache[1][:, :, -1:] = k, v
            k, v = cache
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=cache is None, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, count, -1))
        return x + self.mlp(normed(x))


class Stack(nn.Module):
    """Blocks one after the other."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], caches: Sequence[Any]) -> Tensor:
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, angles, cache)
        return x


Calls = Mapping[str, Callable[[], Any]]


class Run:
    """The sides of a run, their errors, and its time. budget: seconds, after which no further case begins."""

    def __init__(self, budget: float) -> None:
        self.begin, self.budget = time.perf_counter(), budget
        self.sides: dict[str, Stack] = {}
        self.facts: dict[str, Any] = {}
        self.reasons: dict[str, str] = {}

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.begin

    def add(self, name: str, make: Callable[[], Stack]) -> None:
        """Make a side. An error becomes its reason."""
        try:
            self.sides[name] = make()
            torch.cuda.synchronize()
        except Exception as error:
            self.reasons[name] = shown(error)
        print(f"{name}: {self.reasons.get(name, 'made')} ({self.spent:.1f} s)", flush=True)

    def ready(self, calls: Calls, reasons: dict[str, str], *, graphs: bool) -> dict[str, Callable[[], Any]]:
        """The calls that work, called before, as replays of graphs if asked for."""
        found: dict[str, Callable[[], Any]] = {}
        for name, call in calls.items():
            try:
                found[name] = captured(call) if graphs else warm(call)
            except Exception as error:
                reasons[name] = shown(error)
        return found


def shown(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:300]


def warm(call: Callable[[], Any]) -> Callable[[], Any]:
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    return call


def captured(call: Callable[[], Any]) -> Callable[[], Any]:
    warm(call)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay


def milliseconds(call: Callable[[], Any], repeats: int) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(repeats):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / repeats


def in_turns(calls: Calls, repeats: int) -> dict[str, float]:
    """The median milliseconds of each call."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(TURNS):
        for name, call in calls.items():
            times[name].append(milliseconds(call, repeats))
    return {name: statistics.median(each) for name, each in times.items()}


def angles_of(positions: Tensor) -> tuple[Tensor, Tensor]:
    steps = torch.arange(0, HEAD, 2, device=positions.device).float() / HEAD
    found = torch.outer(positions.float(), 1e4**-steps)[None, :, None]
    return found.cos(), found.sin()


def row(
    run: Run, mode: str, name: str, tokens: int, make: Callable[[], Callable[[Stack], Any]], repeats: int
) -> dict[str, Any]:
    """Times a case on all sides. make: gives the call of a side."""
    reasons = dict(run.reasons)
    times: dict[str, float] = {}
    if run.spent > run.budget:
        reasons = dict.fromkeys(SIDES, f"the budget of {run.budget:.0f} s was spent")
    else:
        try:
            on = make()
            calls = {side: (lambda model=model: on(model)) for side, model in run.sides.items()}
            times = in_turns(run.ready(calls, reasons, graphs=repeats > 1), repeats)
        except Exception as error:
            reasons |= dict.fromkeys(SIDES, shown(error))
        torch.cuda.empty_cache()
    speedups = {
        side: round(min(times[each] for each in others if each in times) / times[side], 4)
        for side, others in FASTER.items()
        if side in times and any(each in times for each in others)
    }
    cells = [f"{times[side]:9.3f} ms" if side in times else f"{'none':>12}" for side in SIDES]
    print(f"{mode:8} {name:15}", *cells, *(f"{side} {gain:.3f} ×" for side, gain in speedups.items()), flush=True)
    for side, reason in reasons.items():
        print(f"{'':24} {side}: {reason}")
    found = {side: round(each, 5) for side, each in times.items()}
    return {"case": name, "mode": mode, "tokens": tokens, "ms": found, "speedup": speedups, "reasons": reasons}


def prefill(sequences: int, count: int) -> Callable[[Stack], Any]:
    x = torch.randn(sequences, count, WIDTH, device="cuda").bfloat16()
    angles = angles_of(torch.arange(count, device="cuda"))
    return lambda model: model(x, angles, [None] * len(model.blocks))


def decode(sequences: int, blocks: int) -> Callable[[Stack], Any]:
    x = torch.randn(sequences, 1, WIDTH, device="cuda").bfloat16()
    angles = angles_of(torch.tensor([CACHED - 1], device="cuda"))
    shape = (sequences, KEY_HEADS, CACHED, HEAD)
    caches = [tuple(torch.randn(shape, device="cuda").bfloat16() for _ in range(2)) for _ in range(blocks)]
    return lambda model: model(x, angles, caches)


def compare(run: Run) -> None:
    """Drop the sides whose hidden states are not those of dense bf16."""
    on = prefill(1, 64)
    expected = on(run.sides["dense bf16"]).float()
    for side, most in DIFFERENCES.items():
        if side not in run.sides:
            continue
        try:
            found = float((on(run.sides[side]).float() - expected).norm() / expected.norm())
            run.facts[f"difference of {side}"] = round(found, 5)
            if not found < most:
                raise ArithmeticError(f"hidden states differ by {found:.3f} of their norm, at most {most} is expected")
        except Exception as error:
            run.reasons[side] = shown(error)
            del run.sides[side]


def make_sides(run: Run, blocks: int, tokens: tuple[int, ...]) -> None:
    with torch.device("cuda"):
        pruned = Stack(blocks).bfloat16().eval().requires_grad_(False)
    louver.torch.prune_(pruned)

    def dense() -> Stack:
        made = copy.deepcopy(pruned)
        for block in made.blocks:
            block.mlp = JoinedMlp(block.mlp)
        return made

    def scaled() -> Stack:
        made = dense()
        for block in made.blocks:
            block.qkv, block.o = ScaledLinear(block.qkv), ScaledLinear(block.o)
            block.mlp.joined, block.mlp.down = ScaledLinear(block.mlp.joined), ScaledLinear(block.mlp.down)
        return made

    def sparse() -> Stack:
        begin = time.perf_counter()
        report = louver.torch.compress_(pruned, tokens=tokens)
        torch.cuda.synchronize()
        run.facts["compress_seconds"] = round(time.perf_counter() - begin, 3)
        run.facts["weight_bytes"] = [sum(each.bytes[side] for each in report) for side in (0, 1)]
        print(report, flush=True)
        return pruned

    def rounded() -> Stack:
        made = copy.deepcopy(run.sides["sparse bf16"])
        report = louver.torch.quantize_(made, "e4m3")
        run.facts["quantized_bytes"] = [sum(each.bytes[side] for each in report) for side in (0, 1)]
        return made

    # The pruned model itself becomes the sparse side, so the dense sides are made first.
    run.add("dense bf16", dense)
    run.add("dense e4m3", scaled)
    run.add("sparse bf16", sparse)
    run.add("sparse e4m3", rounded)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--prefill", default="8x2048", help="sequences x tokens")
    parser.add_argument("--decode", default="1,16,64", help="numbers of sequences")
    parser.add_argument("--modes", default="eager,compiled", help="eager, compiled or both")
    parser.add_argument("--budget", type=float, default=150, help="seconds after which no further case begins")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    sequences, count = map(int, given.prefill.split("x"))
    decoded = [int(each) for each in given.decode.split(",")]
    torch.manual_seed(0)
    # Each side and case has a graph of its own; beyond the limit PyTorch would run the rest without compiling it.
    torch._dynamo.config.cache_size_limit = 64
    run, rows = Run(given.budget), []
    with torch.no_grad():
        make_sides(run, given.blocks, (*decoded, sequences * count))
        compare(run)
        for mode in given.modes.split(","):
            if mode == "compiled":
                for model in run.sides.values():
                    for block in model.blocks:
                        block.compile(dynamic=False)
            name = f"prefill {sequences}×{count}"
            rows.append(row(run, mode, name, sequences * count, lambda: prefill(sequences, count), 1))
            for each in decoded:
                rows.append(row(run, mode, f"decode {each}", each, lambda n=each: decode(n, given.blocks), 10))
    print(run.facts, f"{run.spent:.1f} s in all")
    if given.out is not None:
        protocol = " ".join((__doc__ or "").split("\n\n", 1)[1].split())
        facts = {"schema": SCHEMA, "kind": "model", **header(torch), "protocol": protocol, "blocks": given.blocks}
        write_record(given.out, {**facts, **run.facts, "seconds": round(run.spent, 1), "rows": rows})


if __name__ == "__main__":
    main()
