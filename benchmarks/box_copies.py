"""Time of tensor copies of partial or unaligned boxes: `python benchmarks/box_copies.py --out FILE.json`.

Each CTA copies boxes with rows of 128 bytes, 4 boxes at a time, and repeats from the start. Tokens [128, K] have rows along
K; matrices [K, N] have 2,560 rows along N. All boxes follow each other along K. Parts of a box outside the matrix become
zeros. A launch copies 20,000 boxes for each CTA, and events give its time, the median of 5 launches. Clocks assume 1,755
MHz. The matrix stays in the L2 cache.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from louver.isa.bulk import TensorMap
from louver.measure.machine import require_torch
from louver.measure.record import write_record
from louver.ptx.assembler import assemble
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Kernel, Module, Param, Reg
from louver.ptx.printer import print_module
from louver.runtime.device import require_device
from louver.runtime.memory import DeviceBuffer
from louver.runtime.module import ArgumentPack, LoadedKernel, load
from louver.runtime.tensormap import encode
from script import facts_of

ROWS, ROW_BYTES, STAGES = 128, 128, 4
K = 2560
"""Elements of 2 bytes in a row of the matrix."""

BOX_BYTES = ROWS * ROW_BYTES
BARRIERS = STAGES * BOX_BYTES
ROUNDS = 5000
LAUNCHES = 5
CLOCK = 1755
"""Clocks per microsecond."""

CASES: dict[str, tuple[int, int, int, int, bool]] = {
    **{f"{rows} of 128 rows inside": (rows, K, 2 * K, ROWS, False) for rows in (128, 127, 120, 96, 64, 8)},
    **{f"boxes of {rows} rows, inside": (rows, K, 2 * K, rows, False) for rows in (96, 64, 8)},
    "no column inside but the first 64": (ROWS, 64, 2 * K, ROWS, False),
    **{f"rows {by} bytes after a line's start": (ROWS, K, 2 * K + by, ROWS, False) for by in (64, 32, 16)},
    **{f"N = {n}, rows {pitch} bytes apart": (K, n, pitch, ROWS, True) for n, pitch in (
        (64, 128), (64, 192), (64, 144), (8, 16), (8, 128), (16, 32), (32, 64), (32, 128), (48, 96), (56, 112), (56, 128)
    )},
}  # fmt: skip
"""Rows and columns of the matrix, its row pitch in bytes, the rows of a box, and whether boxes follow each other along rows."""


def build() -> Kernel:
    """The kernel: one thread waits for a stage, then copies the next box to it."""
    parameters = (
        *(Param("map", "tensormap"), Param("rounds", "u32"), Param("bytes", "u32")),
        *(Param("column_step", "u32"), Param("row_step", "u32")),
    )
    k = KernelBuilder("copy_boxes", parameters, threads=32, dynamic_shared=BARRIERS + 8 * STAGES)
    rounds, size, source, shared = k.ld_param("rounds"), k.ld_param("bytes"), k.map_address("map"), k.shared_symbol()
    steps = k.ld_param("column_step"), k.ld_param("row_step")
    with k.if_(k.setp("eq", "u32", k.special("%tid.x"), 0)):
        for stage in range(STAGES):
            k.mbarrier_init(Address(shared, BARRIERS + 8 * stage), 1)
        k.fence_mbarrier_init()
        column, row, number = k.mov(0), k.mov(0), k.mov(0)
        with k.loop() as loop:
            for stage in range(STAGES):
                barrier = Address(shared, BARRIERS + 8 * stage)
                k.wait(barrier, k.xor(k.and_(number, 1), 1))
                k.mbarrier_arrive_expect(barrier, size)
                k.bulk_tensor_load(Address(shared, stage * BOX_BYTES), source, [column, row], barrier)
                _advance(k, column, steps[0])
                _advance(k, row, steps[1])
            k.add(number, 1, into=number)
            loop.repeat_if(k.setp("lt", "u32", number, rounds))
        for stage in range(STAGES):
            k.wait(Address(shared, BARRIERS + 8 * stage), k.xor(k.and_(number, 1), 1))
    return k.finish()


def _advance(k: KernelBuilder, place: Reg, step: Reg) -> None:
    following = k.add(place, step)
    k.selp(following, 0, k.setp("lt", "u32", following, K), into=place)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch, place = require_torch(), require_device()
    kernel = build()
    cubin = assemble(print_module(Module(place.target, [kernel])), place.target).cubin
    ready = load(cubin, kernel.name, dynamic_shared=kernel.dynamic_shared, threads=kernel.threads)
    matrix = DeviceBuffer(max(rows * pitch for rows, _, pitch, *_ in CASES.values()))
    matrix.fill(0x11)
    rows = [
        {"case": name, "ctas": ctas, "clocks_a_box": round(_clocks(torch, ready, matrix, case, ctas), 1)}
        for name, case in CASES.items()
        for ctas in (1, 16, place.sm_count)
    ]
    for row in rows:
        print(f"{row['case']:36} {row['ctas']:4} CTAs {row['clocks_a_box']:7} clocks a box")
    record = {**facts_of(torch, "box copies", __doc__), "rows": rows}
    write_record(given.out, record)


def _clocks(
    torch, kernel: LoadedKernel, matrix: DeviceBuffer, case: tuple[int, int, int, int, bool], ctas: int
) -> float:
    rows, columns, pitch, box, down = case
    described = TensorMap(matrix.address, 2, (columns, rows), (pitch,), (ROW_BYTES // 2, box), 128)
    pack = ArgumentPack(("tensormap", "u32", "u32", "u32", "u32"))
    steps = (0, box) if down else (ROW_BYTES // 2, 0)
    pack.bind(encode(described), ROUNDS, described.box_bytes, *steps)
    stream = torch.cuda.current_stream()
    taken: list[float] = []
    for _ in range(LAUNCHES):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record(stream)
        kernel.launch(ctas, pack, stream.cuda_stream)
        end.record(stream)
        end.synchronize()
        taken.append(start.elapsed_time(end) * 1e3 * CLOCK / (ROUNDS * STAGES))
    return sorted(taken)[LAUNCHES // 2]


if __name__ == "__main__":
    main()
