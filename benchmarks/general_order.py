"""What products in flight are worth on the general path: `python benchmarks/general_order.py [NAME…]`.

Each kernel runs as register tiles in three orders of a step: products in flight from rings of `LEAST_IN_FLIGHT` slots on,
from three slots on, and ended with their step. A kernel that is a product also runs as Louver's product of the same
tile. Results at small sizes are compared with float64, and those of the orders with each other. Bursts of graph replays
by turns, medians.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import louver
from louver.compile.plan.feeds import ring_copies
from louver.measure.forms import Call, Draw, Form, Sizes, bind, compressed, wide
from louver.measure.machine import require_torch
from louver.measure.operands import as_torch
from louver.measure.protocol import Protocol, median
from louver.measure.sustained import prepare, take_turns
from louver.user.hints import REGISTER_TILES

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

PROTOCOL = Protocol(burst_seconds=0.03, pause_seconds=0.02)

ORDERS = {"in flight": ring_copies.LEAST_IN_FLIGHT, "from 3 slots": 3, "ended": 99}
"""Slots from which products run on. `num_stages`, which register tiles ignore, tells the kernels of orders apart."""

OTHERS = (
    ("boxes", "described tiles"),
    ("boxes", "pointed tiles"),
    ("boxes", "persistent tiles"),
    ("chains", "gate and up"),
    ("chains", "low-rank addition"),
    ("chains", "attention of a projection"),
    ("pytorch", "mm + mm, both sparse"),
    ("addresses", "rows listed, 8-bit integers"),
    ("scaled", "fp8 rows"),
    ("vllm", "fused experts, weighted"),
    ("fused", "gate in halves"),
    ("fused", "gate of neighbours"),
)


def _linear(draw: Draw, s: Sizes) -> Call:
    w, x = draw.pruned(s.m, s.k), draw.dense(s.n, s.k)
    y = np.zeros((s.n, s.m), np.float16)
    return Call({"y": y, "w": w, "x": x}, lambda: {"y": wide(x) @ wide(w).T})


def kernels() -> list[Form]:
    """The product at both tiles of the gate, and kernels that are no product."""
    from triton_kernels import linear

    from support.triton.forms.find import forms

    tiles = (Sizes(4096, 8192, 8192, 128, 256, 64), Sizes(4096, 8192, 8192, 128, 128, 64))
    product = Form("linear", linear, _linear, Sizes(200, 144, 272, 128, 128, 64), tiles)
    return [product, *(forms(file)[name] for file, name in OTHERS)]


def measure(torch: Any, form: Form, sizes: Sizes) -> dict[str, float]:
    """Microseconds by order."""
    hints: dict[str, dict[str, Any]] = {
        name: {"family": REGISTER_TILES, "num_stages": number} for number, name in enumerate(ORDERS, 1)
    }
    if form.name == "linear":
        # With a hint the product keeps the kernel's tile.
        hints["product"] = {"consumers": 2}
    place = lambda array: as_torch(torch, array).cuda()  # noqa: E731 - short
    small, large = (compressed(form.call(zlib.crc32(form.name.encode()), each)) for each in (form.small, sizes))
    loads, results = {}, {}
    for name, given in hints.items():
        ring_copies.LEAST_IN_FLIGHT = ORDERS.get(name, ORDERS["in flight"])
        kernel = louver.jit(form.kernel, **given)
        known, outs = bind(small, sparse=False, place=place)
        kernel[small.grid](**known)
        for out, right in small.expected().items():
            difference = np.abs(outs[out].double().cpu().numpy() - right)
            if not (difference <= form.tolerance * np.abs(right).max()).all():
                raise ArithmeticError(f"{form.name}, {name}: {out} differs by {np.nanmax(difference):.3g}")
        known, outs = bind(large, sparse=False, place=place)
        kernel[large.grid](**known)
        torch.cuda.synchronize()
        results[name] = outs
        loads[name] = prepare(torch, partial(_run, kernel, large.grid, known), 1, PROTOCOL)
    first = results["in flight"]
    for name in ORDERS:
        if not all(torch.equal(first[out], results[name][out]) for out in first):
            raise ArithmeticError(f"{form.name}: the orders give different results")
    return {name: median(taken) * 1e6 for name, taken in take_turns(loads, PROTOCOL).items()}


def _run(kernel: Any, grid: tuple[int, ...], known: dict[str, Any], _: int) -> None:
    kernel[grid](**known)


def main(wanted: Sequence[str]) -> None:
    """wanted: parts of the kernels' names; all kernels without them."""
    torch = require_torch()
    # No other program may find kernels that are compiled in another order.
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LOUVER_CACHE_DIR"] = folder
        for form in [each for each in kernels() if not wanted or any(part in each.name for part in wanted)]:
            for sizes in form.large[:2]:
                times = measure(torch, form, sizes)
                own = times["in flight"]
                shares = ", ".join(f"{name} {us:.1f} µs ({us / own:.3f})" for name, us in times.items())
                print(f"{form.name} {sizes.BM}x{sizes.BN}x{sizes.BK}: {shares}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
