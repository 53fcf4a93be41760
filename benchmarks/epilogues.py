"""The time of epilogues: `python benchmarks/epilogues.py --shape 4096x4096x4096 --out FILE.json`.

Protocol: `louver.linear` on f16 operands (weight rows × tokens × inner; a gated pair has half the rows each) with each
epilogue. One output is aligned for bulk copies; another one starts an element later and takes direct stores. Bursts of
graph replays in turns, medians, as in `louver bench gemm`. Results are first compared with the same steps in float64,
within twice the library's bound, because activations are compared by their greatest slope.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import louver
from louver.library.numerics import coefficients
from louver.measure.machine import require_torch
from louver.measure.operands import make_operands
from louver.measure.problems import GemmProblem, parse_shapes
from louver.measure.protocol import Protocol, median
from louver.measure.record import write_record
from louver.measure.report.table import Column, Table, right
from louver.measure.sustained import prepare, take_turns
from script import arguments, facts_of

CHECKED = 32
"""Number of tokens that are compared."""

Steps = Callable[[Any], Any]
"""A float64 result from a float64 sum."""


def epilogues(torch: Any, m: int, n: int) -> dict[str, tuple[dict[str, Any], Steps]]:
    """Options of `louver.linear` by name, with the same steps in float64. Vectors are along the rows of the weight."""
    draw = torch.Generator(device="cuda").manual_seed(5)
    bias, scale = (torch.randn(m, generator=draw, device="cuda") for _ in range(2))
    c = torch.randn(n, m, generator=draw, device="cuda", dtype=torch.float16)
    gelu = torch.nn.functional.gelu
    silu = torch.nn.functional.silu
    return {
        "none": ({}, lambda y: y),
        "bias": ({"bias": bias}, lambda y: y + bias.double()),
        "scale": ({"scale": scale}, lambda y: y * scale.double()),
        "relu": ({"activation": "relu"}, lambda y: y.clamp(min=0)),
        "silu": ({"activation": "silu"}, silu),
        "gelu": ({"activation": "gelu"}, gelu),
        "gelu_tanh": ({"activation": "gelu_tanh"}, lambda y: gelu(y, approximate="tanh")),
        "c": ({"c": c, "beta": 0.5}, lambda y: y + 0.5 * c[: len(y)].double()),
        "bias, scale, gelu": (
            {"bias": bias, "scale": scale, "activation": "gelu"},
            lambda y: gelu(y * scale.double() + bias.double()),
        ),
        "gated silu": ({"activation": "silu"}, lambda y: silu(y[:, : m // 2]) * y[:, m // 2 :]),
    }


def measure(torch: Any, shape: tuple[int, int, int], protocol: Protocol) -> list[dict[str, Any]]:
    m, n, k = shape
    gemm = GemmProblem(m, n, k, "f16")
    operands = make_operands(torch, gemm, sets=protocol.sets(gemm.compressed_bytes))
    pair = louver.gated(*(louver.compress(half, "2:4") for half in operands.dense[0].split(m // 2)))
    x64, w64 = operands.x[:CHECKED].double(), operands.dense[0].double()
    total, magnitude = x64 @ w64.T, x64.abs() @ w64.abs().T
    loads: dict[tuple[str, str], Any] = {}
    # Graphs use the arrays of their calls.
    calls: list[Callable[[int], Any]] = []
    for name, (options, steps) in epilogues(torch, m, n).items():
        gated = name.startswith("gated")
        weights = (pair,) if gated else operands.sparse
        wide = m // 2 if gated else m
        for store, offset in (("bulk", 0), ("direct", 1)):
            whole = torch.full((n * wide + 8,), float("nan"), dtype=torch.float16, device="cuda")
            out = whole[offset : offset + n * wide].view(n, wide)

            def call(index: int, weights: Any = weights, out: Any = out, options: Any = options) -> Any:
                return louver.linear(operands.x, weights[index % len(weights)], out=out, **options)

            calls.append(call)
            call(0)
            check(name, out[:CHECKED], steps(total), bound_of(total, magnitude, options, gated, m), k)
            loads[name, store] = prepare(torch, call, len(weights), protocol)
    times = {key: median(seconds) * 1e6 for key, seconds in take_turns(loads, protocol).items()}
    return [
        {"epilogue": name, "bulk_us": times[name, "bulk"], "direct_us": times[name, "direct"]}
        for name, store in times
        if store == "bulk"
    ]


def bound_of(total: Any, magnitude: Any, options: dict[str, Any], gated: bool, m: int) -> Any:
    """Σ|a||b| after the steps. Slopes of activations are at most 1.13, and a pair is a product of two sums."""
    if gated:
        gate, up = slice(None, m // 2), slice(m // 2, None)
        return 1.13 * (magnitude[:, gate] * total[:, up].abs() + total[:, gate].abs() * magnitude[:, up])
    scale = options.get("scale")
    return 1.13 * (magnitude * (1 if scale is None else scale.double().abs()) + 8)


def check(name: str, y: Any, expected: Any, magnitude: Any, k: int) -> None:
    """Raises ArithmeticError if a result is out of bounds."""
    relative, least, share = coefficients(k, "f16", "f32")
    room = 2 * (relative * expected.abs() + least + share * magnitude)
    wrong = ~((y.double() - expected).abs() <= room)
    if bool(wrong.any()):
        raise ArithmeticError(f"{name}: {int(wrong.sum())} of {wrong.numel()} elements are wrong")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--shape", default="4096x4096x4096")
    given = parser.parse_args()
    torch = require_torch()
    protocol = Protocol()
    (shape,) = parse_shapes(given.shape)
    rows = measure(torch, shape, protocol)
    cells: list[tuple[str, ...]] = []
    for row in rows:
        bulk, direct = row["bulk_us"], row["direct_us"]
        factors = (f"{direct / bulk:.3f}", f"{bulk / rows[0]['bulk_us']:.3f}")
        cells.append((row["epilogue"], f"{bulk:.1f}", f"{direct:.1f}", *factors))
    columns = (Column("epilogue"), *right("bulk µs", "direct µs", "direct / bulk", "bulk / none"))
    print("\n".join(Table("×".join(map(str, shape)) + " f16", columns, cells).lines()))
    if given.out is not None:
        record = {
            **facts_of(torch, "epilogues", __doc__),
            "bursts": protocol.describe_bursts(),
            "shape": list(shape),
            "rows": rows,
        }
        print(f"wrote {write_record(given.out, record)}")


if __name__ == "__main__":
    main()
