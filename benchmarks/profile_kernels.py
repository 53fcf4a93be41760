"""Counters of kernels: `python benchmarks/profile_kernels.py --shapes 4096x8192x8192 --out FILE.json`.

Protocol: a child process warms up each contender (`louver.linear`, the fastest algorithm of cuSPARSELt in short runs,
PyTorch's dense product), then runs it once under Nsight Compute. `--clock-control none` keeps the clock that power
allows. If a contender has several kernels, the longest is shown. Without ncu or permission for counters, the record has
the reason, and the exit status is 0.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from counters import KernelCounters, NoCountersError, by_contender, choose_metrics, find_ncu, known_metrics, profile
from louver.measure.contenders import REFUSALS, Contender, CuSparseLt, cublas, cusparselt_candidates, ours
from louver.measure.machine import CannotMeasureError, header, require_torch, tf32_products
from louver.measure.operands import make_operands
from louver.measure.problems import OUTPUTS, GemmProblem, parse_dtypes, parse_shapes
from louver.measure.protocol import Protocol
from louver.measure.record import write_record
from louver.measure.report.table import Column, Table, right
from louver.measure.sustained import ESTIMATE_REPLAYS, capture
from script import arguments

SEPARATOR = "spin_kernel"
"""The kernel of torch.cuda._sleep, which precedes each contender."""

WARM_CALLS = 3
COLUMNS = {
    "µs": ("nanoseconds", 1e-3, ".1f"),
    "MHz": ("clock_hz", 1e-6, ".0f"),
    "cycles": ("cycles", 1, ",.0f"),
    "tensor %": ("tensor_active_percent", 1, ".1f"),
    "banks read %": ("bank_reads_percent", 1, ".1f"),
    "written %": ("bank_writes_percent", 1, ".1f"),
    "L2 sectors M": ("l2_sectors", 1e-6, ".1f"),
    "memory MB": ("memory_bytes_read", 1e-6, ".0f"),
    "instr. M": ("instructions", 1e-6, ".2f"),
    "registers": ("registers", 1, ".0f"),
    "shared KB": ("shared_bytes", 1 / 1024, ".0f"),
}


def contenders_of(torch: Any, problem: GemmProblem) -> list[Contender]:
    """The contenders that this machine's libraries have."""
    operands = make_operands(torch, problem, sets=1)
    found = [ours(operands)]

    def short(contender: Contender) -> float:
        return capture(torch, contender.call, 4).seconds(ESTIMATE_REPLAYS)

    for make in (
        lambda: cusparselt_candidates(CuSparseLt(torch, operands), short, Protocol(algorithms=1))[0][1],
        lambda: cublas(torch, operands),
    ):
        try:
            contender = make()
            contender.call(0)
            torch.cuda.synchronize()
            found.append(contender)
        except REFUSALS as error:
            print(f"{problem}: not profiled: {str(error).splitlines()[0]}", flush=True)
    return found


def child(problems: list[GemmProblem], plan: Path) -> None:
    """The program under the tool. plan: a file for the names of the profiled contenders, in order."""
    torch = require_torch()
    order: list[dict[str, Any]] = []
    with tf32_products(torch):
        for problem in problems:
            for contender in contenders_of(torch, problem):
                for index in range(WARM_CALLS):
                    contender.call(index)
                torch.cuda.synchronize()
                order.append({"problem": str(problem), "contender": contender.name, "details": contender.details})
                torch.cuda.profiler.start()
                torch.cuda._sleep(1)
                contender.call(0)
                torch.cuda.synchronize()
                torch.cuda.profiler.stop()
            torch.cuda.empty_cache()
    plan.write_text(json.dumps(order))


def measured(problems: list[GemmProblem], arguments: list[str]) -> list[dict[str, Any]]:
    """The rows of the record. Raises NoCountersError."""
    ncu = find_ncu()
    metrics = choose_metrics(known_metrics(ncu))
    with tempfile.TemporaryDirectory() as folder:
        plan, log = Path(folder) / "plan.json", Path(folder) / "ncu.csv"
        command = [sys.executable, str(Path(__file__)), *arguments, "--child", str(plan)]
        kernels = profile(ncu, metrics, command, log)
        order = json.loads(plan.read_text()) if plan.is_file() else []
    names = [f"{entry['problem']} {entry['contender']}" for entry in order]
    found = by_contender(kernels, names, SEPARATOR)
    return [{**entry, **counted(found[name])} for name, entry in zip(names, order, strict=True)]


def counted(kernels: list[KernelCounters]) -> dict[str, Any]:
    """The longest kernel, and the number of kernels."""
    if not kernels:
        return {"kernels": 0, "kernel": "", "counters": {}}
    longest = max(kernels, key=lambda kernel: kernel.values.get("nanoseconds", 0.0))
    return {"kernels": len(kernels), "kernel": longest.kernel, "counters": dict(longest.values)}


def show(rows: list[dict[str, Any]], title: str) -> None:
    columns = (Column("product"), Column("contender"), *right(*COLUMNS))
    cells: list[tuple[str, ...]] = []
    for row in rows:
        values = [(row["counters"].get(name), factor, form) for name, factor, form in COLUMNS.values()]
        numbers = ("–" if value is None else format(value * factor, form) for value, factor, form in values)
        cells.append((row["problem"], row["contender"], *numbers))
    print("\n".join(Table(title, columns, cells).lines()))


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--shapes", default="4096x8192x8192", help="MxNxK, separated by commas")
    parser.add_argument("--dtype", default="f16,e4m3,int8", help="element types, separated by commas")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    problems = [
        GemmProblem(*shape, t, OUTPUTS[t][-1]) for shape in parse_shapes(args.shapes) for t in parse_dtypes(args.dtype)
    ]
    if args.child is not None:
        child(problems, args.child)
        return 0
    try:
        facts = header(require_torch())
    except CannotMeasureError as error:
        parser.error(str(error))
    begin = time.perf_counter()
    record: dict[str, Any] = {"kind": "profile", **facts, "protocol": " ".join(str(__doc__).split())}
    try:
        rows = measured(problems, ["--shapes", args.shapes, "--dtype", args.dtype])
        record["rows"] = rows
        show(rows, f"one launch each on {facts['device']}, clocks as they are")
    except NoCountersError as error:
        record |= {"rows": [], "refused": str(error)}
        print(f"no counters: {error}")
    record["seconds"] = round(time.perf_counter() - begin, 1)
    if args.out is not None:
        print(f"wrote {write_record(args.out, record)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
