"""The squared ReLU as one dense kernel, in Triton: what `benchmarks/activations.py` compares with."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def relu2(x, out, inverse, BLOCK: tl.constexpr):
    """out = relu(x)² · inverse, in the type of `out`. Blocks are whole."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.maximum(tl.load(x + at).to(tl.float32), 0.0)
    tl.store(out + at, (value * value * inverse).to(out.dtype.element_ty))


@triton.jit
def relu2_by_rows(x, out, scales, columns, BLOCK: tl.constexpr):
    """The same with the scale of each row, its largest activation / 448. A program has a row."""
    row = tl.program_id(0)
    first = row.to(tl.int64) * columns
    most = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        most = tl.maximum(most, tl.load(x + first + at, at < columns, 0.0).to(tl.float32))
    largest = tl.max(most)
    scale = tl.maximum(largest * largest / 448.0, 1.1754943508222875e-38)
    tl.store(scales + row, scale)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.maximum(tl.load(x + first + at, at < columns, 0.0).to(tl.float32), 0.0)
        tl.store(out + first + at, (value * value / scale).to(out.dtype.element_ty), at < columns)
