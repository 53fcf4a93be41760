"""compute-sanitizer over small products: `python benchmarks/sanitize.py --out FILE.json`.

Protocol: benchmarks/one_product.py (which checks its results: every output type, both products, every option) first runs alone
for each shape and pair of element types, so that its kernels are compiled; then memcheck, racecheck and synccheck run it for
each, side by side on one GPU. The summary lines are the
tool's own. Exit status 1 unless all are clean, 3 where there is no compute-sanitizer.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from louver.ptx.assembler import ptxas_version
from louver.runtime.device import require_device

TOOLS = ("memcheck", "racecheck", "synccheck")
SHAPES = (
    ("200", "72", "1000", "f16", "f16"),
    ("129", "257", "513", "bf16", "bf16"),
    ("1", "1", "3", "f16", "f16"),
    ("200", "72", "1000", "e4m3", "e5m2"),
    ("129", "257", "513", "s8", "u8"),
)
SECONDS = 240
PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/nvidia")
SHOWN_LINES = 60

_SUMMARY = re.compile(r"=+ ((?:ERROR|RACECHECK) SUMMARY: .*)")
_COUNT = re.compile(r"SUMMARY: (\d+)")


@dataclass(frozen=True)
class Finding:
    """status: of the process, None when it ran out of time. summary: the tool's own lines. said: its output if not clean."""

    tool: str
    shape: str
    status: int | None
    summary: tuple[str, ...]
    clean: bool
    seconds: float
    said: str


def find_sanitizer() -> Path | None:
    """compute-sanitizer from the PATH or where NVIDIA's packages put it."""
    found = shutil.which("compute-sanitizer")
    if found is not None:
        return Path(found)
    for place in PLACES:
        for path in sorted(Path(place).rglob("compute-sanitizer")) if Path(place).is_dir() else ():
            if path.is_file() and os.access(path, os.X_OK):
                return path
    return None


def program(shape: Iterable[str]) -> list[str]:
    return [sys.executable, str(Path(__file__).with_name("one_product.py")), *shape]


def run(command: list[str]) -> tuple[int | None, str]:
    """The status and output, status None when it took too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        partial = late.stdout or b""
        return None, partial.decode(errors="replace") if isinstance(partial, bytes) else partial
    return done.returncode, done.stdout + done.stderr


def sanitize(sanitizer: Path, tool: str, shape: tuple[str, ...]) -> Finding:
    """One tool over one shape."""
    start = time.perf_counter()
    # cuda.bindings asks the driver for functions of other versions as it starts: refusals that are no memory errors.
    status, output = run([str(sanitizer), "--tool", tool, "--report-api-errors", "no", *program(shape)])
    seconds = round(time.perf_counter() - start, 1)
    summary = tuple(_SUMMARY.findall(output))
    counts = [_COUNT.search(line) for line in summary]
    clean = status == 0 and bool(counts) and all(count is not None and count[1] == "0" for count in counts)
    said = "" if clean else "\n".join(output.splitlines()[:SHOWN_LINES])
    return Finding(tool, " ".join(shape), status, summary, clean, seconds, said)


def version(sanitizer: Path) -> str:
    _, output = run([str(sanitizer), "--version"])
    numbers = re.search(r"\d+(\.\d+)+", output)
    return numbers[0] if numbers else output.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the record as JSON")
    args = parser.parse_args()
    sanitizer = find_sanitizer()
    if sanitizer is None:
        print("no compute-sanitizer on the PATH or in", ", ".join(PLACES))
        return 3
    device = require_device()
    with ThreadPoolExecutor(len(TOOLS) * len(SHAPES)) as pool:
        alone = list(pool.map(lambda shape: run(program(shape)), SHAPES))
        jobs = [pool.submit(sanitize, sanitizer, tool, shape) for tool in TOOLS for shape in SHAPES]
        findings = [job.result() for job in jobs]
    for shape, (status, output) in zip(SHAPES, alone, strict=True):
        if status != 0:
            print(f"{' '.join(shape)} without the sanitizer: status {status}\n{output}")
    for finding in findings:
        lines = "; ".join(finding.summary) or "no summary"
        print(f"{finding.tool:10} {finding.shape:24} {finding.seconds:6.1f} s  status {finding.status}  {lines}")
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
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if record["clean"] and all(status == 0 for status, _ in alone) else 1


if __name__ == "__main__":
    raise SystemExit(main())
