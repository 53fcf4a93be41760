"""Instructions as document 000 prints them, with registers in place of its ranges, and the true forms beside them."""

from __future__ import annotations

from claims.shown import registers

_F4, _R4 = registers("f", 4), registers("r", 4, 20)
_WARP = "%r9"


def warp(mnemonic: str, sums: str, a: int, b: int) -> str:
    """A product of a warp as the document writes it: D, A, B, C, metadata."""
    d = _R4 if sums == "s32" else _F4
    return f"{mnemonic} {d}, {registers('r', a)}, {registers('r', b, 4)}, {d}, {_WARP};"


SM80 = {
    "f16": warp("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32.sparse", "f32", 4, 2),
    "tf32": warp("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32.sparse", "f32", 2, 2),
    "s8": warp("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32.sparse", "s32", 4, 2),
    "bf16": warp("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32.sparse", "f32", 4, 2),
}
"""L429-491."""


def true_warp(types: str, k: int, a: int, b: int) -> str:
    """`mma.sp::ordered_metadata` of d.a.b.d with `a` and `b` registers of operands."""
    d = _R4 if types.startswith("s32") else _F4
    return (
        f"mma.sp::ordered_metadata.sync.aligned.m16n8k{k}.row.col.{types} "
        f"{d}, {registers('r', a)}, {registers('r', b, 4)}, {d}, {_WARP}, 0;"
    )


TRUE_SM80 = {
    "f16": true_warp("f32.f16.f16.f32", 32, 4, 4),
    "f16 k16": true_warp("f32.f16.f16.f32", 16, 2, 2),
    "tf32": true_warp("f32.tf32.tf32.f32", 16, 4, 4),
    "tf32 k8": true_warp("f32.tf32.tf32.f32", 8, 2, 2),
    "s8": true_warp("s32.s8.s8.s32", 64, 4, 4),
    "s8 k32": true_warp("s32.s8.s8.s32", 32, 2, 2),
    "bf16": true_warp("f32.bf16.bf16.f32", 32, 4, 4),
    "s4 k64": true_warp("s32.s4.s4.s32", 64, 2, 2),
    "s4": true_warp("s32.s4.s4.s32", 128, 4, 4),
    "e4m3": true_warp("f32.e4m3.e4m3.f32", 64, 4, 4),
}


def warpgroup(shape_types: str) -> str:
    """`warpgroup.mma` as L623-663 write it."""
    return f"warpgroup.mma.{shape_types}.sparse {registers('f', 256)}, {registers('r', 128)}, {registers('r', 128, 128)}, %r299;"


SM90 = {
    "f16": warpgroup("m64n128k16.f32.f16.f16"),
    "e4m3": warpgroup("m64n128k32.f32.e4m3.e4m3"),
    "bf16": warpgroup("m64n128k16.f32.bf16.bf16"),
}

TRUE_SM90 = (
    f"wgmma.mma_async.sp.sync.aligned.m64n128k32.f32.f16.f16 {registers('f', 64)}, %d0, %d1, %r9, 0, %p, 1, 1, 0, 0;"
)
"""64 registers of sums a thread: 64 · 128 sums in 128 threads."""


def tcgen05(types: str, end: str = "", last: str = "%r299") -> str:
    """`tcgen05.mma` as L1001-1111 write it: registers for D, A, B, C, then metadata."""
    a, b = registers("r", 32), registers("r", 32, 32)
    return (
        f"tcgen05.mma.m64n32k32.{types}.sparse{end} {registers('f', 64)}, {a}, {b}, {registers('f', 64, 64)}, {last};"
    )


SM100 = {
    "f16": tcgen05("f32.f16.f16.f32"),
    "e4m3": tcgen05("f32.e4m3.e4m3.f32"),
    "e2m1": tcgen05("f32.e2m1.e2m1.f32"),
    "s8": tcgen05("s32.s8.s8.s32"),
    "s4": tcgen05("s32.s4.s4.s32"),
}
BLOCK_SCALE = tcgen05("f32.e4m3.e4m3.f32", ".blockscale", "%r298, %r299")
DYNAMIC = tcgen05("f32.f16.f16.f32", ".dynamic")
FOUND = tuple(
    f"tcgen05.mma.{name} {registers('f', 64)}, {registers('r', 32)}, {registers('r', 32, 32)}, %r299;"
    for name in (
        "m64n32k32.sparse",
        "m64n32k32.f32.f32.sparse",
        "m64n32k32.f16.f16.sparse",
        "m64n32k32.f8.f8.sparse",
        "sparse.blockscale",
    )
)
"""The variants that it found (L4007-4019)."""


def true_tcgen05(kind: str) -> str:
    """`tcgen05.mma.sp`: sums, A and metadata by tensor memory and descriptors, issued by one thread."""
    return f"tcgen05.mma.sp.cta_group::1.kind::{kind} [%r0], %d0, %d1, [%r1], %r2, %p;"
