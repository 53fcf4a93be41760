"""Kernels with inline assembly. Triton must be installed to import these."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def assembled(out, x, y, z, n, ASM: tl.constexpr, CONSTRAINTS: tl.constexpr, B: tl.constexpr):
    """out = the assembly of x, y and z, which it may name as `$1` to `$3`."""
    r = tl.arange(0, B)
    a = tl.load(x + r, mask=r < n, other=0.0)
    b = tl.load(y + r, mask=r < n, other=0.0)
    c = tl.load(z + r, mask=r < n, other=0.0)
    found = tl.inline_asm_elementwise(ASM, CONSTRAINTS, [a, b, c], dtype=out.dtype.element_ty, is_pure=True, pack=1)
    tl.store(out + r, found, mask=r < n)


@triton.jit
def constant(out, ASM: tl.constexpr, PACK: tl.constexpr):
    """A scalar without sources."""
    tl.store(out, tl.inline_asm_elementwise(ASM, "=r", [], dtype=tl.int32, is_pure=True, pack=PACK))


@triton.jit
def sums_and_bits(out, bits, x, y, n, B: tl.constexpr):
    """Two results of a sequence with temporaries."""
    r = tl.arange(0, B)
    a = tl.load(x + r, mask=r < n, other=0.0)
    b = tl.load(y + r, mask=r < n, other=0.0)
    total, raw = tl.inline_asm_elementwise(
        """
        {
            // a "comment" of Ωs; loc("k.py":1:2)
            .reg .f32 t<2>, %u;
            .reg .pred p;
            mul.ftz.f32 t0, $2, 0f40000000; /* twice;
            over lines */
            fma.rn.f32 t1, t0, $3, -1.5;
            {
                .reg .b32 t0;
                and.b32 t0, $3, 0x7FFFFFFF;
                mov.f32 %u, t0;
            }
            setp.gt.f32 p, t0, %u;
            selp.f32 $0, t1, t0, p;
        }
        add.s32 $1, $0, 1;
        """,
        "=f,=&r,f,r",
        [a, b],
        dtype=(tl.float32, tl.int32),
        is_pure=False,
        pack=1,
    )
    tl.store(out + r, total, mask=r < n)
    tl.store(bits + r, raw, mask=r < n)


@triton.jit
def greatest(a, b):
    return tl.inline_asm_elementwise(
        "{ max.NaN.xorsign.abs.f32 $0, $1, $2; }", "=r,r,r", [a, b], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def scaled_sum(a, b):
    """A region with constants: the sum, by way of a half."""
    return tl.inline_asm_elementwise(
        "{ .reg .f32 t; mul.f32 t, $1, 0.5; fma.rn.f32 $0, t, 0f40000000, $2; }",
        *("=f,f,f", [a, b]),
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def reduced(out, x, m, M: tl.constexpr, N: tl.constexpr, SUM: tl.constexpr):
    """Each row's greatest magnitude with the product of all signs as bits, or its sum."""
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    a = tl.load(x + rows[:, None] * N + columns[None, :], mask=(rows < m)[:, None], other=0.0)
    if SUM:
        found = tl.reduce(a, 1, scaled_sum)
    else:
        found = tl.reduce(a, 1, greatest)
    tl.store(out + rows, found.to(tl.uint32, bitcast=True), mask=rows < m)


@triton.jit
def capped_product(x, w, y, M, N, K, sx, sw, sy, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """y = 4 · tanh(x · wᵀ / 4)."""
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.program_id(1) * TN + tl.arange(0, TN)
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for k in range(0, K, TK):
        ks = k + tl.arange(0, TK)
        a = tl.load(x + rows[:, None] * sx + ks[None, :], mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(w + columns[None, :] * sw + ks[:, None], mask=(columns[None, :] < N) & (ks[:, None] < K), other=0.0)
        total = tl.dot(a, b, total)
    total = total * 0.25
    total = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [total], tl.float32, True, 1) * 4.0
    tl.store(
        y + rows[:, None] * sy + columns[None, :],
        total.to(y.dtype.element_ty),
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )
