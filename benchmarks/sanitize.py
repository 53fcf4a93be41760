"""compute-sanitizer over small products: `python benchmarks/sanitize.py --out FILE.json`.

Protocol: programs that check their results first run alone, so that their kernels are compiled. Then memcheck,
racecheck and synccheck run each program, side by side on one GPU. benchmarks/one_product.py covers shapes, pairs of
element types, output types, both products and all options. benchmarks/structures.py covers the structures of kernels:
bulk stores of each width, tiles and roles, clusters, metadata in the ring, promoted and f16 sums, gated products and
batches. benchmarks/general_path.py covers the general path of users' kernels: rings of boxes and of other tiles,
computed operands, decompressed tiles, staged stores and atomics. The tools print the summary lines. Exit status 1
unless all are clean, 3 without compute-sanitizer.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from counters import find_tool
from louver.measure.record import write_record
from louver.ptx.assembler import ptxas_version
from louver.runtime.device import require_device
from script import arguments

TOOLS = ("memcheck", "racecheck", "synccheck")
PROGRAMS = (
    ("one_product.py", "200", "72", "1000", "f16", "f16"),
    ("one_product.py", "129", "257", "513", "bf16", "bf16"),
    ("one_product.py", "1", "1", "3", "f16", "f16"),
    ("one_product.py", "200", "72", "1000", "e4m3", "e5m2"),
    ("one_product.py", "129", "257", "513", "s8", "u8"),
    ("one_product.py", "200", "72", "1000", "f16", "f16", "--target", "sm_80"),
    ("one_product.py", "129", "257", "512", "bf16", "bf16", "--target", "sm_86"),
    ("one_product.py", "129", "257", "512", "s8", "s8", "--target", "sm_120"),
    ("structures.py", "bulk"),
    ("structures.py", "tiles"),
    ("structures.py", "clusters"),
    ("structures.py", "sums"),
    ("general_path.py",),
)
SECONDS = 120
"""Longest run of a program."""

PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/nvidia")
SHOWN_LINES = 60

_SUMMARY = re.compile(r"=+ ((?:ERROR|RACECHECK) SUMMARY: .*)")
_COUNT = re.compile(r"SUMMARY: (\d+)")


@dataclass(frozen=True)
class Finding:
    """status: of the process, None after a timeout. summary: lines of the tool. said: its output if not clean."""

    tool: str
    program: str
    status: int | None
    summary: tuple[str, ...]
    clean: bool
    seconds: float
    said: str


def command_of(program: tuple[str, ...]) -> list[str]:
    script, *arguments = program
    return [sys.executable, str(Path(__file__).with_name(script)), *arguments]


def run(command: list[str]) -> tuple[int | None, str]:
    """Status and output. The status is None after a timeout."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        partial = late.stdout or b""
        return None, partial.decode(errors="replace") if isinstance(partial, bytes) else partial
    return done.returncode, done.stdout + done.stderr


def sanitize(sanitizer: Path, tool: str, program: tuple[str, ...]) -> Finding:
    start = time.perf_counter()
    # At start, cuda.bindings asks the driver for functions of other versions. Those refusals are no memory errors.
    status, output = run([str(sanitizer), "--tool", tool, "--report-api-errors", "no", *command_of(program)])
    seconds = round(time.perf_counter() - start, 1)
    summary = tuple(_SUMMARY.findall(output))
    counts = [_COUNT.search(line) for line in summary]
    clean = status == 0 and bool(counts) and all(count is not None and count[1] == "0" for count in counts)
    said = "" if clean else "\n".join(output.splitlines()[:SHOWN_LINES])
    return Finding(tool, " ".join(program), status, summary, clean, seconds, said)


def version(sanitizer: Path) -> str:
    _, output = run([str(sanitizer), "--version"])
    numbers = re.search(r"\d+(\.\d+)+", output)
    return numbers[0] if numbers else output.strip()


def main() -> int:
    parser = arguments(__doc__)
    args = parser.parse_args()
    sanitizer = find_tool("compute-sanitizer", PLACES)
    if sanitizer is None:
        print("no compute-sanitizer on the PATH or in", ", ".join(PLACES))
        return 3
    device = require_device()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        alone = list(pool.map(lambda program: run(command_of(program)), PROGRAMS))
        # The longest programs first.
        jobs = [pool.submit(sanitize, sanitizer, tool, program) for program in reversed(PROGRAMS) for tool in TOOLS]
        findings = [job.result() for job in jobs]
    for program, (status, output) in zip(PROGRAMS, alone, strict=True):
        if status != 0:
            print(f"{' '.join(program)} without the sanitizer: status {status}\n{output}")
    for finding in findings:
        lines = "; ".join(finding.summary) or "no summary"
        print(f"{finding.tool:10} {finding.program:40} {finding.seconds:6.1f} s  status {finding.status}  {lines}")
        if not finding.clean:
            print(finding.said)
    record = {
        "device": device.name,
        "cuda": ".".join(map(str, device.driver)),
        "ptxas": ptxas_version(),
        "compute_sanitizer": version(sanitizer),
        "protocol": " ".join(str(__doc__).split()),
        "clean": all(finding.clean for finding in findings),
        "findings": [asdict(finding) for finding in findings],
    }
    if args.out is not None:
        write_record(args.out, record)
    return 0 if record["clean"] and all(status == 0 for status, _ in alone) else 1


if __name__ == "__main__":
    raise SystemExit(main())
