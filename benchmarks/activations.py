"""Times activations as the sparse operand: `python benchmarks/activations.py --out FILE.json`.

Hidden activations [4096, 14336] are random normal numbers; the squared ReLU leaves half of them. Three parts:

- "passes": `louver.sparsify` into a tensor, beside a copy that moves as many bytes, half read and half written.
- "layers": pass and product with a dense weight [4096, 14336], in one graph, beside one kernel for relu² (Triton) and the
  dense product of cuBLAS. With row scales both sides have one scale for each row and each output. e4m3 sums as the tensor
  cores do on both sides (fast accumulation), and the output is bf16.
- "errors": normal numbers are shifted until a share of their relu² is zero, independently. Groups of four with more than two
  non-zeros lose the smallest. The error is ‖y − y₀‖ / ‖y₀‖ over 512 tokens and 512 outputs, in f64, of dense activations y₀.

Results of some rows are first compared with NumPy's, bit for bit. Graph replays are interleaved, medians of the rounds count.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import louver
from louver.formats.dtypes import element_type
from louver.library.forms import Metadata
from louver.library.sparsify import ROWS, sparsified
from louver.measure.contenders import copies_of
from louver.measure.machine import header, require_torch
from louver.measure.protocol import Protocol, median
from louver.measure.record import write_record
from louver.measure.sustained import prepare, take_turns
from louver.runtime.arrays import view

TOKENS, HIDDEN, OUTPUTS = 4096, 14336, 4096
SCALE = 0.07
"""The given scale of e4m3: squares of normal numbers reach about 31, so they fill the range of e4m3."""

SETS = 3
"""Activations and tensors that the passes alone rotate over, so that they leave the L2 cache."""

CHECKED = 64
"""Rows that are compared with NumPy."""

ZEROS = (50, 60, 70, 80, 90, 95, 99)
"""Shares of zeros in per cent."""

SAMPLE = 512
"""Tokens and outputs of an error."""

PROTOCOL = Protocol(rounds=5, burst_seconds=0.03, pause_seconds=0.02)


@dataclass(frozen=True, slots=True)
class Way:
    """Types of activations and of stored values, and where the scale comes from: None, "number" or "rows"."""

    dtype: str
    stored: str
    scale: str | None = None

    def options(self, torch: Any) -> dict[str, Any]:
        """Options of `louver.sparsify` for a new tensor."""
        if self.scale == ROWS:
            return {"dtype": self.stored, "row_scales": torch.empty(TOKENS, device="cuda")}
        return {"dtype": self.stored, "scale": SCALE} if self.scale else {}


WAYS = (Way("f16", "f16"), Way("bf16", "bf16"), Way("bf16", "e4m3", "number"), Way("bf16", "e4m3", ROWS))


def activations(torch: Any, dtype: str, shift: float = 0.0, tokens: int = TOKENS) -> Any:
    made = torch.randn(tokens, HIDDEN, device="cuda") + shift
    return made.to(torch.float16 if dtype == "f16" else torch.bfloat16)


# --- relu² as one dense kernel -------------------------------------------------------------------------------------------
def dense_pass(torch: Any, way: Way) -> Callable[[Any, Any, Any], None]:
    """relu² of x to `out` in one kernel. The third argument: row scales, which are written."""
    from relu2_kernels import relu2, relu2_by_rows

    if way.scale == ROWS:
        return lambda x, out, scales: relu2_by_rows[(TOKENS,)](x, out, scales, HIDDEN, 8192, num_warps=8)
    inverse, block = 1 / SCALE if way.scale else 1.0, 4096
    return lambda x, out, scales: relu2[(TOKENS * HIDDEN // block,)](x, out, inverse, block, num_warps=8)


def dense_product(torch: Any, way: Way, h: Any, w: Any, scales: Any, of_outputs: Any, out: Any) -> Callable[[], object]:
    """cuBLAS on dense activations."""
    if way.scale is None:
        return lambda: torch.mm(h, w.t(), out=out)
    left, right = (torch.full((), SCALE, device="cuda"), torch.ones((), device="cuda"))
    if way.scale == ROWS:
        left, right = scales.view(-1, 1), of_outputs.view(1, -1)
    return lambda: torch._scaled_mm(
        h, w.t(), scale_a=left, scale_b=right, out_dtype=torch.bfloat16, use_fast_accum=True, out=out
    )


# --- parts ---------------------------------------------------------------------------------------------------------------
def verify(way: Way, x: Any, s: louver.SparseTensor, activation: Any, options: dict[str, Any]) -> None:
    """Raises ArithmeticError if the first rows differ from NumPy's."""
    scale = ROWS if way.scale == ROWS else SCALE if way.scale else None
    rows = view(x[:CHECKED].contiguous()).to_numpy()
    expected, scales = sparsified(rows, element_type(way.stored), activation, scale)
    found = view(s.values[:CHECKED].contiguous()).to_numpy(), view(s.indices[:CHECKED].contiguous()).to_numpy()
    same = all(
        np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
        for a, b in zip(found, (expected.values, expected.indices), strict=True)
    )
    if scales is not None:
        same = same and np.array_equal(options["row_scales"][:CHECKED].cpu().numpy(), scales)
    if not same:
        raise ArithmeticError(f"{way} computes wrongly: report the shape and the type")


def timed(torch: Any, calls: dict[str, Callable[[int], object]], sets: int) -> dict[str, float]:
    """Microseconds of each call, which takes the number of its set."""
    loads = {name: prepare(torch, call, sets, PROTOCOL) for name, call in calls.items()}
    return {name: round(median(taken) * 1e6, 3) for name, taken in take_turns(loads, PROTOCOL).items()}


def passes(torch: Any, way: Way) -> list[dict[str, Any]]:
    """Rows of the record: the pass alone, with relu² and without an activation."""
    xs = [activations(torch, way.dtype) for _ in range(SETS)]
    options = [way.options(torch) for _ in range(SETS)]
    out = [louver.sparsify(x, **given) for x, given in zip(xs, options, strict=True)]
    # bytes read, and written: values, indices, metadata, scales.
    moved = xs[0].nbytes + out[0].nbytes + Metadata().nbytes(out[0]) + (4 * TOKENS if way.scale == ROWS else 0)
    found: list[dict[str, Any]] = []
    for activation in ("relu2", None):

        def call(index: int, activation: Any = activation) -> None:
            number = index % SETS
            given = {name: value for name, value in options[number].items() if name != "dtype"}
            louver.sparsify(xs[number], out[number], activation=activation, **given)

        for number in range(SETS):
            call(number)
        verify(way, xs[0], out[0], activation, options[0])
        us = timed(torch, {"pass": call, "copy": copies_of(torch, moved, SETS).call}, SETS)
        row = {"dtype": way.dtype, "stored": way.stored, "scale": way.scale, "activation": activation, "bytes": moved}
        found.append(row | us | {"share": round(us["copy"] / us["pass"], 4)})
    return found


def layer(torch: Any, way: Way) -> dict[str, Any]:
    """A row of the record: pass and product, beside one kernel and cuBLAS."""
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn}[way.stored]
    output = torch.float16 if way.stored == "f16" else torch.bfloat16
    x, options = activations(torch, way.dtype), way.options(torch)
    w = (torch.randn(OUTPUTS, HIDDEN, device="cuda") * (1 if way.scale else HIDDEN**-0.5)).to(dtype)
    of_outputs = torch.rand(OUTPUTS, device="cuda") + 0.5
    y, y_dense = (torch.empty(TOKENS, OUTPUTS, device="cuda", dtype=output) for _ in range(2))
    s = louver.sparsify(x, activation="relu2", **options)
    scales = options.get("row_scales")
    epilogue = {} if way.scale is None else {"scale": scales if way.scale == ROWS else SCALE}
    epilogue |= {"dense_scale": of_outputs} if way.scale == ROWS else {}
    name = "f16" if way.stored == "f16" else "bf16"
    plan = louver.plan("matmul", s, n=OUTPUTS, like=w.t(), out_dtype=name, **epilogue)
    given = {name: value for name, value in options.items() if name != "dtype"}
    h = torch.empty(TOKENS, HIDDEN, device="cuda", dtype=dtype)
    dense, rows = dense_pass(torch, way), torch.empty(TOKENS, device="cuda")
    product = dense_product(torch, way, h, w, rows, of_outputs, y_dense)
    us = timed(
        torch,
        {
            "sparsify": lambda _: louver.sparsify(x, s, activation="relu2", **given),
            "sparse product": lambda _: plan(w.t(), out=y),
            "sparsify and product": lambda _: (louver.sparsify(x, s, activation="relu2", **given), plan(w.t(), out=y)),
            "relu2": lambda _: dense(x, h, rows),
            "cuBLAS": lambda _: product(),
            "relu2 and cuBLAS": lambda _: (dense(x, h, rows), product()),
        },
        1,
    )
    expected = s.dense()[:SAMPLE].double() @ w[:SAMPLE].double().t()
    if way.scale:
        expected *= scales[:SAMPLE, None].double() * of_outputs[:SAMPLE].double() if way.scale == ROWS else SCALE
    error = (y[:SAMPLE, :SAMPLE].double() - expected).norm() / expected.norm()
    if not error < 0.01:
        raise ArithmeticError(f"the product of {way} is wrong by {error}: report the shape and the type")
    row = {"dtype": way.dtype, "stored": way.stored, "scale": way.scale, "us": us}
    return row | {
        "ratio": round(us["sparsify and product"] / us["relu2 and cuBLAS"], 4),
        "error": float(f"{error:.3g}"),
    }


def errors(torch: Any) -> list[dict[str, Any]]:
    """Rows of the record: what pruning loses, by the share of zeros."""
    w = torch.randn(SAMPLE, HIDDEN, device="cuda", dtype=torch.float64)
    normal, found = torch.distributions.Normal(0.0, 1.0), list[dict[str, Any]]()
    for zeros in ZEROS:
        x = activations(torch, "f16", float(normal.icdf(torch.tensor(1 - zeros / 100))))
        h = torch.relu(x).square()
        report = louver.check(h, "2:4")
        some = x[:SAMPLE].contiguous()
        exact = torch.relu(some.double()).square()
        # The product of the pruned activations before they are rounded: what is pruned, and nothing else.
        kept = louver.sparsify(some, activation="relu2").dense() != 0
        pruned = exact * kept
        y, dense = pruned @ w.t(), exact @ w.t()
        row = {
            "zeros": round(float((h == 0).double().mean()), 4),
            "groups": report.groups,
            "broken": report.offending,
            "lost": round(float(1 - pruned.square().sum() / exact.square().sum()), 6),
            "error": round(float((y - dense).norm() / dense.norm()), 5),
        }
        found.append(row)
        print(row, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch = require_torch()
    torch.manual_seed(44)
    record: dict[str, Any] = {"kind": "activations", **header(torch), "protocol": __doc__}
    record |= {
        "shape": {"tokens": TOKENS, "hidden": HIDDEN, "outputs": OUTPUTS},
        "passes": [],
        "layers": [],
        "errors": [],
    }
    for way in WAYS:
        for row in passes(torch, way):
            record["passes"].append(row)
            print(row, flush=True)
        record["layers"].append(layer(torch, way))
        print(record["layers"][-1], flush=True)
        write_record(given.out, record)
    record["errors"] = errors(torch)
    write_record(given.out, record)


if __name__ == "__main__":
    main()
