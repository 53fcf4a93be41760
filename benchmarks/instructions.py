"""One product in clocks, dense and sparse, and the smallest weights: `python benchmarks/instructions.py --out FILE.json`.

Latency: one warp, or one warpgroup, whose products each wait for the one before. Rate: one CTA with an SM for itself, all its
warps with products that do not wait for each other; least of 4, 8 and 16 warps, or 1 and 2 warpgroups. Each is the least of
five launches by the SM's own clock, a loop of 256 rounds. "loaded": each product takes its metadata from shared memory.
Small weights: `louver.linear` of f16 on a plan, and `torch.mm`, in turns by CUDA graphs. About 40 s, most of it compilation.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

import louver
from louver.isa.mma import Mma
from louver.isa.swizzle import Descriptor, Swizzle
from louver.isa.wgmma import Wgmma
from louver.measure.machine import header, require_torch
from louver.measure.operands import make_operands
from louver.measure.problems import GemmProblem
from louver.measure.protocol import Protocol, median
from louver.measure.record import write_record
from louver.measure.sustained import prepare, take_turns
from louver.ptx.assembler import assemble
from louver.runtime.device import require_device
from louver.runtime.memory import DeviceBuffer
from louver.runtime.module import ArgumentPack, load
from script import arguments

ROUNDS, LAUNCHES, SHARED = 256, 5, 49152
TYPES = (("f16", "f32"), ("tf32", "f32"), ("s8", "s32"))
SMALL = (64, 128, 256, 512, 1024)
PROTOCOL = Protocol(rounds=3, burst_seconds=0.02, pause_seconds=0.01)

METADATA = 0x44444444
"""The first two of each group of four, the first of each pair of tf32."""


def kernel(body: Sequence[str], declared: str, threads: int) -> str:
    """A kernel that repeats `body` and stores the SM's clock before and behind, [warps, 2] of 64 bits."""
    return "\n".join(
        [
            ".version 8.6\n.target sm_90a\n.address_size 64",
            f".visible .entry clocks(.param .u64 out, .param .u32 rounds) .reqntid {threads} {{",
            f".shared .align 1024 .b8 smem[{SHARED - 1024}];",
            ".reg .b32 %i, %rounds, %lane, %warp, %at, %end, %m, %v; .reg .b64 %out, %begin, %stop; .reg .pred %p, %q;",
            declared,
            "ld.param.u64 %out, [out]; ld.param.u32 %rounds, [rounds]; mov.u32 %lane, %tid.x; shr.u32 %warp, %lane, 5;",
            # Legal metadata, and small numbers in each type, everywhere in shared memory.
            f"mov.u32 %at, smem; add.u32 %end, %at, {SHARED - 1024}; mad.lo.u32 %at, %lane, 4, %at; mov.u32 %v, {METADATA};",
            f"FILL: st.shared.b32 [%at], %v; add.u32 %at, %at, {4 * threads}; setp.lt.u32 %p, %at, %end; @%p bra FILL;",
            f"mov.u32 %m, {METADATA}; mov.u32 %i, 0; mov.u32 %at, smem; mad.lo.u32 %at, %lane, 4, %at; setp.eq.u32 %q, %i, 0;",
            "fence.proxy.async; bar.sync 0; mov.u64 %begin, %clock64;",
            "LOOP:",
            *body,
            "add.u32 %i, %i, 1; setp.lt.u32 %p, %i, %rounds; @%p bra LOOP;",
            "KEPT: mov.u64 %stop, %clock64; and.b32 %v, %lane, 31; setp.ne.u32 %p, %v, 0; @%p bra DONE;",
            "mul.wide.u32 %begin2, %warp, 16; add.u64 %out, %out, %begin2; st.global.v2.b64 [%out], {%begin, %stop};",
            "DONE: ret; }\n",
        ]
    )


def warp_kernel(product: Mma, chains: int, warps: int, *, loaded: bool) -> str:
    """`chains` products a round that do not wait for each other; those of a chain do."""
    kind = "b32" if product.d == "s32" else "f32"
    a, b = (", ".join(f"%{name}{i}" for i in range(count)) for name, count in _operands(product).items())
    set_up = [f"mov.b32 %{name}{i}, {METADATA};" for name, count in _operands(product).items() for i in range(count)]
    zero = "0" if kind == "b32" else "0f00000000"
    sums = [", ".join(f"%d{4 * chain + i}" for i in range(4)) for chain in range(chains)]
    body: list[str] = []
    for held in sums:
        if loaded and product.sparse:
            body.append("ld.volatile.shared.b32 %m, [%at];")
        body.append(
            product.text(f"{{{held}}}", f"{{{a}}}", f"{{{b}}}", f"{{{held}}}", *(["%m"] * product.sparse)) + ";"
        )
    declared = f".reg .b32 %a<4>, %b<4>; .reg .b64 %begin2; .reg .{kind} %d<{4 * chains}>;\n" + "\n".join(
        [*set_up, *(f"mov.{kind} %d{i}, {zero};" for i in range(4 * chains))]
    )
    return _kept(kernel(body, declared, 32 * warps), kind, 4 * chains)


def _operands(product: Mma) -> dict[str, int]:
    return {"a": product.a_fragment.registers, "b": product.b_fragment.registers}


def _kept(text: str, kind: str, count: int) -> str:
    """The text with a use of every sum that never happens, before the second clock is read."""
    lines = [
        f"setp.{'eq.s32' if kind == 'b32' else 'eq.f32'} %q, %d{i}, {'-7' if kind == 'b32' else '0fC0E00000'}; @%q st.global.{kind} [%out], %d{i};"
        for i in range(count)
    ]
    return text.replace("KEPT:", "\n".join([*lines, "KEPT:"]))


def group_kernel(product: Wgmma, together: int, groups: int, *, loaded: bool) -> str:
    """`together` products of a warpgroup for each wait. Operands lie in rows of 128 bytes, swizzled."""
    kind, count = ("b32" if product.d == "s32" else "f32"), product.d_fragment.registers
    place = Descriptor(0, 16, 1024, Swizzle(128)).encode()
    held = f"{{{', '.join(f'%d{i}' for i in range(count))}}}"
    zero = "0" if kind == "b32" else "0f00000000"
    one = ["ld.volatile.shared.b32 %m, [%at];"] * (loaded and product.sparse)
    text = product.text(held, "%da", "%db", *(["%m"] * product.sparse), "%always") + ";"
    body = [
        "wgmma.fence.sync.aligned;",
        *([*one, text] * together),
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
    ]
    declared = (
        f".reg .b64 %begin2, %da, %db; .reg .b32 %start; .reg .pred %always; .reg .{kind} %d<{count}>;\n"
        "mov.u32 %start, smem; shr.u32 %start, %start, 4; cvt.u64.u32 %da, %start; setp.eq.u32 %always, %start, %start;\n"
        f"add.u64 %da, %da, {place}; add.u64 %db, %da, {8192 >> 4};\n"
        + "\n".join(f"mov.{kind} %d{i}, {zero};" for i in range(count))
    )
    return _kept(kernel(body, declared, 128 * groups), kind, count)


def clocks(text: str, warps: int) -> float:
    """Clocks of a round: from the first warp's begin to the last one's end, the least of some launches."""
    found = load(_assembled(text), "clocks", threads=32 * warps)
    out, pack = DeviceBuffer(16 * warps), ArgumentPack(("u64", "u32"))
    pack.bind(out.address, ROUNDS)
    times: list[float] = []
    for _ in range(LAUNCHES):
        found.launch(1, pack)
        marks = out.read().view(np.uint64).reshape(warps, 2).astype(np.int64)
        times.append(float(marks[:, 1].max() - marks[:, 0].min()) / ROUNDS)
    return min(times)


@functools.cache
def _assembled(text: str) -> bytes:
    return assemble(text, "sm_90a").cubin


def warp_rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for element, d in TYPES:
        for sparse in (False, True):
            dense_k = 256 // {"f16": 16, "tf32": 32, "s8": 8}[element]
            product = Mma(element, element, d, dense_k * (2 if sparse else 1), sparse)
            work = 16 * 8 * product.k
            for loaded in (False, True) if sparse else (False,):
                latency = clocks(warp_kernel(product, 1, 1, loaded=loaded), 1)
                each = {w: clocks(warp_kernel(product, 8, w, loaded=loaded), w) / (8 * w) for w in (4, 8, 16)}
                rows.append(_row(product.mnemonic, element, sparse, loaded, latency, min(each.values()), work))
    return rows


def group_rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for element, d in (*TYPES, ("e4m3", "f32")):
        for sparse in (False, True):
            product = Wgmma(256, element, element, d, sparse)
            work = 64 * 256 * product.k
            for loaded in (False, True) if sparse else (False,):
                small = Wgmma(8, element, element, d, sparse)
                latency = clocks(group_kernel(small, 1, 1, loaded=loaded), 4)
                each = {g: clocks(group_kernel(product, 8, g, loaded=loaded), 4 * g) / (8 * g) for g in (1, 2)}
                rows.append(_row(product.mnemonic, element, sparse, loaded, latency, min(each.values()), work))
    return rows


def _row(
    mnemonic: str, element: str, sparse: bool, loaded: bool, latency: float, each: float, work: int
) -> dict[str, Any]:
    """products_per_clock: of an SM, dense-equivalent multiplications. latency of wgmma: of n8, with its wait."""
    row = {
        "instruction": mnemonic,
        "dtype": element,
        "sparse": sparse,
        "metadata": "loaded" if loaded else "in a register" if sparse else None,
        "latency": round(latency, 2),
        "clocks": round(each, 2),
        "products_per_clock": round(work / each, 1),
    }
    print(row, flush=True)
    return row


def small_rows(torch: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for side in SMALL:
        problem = GemmProblem(side, side, side, "f16")
        operands = make_operands(torch, problem, 1)
        plan = louver.plan("linear", operands.sparse[0], side, like=operands.x)
        calls = {
            "ours": functools.partial(_planned, plan, operands),
            "cublas": functools.partial(_dense, torch, operands),
        }
        loads = {name: prepare(torch, call, 1, PROTOCOL) for name, call in calls.items()}
        times = {f"{name}_us": round(1e6 * median(taken), 3) for name, taken in take_turns(loads, PROTOCOL).items()}
        rows.append({"shape": [side, side, side], "dtype": "f16", **times})
        print(rows[-1], flush=True)
    return rows


def _planned(plan: Any, operands: Any, index: int) -> None:
    plan(operands.x, out=operands.y)


def _dense(torch: Any, operands: Any, index: int) -> None:
    torch.mm(operands.x, operands.dense[0].t(), out=operands.y)


def main() -> None:
    parser = arguments(__doc__, needed=True)
    given = parser.parse_args()
    torch, place = require_torch(), require_device()
    if place.target != "sm_90a":
        raise SystemExit(f"the instructions are of sm_90a, got {place.target}")
    found = {"instructions": [*warp_rows(), *group_rows()], "rows": small_rows(torch)}
    write_record(given.out, {"kind": "instructions", **header(torch), "protocol": __doc__, **found})


if __name__ == "__main__":
    main()
