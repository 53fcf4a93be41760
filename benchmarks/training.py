"""Training with fixed masks: `python benchmarks/training.py --parts products,block --out FILE.json`.

- products: forward, gradient of x (dX) and of the weight (dW) of linear layers, bf16: dense, with an ordinary 2:4 mask, and
  with a transposable one. Sparse dX and dW have all that a backward pass runs: the transposed values, the kept elements.
- block: forward and backward of a block of Llama 3 8B, joined as `louver bench model` joins it, the same three ways.

Protocol: bursts of graph replays in turns, medians (`louver/measure/protocol.py`); gradients of the sparse ways are first
compared with PyTorch's of the dense weight with zeros.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

import louver
import louver.torch
from louver.measure.graph import prepare, take_turns
from louver.measure.machine import forbid_short_sums, header, require_torch
from louver.measure.model.stack import SHAPES, Block, Stack, angles_of, join_by_hand_
from louver.measure.protocol import Protocol, median
from louver.measure.record import write_record
from louver.torch import SparseLinear
from louver.torch.operators import OPS

LAYERS: Final = {"gate, up": (28672, 4096), "down": (4096, 14336), "q, k, v": (6144, 4096), "o": (4096, 4096)}
"""Outputs and inputs of the layers of a block of Llama 3 8B."""

TOKENS: Final = 8 * 2048

CLOSE: Final = 0.02
"""Most difference of a gradient, in units of its norm: both sides round to bf16."""

PROTOCOL: Final = Protocol(rounds=3, launches=1, burst_seconds=0.15, rotation_bytes=0)

WAYS: Final = {"ordinary": False, "transposable": True}
"""Whether a way's masks are transposable."""


def pruned(w: Any, transposable: bool) -> Any:
    return louver.prune(w, "2:4", transposable=transposable)


def same(name: str, mine: Any, wanted: Any) -> None:
    """Raises ArithmeticError if a gradient is another one."""
    error = float((mine.float() - wanted.float()).norm() / wanted.float().norm())
    if not error < CLOSE:
        raise ArithmeticError(f"{name}: the relative error is {error:.4f}")


def timed(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Milliseconds of each call."""
    loads = {name: prepare(torch, lambda _, call=call: call(), 1, PROTOCOL) for name, call in calls.items()}
    return {name: median(seconds) * 1e3 for name, seconds in take_turns(loads, PROTOCOL).items()}


def products(tokens: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for layer, (out, size) in LAYERS.items():
        dense = torch.randn(out, size, device="cuda", dtype=torch.bfloat16)
        x, g = (torch.randn(tokens, each, device="cuda", dtype=torch.bfloat16) for each in (size, out))
        calls: dict[str, Callable[[], object]] = {
            "forward dense": lambda x=x, w=dense: x @ w.t(),
            "dX dense": lambda g=g, w=dense: g @ w,
            "dW dense": lambda g=g, x=x: g.t() @ x,
        }
        for way, transposable in WAYS.items():
            w = pruned(dense, transposable)
            s = louver.compress(w, "2:4")
            values, indices = s.values, s.indices
            same(f"{layer} {way} dX", OPS.transposed(g, values, indices, size), g @ w)
            same(f"{layer} {way} dW", OPS.sampled(g, x, indices), OPS.take(g.t() @ x, indices))
            calls |= {
                f"forward {way}": lambda x=x, v=values, i=indices: OPS.linear(x, v, i),
                f"dX {way}": lambda g=g, v=values, i=indices, size=size: OPS.transposed(g, v, i, size),
                f"dW {way}": lambda g=g, x=x, i=indices: OPS.sampled(g, x, i),
            }
        for name, ms in timed(calls).items():
            product, way = name.split()
            rows.append({"layer": layer, "shape": [out, size], "product": product, "way": way, "ms": round(ms, 4)})
        torch.cuda.empty_cache()
    return rows


def trainable(block: Block, transposable: bool) -> Block:
    """The block with masks, whose linear layers are sparse."""
    made = copy.deepcopy(block)
    for name, layer in [(n, m) for n, m in made.named_modules() if isinstance(m, nn.Linear)]:
        layer.weight = nn.Parameter(pruned(layer.weight.detach(), transposable))
        made.set_submodule(name, SparseLinear.of(layer))
    return made


def block(sequences: int, length: int) -> list[dict[str, Any]]:
    """Milliseconds of forward and backward of a block."""
    shape = SHAPES["Llama 3 8B"]
    with torch.device("cuda"):
        stack = join_by_hand_(Stack(shape, 1, head=False).bfloat16(), scaled=False)
        x, y, g = (torch.randn(sequences, length, shape.width, dtype=torch.bfloat16) for _ in range(3))
        angles = angles_of(torch.arange(length, device="cuda"), shape.head)
    dense: Any = stack.blocks[0]
    dense.requires_grad_(True)
    models = {"dense": dense, **{way: trainable(dense, both) for way, both in WAYS.items()}}
    x.requires_grad_()

    def step(model: Any) -> None:
        for each in (x, *model.parameters()):
            each.grad = None
        h, z = model(x, y, angles, None)
        torch.autograd.backward((h, z), (g, g))

    times = timed({name: lambda model=model: step(model) for name, model in models.items()})
    return [{"way": name, "ms": round(ms, 3)} for name, ms in times.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="products,block")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    forbid_short_sums(require_torch())
    parts: dict[str, Callable[[], Any]] = {"products": lambda: products(TOKENS), "block": lambda: block(8, 2048)}
    record: dict[str, Any] = {"schema": 1, "kind": "training", **header(torch), "tokens": TOKENS}
    for name in given.parts.split(","):
        record[name] = parts[name]()
        for row in record[name]:
            print(name, row, flush=True)
    if given.out is not None:
        write_record(given.out, record)


if __name__ == "__main__":
    main()
