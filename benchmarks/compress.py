"""Times streaming kernels and copies: `python benchmarks/compress.py --out FILE.json`.

Dense weights [M, K] are on the GPU. Patterns other than 2:4 have the kernels prune, check, compress and dense. Each
kernel is timed with a copy that moves as many bytes, half read and half written. The share is the copy's time over the
kernel's. Results of some rows are first compared with NumPy's, bit for bit. Graph replays are interleaved, and the
median of the rounds counts. Weights rotate, so that they leave the L2 cache. Events time PyTorch's functions: compress
of a pruned weight by cuSPARSELt, and pruning with both orientations by CUTLASS.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import louver
from louver.formats.codes import index_bytes
from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.formats.rows import Windows
from louver.formats.select import PATTERN as TRANSPOSABLE
from louver.formats.tensor import row_pitch
from louver.isa.metadata import prepacked_shape
from louver.library.forms import Metadata
from louver.library.streaming.launch import Launch
from louver.library.streaming.launches import (
    Stored,
    check_into,
    compress_both_into,
    compress_into,
    dense_into,
    prepack_into,
    prune_into,
)
from louver.measure.contenders import copies_of
from louver.measure.machine import header, require_torch
from louver.measure.operands import converted
from louver.measure.protocol import Protocol, interleave, median
from louver.measure.record import write_record
from louver.measure.sustained import prepare
from louver.runtime.arrays import view

SHAPES = ((28672, 4096), (8192, 8192), (18944, 3584), (4096, 14336), (4096, 4096))
"""M, K."""

DTYPES = ("f16", "bf16", "e4m3", "s8")

ROWS = 256
"""Rows that are compared with NumPy: whole blocks of prepacked metadata."""

CALLS = 5
"""Calls of PyTorch's functions between two events."""

PROTOCOL = Protocol(rounds=5, burst_seconds=0.05)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel on one weight. moved: least bytes read plus written. results: first rows, with NumPy's. source: the kept
    input.
    """

    launch: Launch
    moved: int
    results: tuple[tuple[Any, Any], ...]
    source: Any = None


def kernels(torch: Any, dense: Any, dtype: str, pattern: Pattern) -> dict[str, Kernel]:
    """All kernels on a weight. Some read outputs of earlier ones."""
    (m, k), size = dense.shape, dense.element_size()
    pruned, out, whole = louver.prune(dense, pattern), torch.empty_like(dense), m * k * size
    along = room(torch, m, k, dtype, pattern)
    counters = torch.zeros(3 + pattern.m, dtype=torch.int64, device="cuda")
    to, count, indices = stored(along), counters.data_ptr(), along[1].numel()
    seen, seen_pruned, seen_out = view(dense), view(pruned), view(out)
    # Rows of whole windows.
    rows = np.ascontiguousarray(view(dense[: -(-ROWS // pattern.length) * pattern.length]).to_numpy())
    kept = louver.prune(rows, pattern)
    natural = parts(along, louver.compress(kept, pattern))
    compressed = whole + whole * pattern.n // pattern.m + indices
    crowded = np.zeros(pattern.m - pattern.n, np.int64)
    made = {
        "prune": Kernel(prune_into(seen, seen_out, pattern), 2 * whole, ((out, kept),)),
        "check": Kernel(
            check_into(seen_pruned, pattern, count), whole, ((counters[3 + pattern.n :], crowded),), pruned
        ),
        "compress pruned": Kernel(compress_into(seen_pruned, to, pattern, counters=count), compressed, natural, pruned),
        "compress": Kernel(compress_into(seen, to, pattern, method="magnitude"), compressed, natural),
    }
    if pattern == TRANSPOSABLE:
        made |= two_of_four(torch, dense, dtype, rows, along, out, count)
    return made | {"dense": Kernel(dense_into(to, seen_out, pattern, count), compressed, ((out, kept),))}


def two_of_four(
    torch: Any, dense: Any, dtype: str, rows: Any, along: tuple[Any, Any], out: Any, count: int
) -> dict[str, Kernel]:
    """The kernels of transposable masks and of metadata. rows: the first rows of the weight, on the host."""
    (m, k), whole, indices = dense.shape, dense.numel() * dense.element_size(), along[1].numel()
    across = room(torch, k, m, dtype, TRANSPOSABLE)
    words = torch.empty(4 * prod(prepacked_shape(m, k, dtype)), dtype=torch.uint8, device="cuda")
    packed, to, turned, seen = ("words", words.data_ptr()), stored(along), stored(across), view(dense)
    blocks = louver.prune(rows, TRANSPOSABLE, transposable=True)
    kept = louver.compress(rows, TRANSPOSABLE, method="magnitude")
    ready = (words, Metadata().host(kept))
    both = parts(along, louver.compress(blocks, TRANSPOSABLE))
    return {
        "prune by blocks": Kernel(
            prune_into(seen, view(out), TRANSPOSABLE, transposable=True), 2 * whole, ((out, blocks),)
        ),
        "both orientations": Kernel(
            compress_both_into(seen, to, turned),
            2 * (whole + indices),
            (*both, *parts(across, louver.compress(blocks, TRANSPOSABLE, axis=0))),
        ),
        "compress to ready": Kernel(
            compress_into(seen, to, TRANSPOSABLE, method="magnitude", words=packed),
            whole + whole // 2 + indices + words.numel(),
            (*parts(along, kept), ready),
        ),
        "prepack": Kernel(prepack_into(to.indices, (1, m, k), dtype, packed, count), indices + words.numel(), (ready,)),
    }


def room(torch: Any, rows: int, size: int, dtype: str, pattern: Pattern) -> tuple[Any, Any]:
    """Values [rows, pitch] as bytes, and indices."""
    windows = Windows((rows, size), 1, pattern)
    pitch = row_pitch(windows.groups * pattern.n, element_type(dtype))
    shapes = (rows, pitch), (windows.count, index_bytes(pattern, windows.groups))
    values, indices = (torch.empty(*shape, dtype=torch.uint8, device="cuda") for shape in shapes)
    return values, indices


def stored(arrays: tuple[Any, Any]) -> Stored:
    values, indices = arrays
    return Stored(values.data_ptr(), values.shape[1], indices.data_ptr())


def parts(arrays: tuple[Any, Any], s: louver.SparseTensor) -> tuple[tuple[Any, Any], ...]:
    """These arrays cut to the rows of a tensor, with the tensor's arrays."""
    values, indices = np.ascontiguousarray(s.values).view(np.uint8), s.indices
    return tuple((array[: len(own), : own.shape[1]], own) for array, own in zip(arrays, (values, indices), strict=True))


def verify(torch: Any, name: str, kernel: Kernel) -> None:
    """Raises ArithmeticError if results differ from NumPy's."""
    for found, expected in kernel.results:
        bits = found.contiguous().reshape(-1).view(torch.uint8).cpu().numpy()[: expected.nbytes]
        if bits.tobytes() != np.ascontiguousarray(expected).tobytes():
            raise ArithmeticError(f"{name} computes wrongly: report the shape and the type")


def libraries(torch: Any, weights: list[Any], pruned: Any) -> Iterator[tuple[str, Callable[[], object]]]:
    """PyTorch's compressors: cuSPARSELt, and CUTLASS for both orientations."""
    yield "cuSPARSELt compress", lambda: torch._cslt_compress(pruned)
    yield "CUTLASS both orientations", lambda: torch._sparse_semi_structured_tile(weights[0])


def by_events(torch: Any, call: Callable[[], object]) -> float | str:
    """Microseconds of a call, or its error."""
    try:
        call()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        times: list[float] = []
        for _ in range(PROTOCOL.rounds):
            begin.record()
            for _ in range(CALLS):
                call()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / CALLS)
        return round(median(times), 3)
    except (AttributeError, RuntimeError, TypeError) as error:
        return str(error).splitlines()[0]


def measure(torch: Any, shape: tuple[int, int], dtype: str, pattern: Pattern) -> dict[str, Any]:
    """A row of the record: microseconds of each kernel and of its copy."""
    m, k = shape
    sets = PROTOCOL.sets(m * k * element_type(dtype).bytes)
    weights = [converted(torch, torch.randn(m, k, device="cuda"), dtype) for _ in range(sets)]
    made = [kernels(torch, weight, dtype, pattern) for weight in weights]
    row: dict[str, Any] = {
        "shape": list(shape),
        "dtype": dtype,
        "pattern": str(pattern),
        "kernels": {},
        "libraries": {},
    }
    for name, first in made[0].items():

        def call(index: int, name: str = name) -> None:
            made[index % sets][name].launch.send(0, torch.cuda.current_stream().cuda_stream)

        for index in range(sets):
            call(index)
        verify(torch, name, first)
        runs = {"kernel": call, "copy": copies_of(torch, first.moved, sets).call}
        bursts = {each: prepare(torch, run, sets, PROTOCOL).burst for each, run in runs.items()}
        times = interleave(bursts, PROTOCOL.rounds, lambda: time.sleep(PROTOCOL.pause_seconds))
        us = {each: round(median(taken) * 1e6, 3) for each, taken in times.items()}
        row["kernels"][name] = us | {"bytes": first.moved, "share": round(us["copy"] / us["kernel"], 4)}
    if pattern != TRANSPOSABLE:
        return row
    for name, library in libraries(torch, weights, louver.prune(weights[0], pattern)):
        row["libraries"][name] = by_events(torch, library)
    return row


def line(row: dict[str, Any]) -> str:
    shares = [f"{name} {us['kernel']:.1f} us ({us['share']:.0%})" for name, us in row["kernels"].items()]
    return f"{row['shape']} {row['dtype']} {row['pattern']}: {', '.join(shares)}; {row['libraries']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default=",".join(DTYPES), help="element types, separated by commas")
    parser.add_argument("--pattern", type=Pattern.parse, default=TRANSPOSABLE, help="N:M or N:M@L, 2:4 by default")
    parser.add_argument("--budget", type=float, default=3600, help="seconds after which no shape is begun")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch, begin, rows = require_torch(), time.monotonic(), list[dict[str, Any]]()
    for dtype in given.dtype.split(","):
        for shape in SHAPES:
            if time.monotonic() - begin > given.budget:
                break
            rows.append(measure(torch, shape, dtype, given.pattern))
            print(line(rows[-1]), flush=True)
            record = {"kind": "compress", **header(torch), "protocol": __doc__, "rows": rows}
            write_record(given.out, record)


if __name__ == "__main__":
    main()
