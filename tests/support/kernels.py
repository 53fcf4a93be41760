"""Kernels written by hand, so that these tests depend on nothing but the assembler."""

from __future__ import annotations

import functools

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"

AXPY = (
    HEAD
    + """
.visible .entry axpy(.param .u64 x, .param .u64 y, .param .f32 scale, .param .u32 n)
.reqntid 128
{
    .reg .pred p;
    .reg .b32 i, count, tid, cta;
    .reg .b64 px, py, offset;
    .reg .f32 a, vx, vy;
    ld.param.u64 px, [x];
    ld.param.u64 py, [y];
    ld.param.f32 a, [scale];
    ld.param.u32 count, [n];
    mov.u32 tid, %tid.x;
    mov.u32 cta, %ctaid.x;
    mad.lo.u32 i, cta, 128, tid;
    setp.ge.u32 p, i, count;
    @p ret;
    mul.wide.u32 offset, i, 4;
    add.u64 px, px, offset;
    add.u64 py, py, offset;
    ld.global.f32 vx, [px];
    ld.global.f32 vy, [py];
    fma.rn.f32 vy, a, vx, vy;
    st.global.f32 [py], vy;
    ret;
}
"""
)
"""y[i] += a · x[i] for i < n; 128 threads."""

CLUSTER_RANK = (
    HEAD
    + """
.visible .entry rank(.param .u64 out)
.reqntid 32
.reqnctapercluster 2
{
    .reg .pred p;
    .reg .b32 tid, cta, rank;
    .reg .b64 address, offset;
    ld.param.u64 address, [out];
    mov.u32 tid, %tid.x;
    setp.ne.u32 p, tid, 0;
    @p ret;
    mov.u32 cta, %ctaid.x;
    mov.u32 rank, %cluster_ctarank;
    mul.wide.u32 offset, cta, 4;
    add.u64 address, address, offset;
    st.global.u32 [address], rank;
    ret;
}
"""
)
"""out[cta] = the CTA's rank in its cluster of two; 32 threads."""

BOX = (
    HEAD
    + """
.extern .shared .align 1024 .b8 smem[];
.visible .entry box(.param .align 64 .b8 map[128], .param .u64 out, .param .u32 c0, .param .u32 c1, .param .u32 bytes)
.reqntid 128
{
    .reg .pred p, first;
    .reg .b32 tid, x, y, size, tile, bar, at, value;
    .reg .b64 pmap, pout, target, offset, state;
    mov.u32 tid, %tid.x;
    ld.param.u32 x, [c0];
    ld.param.u32 y, [c1];
    ld.param.u32 size, [bytes];
    ld.param.u64 pout, [out];
    mov.b64 pmap, map;
    cvta.param.u64 pmap, pmap;
    mov.u32 tile, smem;
    add.u32 bar, tile, size;
    setp.eq.u32 first, tid, 0;
    @!first bra ready;
    mbarrier.init.shared::cta.b64 [bar], 1;
    fence.proxy.async.shared::cta;
    mbarrier.arrive.expect_tx.shared::cta.b64 state, [bar], size;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [tile], [pmap, {x, y}], [bar];
ready:
    bar.sync 0;
wait:
    mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0;
    @!p bra wait;
    mul.lo.u32 tid, tid, 4;
copy:
    setp.ge.u32 p, tid, size;
    @p ret;
    add.u32 at, tile, tid;
    ld.shared.u32 value, [at];
    cvt.u64.u32 offset, tid;
    add.u64 target, pout, offset;
    st.global.u32 [target], value;
    add.u32 tid, tid, 512;
    bra copy;
}
"""
)
"""out = the shared-memory image of the map's box at (c0, c1); `bytes` of dynamic shared memory and 8 more; 128 threads."""


@functools.cache
def cubin(ptx: str) -> bytes:
    """The machine code of one of these kernels."""
    from louver.ptx.assembler import assemble

    return assemble(ptx, "sm_90a").cubin
