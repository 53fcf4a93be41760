"""Start-up time of a new process: it compiles a kernel from Python to cubin, or reads it from disk.

`python -m louver.measure.start` is the timed process. It prints its times as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from louver.choose.configure import choose
from louver.frontend.problem import Problem
from louver.isa.targets import SM_90A
from louver.library.compiled import record_of

FIRST, NEXT = Problem("linear"), Problem("linear", a="e4m3", b="e4m3", out="f16")
"""Two kernels of the widest tile. The first kernel of a process also loads modules."""

ROUNDS = 3
LIMIT_SECONDS = 120


def start_times(rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Seconds by name, a value for each round. Each round has a separate cache directory and two processes in turn.

    Needs no GPU. Raises RuntimeError with the output if a process fails.
    """
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as directory:
            for state in ("compile", "read from disk"):
                for place, seconds in in_new_process([sys.executable, "-m", "louver.measure.start"], directory).items():
                    found.setdefault(f"{state}, {place}", []).append(seconds)
    return found


def in_new_process(command: Sequence[str], directory: str, environment: Mapping[str, str] = os.environ) -> Any:
    """The JSON output of a process with kernels cached in `directory`. Raises RuntimeError with its output if it fails."""
    done = subprocess.run(
        command,
        env={**environment, "LOUVER_CACHE_DIR": directory},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"a process that compiles a kernel failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def _take() -> dict[str, float]:
    times: dict[str, float] = {}
    for name, problem in (("a process's first kernel", FIRST), ("the next kernel", NEXT)):
        schedule = choose(problem, 4096, 8192, SM_90A, 132, aligned_output=True)
        begin = time.perf_counter()
        record_of(problem, schedule, SM_90A.name)
        times[name] = time.perf_counter() - begin
    return times


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_take()))
