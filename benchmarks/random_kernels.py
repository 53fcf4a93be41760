"""Correctness of many random users' kernels: `python benchmarks/random_kernels.py --launches 2000 --seed 0 --out
FILE.json`.

Protocol: Triton kernels drawn from a seed (tests/support/triton/drawn) over element types, side and storage of the
sparse operand, feeds, tiles, warps, loops, a second dot, scales, reductions and atomics, epilogues, stores, the order
of tiles and batches. louver.jit launches each at several sizes with random data. NaN surrounds operands, and outputs
hold NaN before. Every element is compared with float64 within the bounds of louver.library.numerics and the f32
rounding of an epilogue's steps. Memory around an output must not change. Every second kernel runs by register tiles. A
refused kernel counts with its message. Exit status 1 if any launch is wrong or fails in another way.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import louver
from louver.measure.machine import CannotMeasureError, host_header, require_torch
from louver.measure.operands import as_torch
from louver.measure.record import write_record
from louver.measure.workers import Lost, Turn, share_out
from louver.user.compiled import UncleanKernelError
from louver.user.hints import REGISTER_TILES
from script import arguments

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

PER_KERNEL = 8
"""Most launches of a kernel."""

MOST_WORKERS = 15

LIMIT_SECONDS = 120
"""For the launches of a kernel, with compilation."""


@dataclass(frozen=True)
class Outcome:
    """A launch. fate: "right", "wrong", "refused" or "failed". said: why it is not right."""

    seed: int
    index: int
    fate: str
    said: str = ""


def run_kernel(task: tuple[int, int], turn: Turn) -> tuple[list[Outcome], bool]:
    """Run a task: a kernel's seed and its number of launches. Processes share the GPU, so they take no turns."""
    from support.triton.drawn.choices import draw
    from support.triton.drawn.launch import draw_launch, load_kernel

    torch: Any = import_module("torch")
    torch.set_num_threads(1)

    def place(array: Any) -> Any:
        return as_torch(torch, array).cuda()

    def read(array: Any) -> Any:
        integers = {1: torch.int8, 2: torch.int16, 4: torch.int32}[array.element_size()]
        return array.view(integers).cpu().numpy()

    seed, launches = task
    choices = draw(seed)
    family = {"family": REGISTER_TILES} if seed % 2 else {}
    kernel = louver.jit(load_kernel(choices), **family)
    found: list[Outcome] = []
    for index in range(launches):
        try:
            launch = draw_launch(choices, index)
            wrong = launch.run(kernel[launch.grid], place, read)
            found.append(Outcome(seed, index, "wrong" if wrong else "right", "; ".join(wrong)))
        except (ValueError, UncleanKernelError) as error:
            found.append(Outcome(seed, index, "refused", " ".join([str(error), *getattr(error, "__notes__", ())])))
        except Exception as error:  # one launch never stops the run
            found.append(Outcome(seed, index, "failed", f"{type(error).__name__}: {error}"))
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        # Errors of CUDA persist.
        return found, False
    return found, True


def run_all(tasks: Sequence[tuple[int, int]], jobs: int) -> list[Outcome]:
    """All launches, sorted by kernel. Prints the wrong and failed ones."""
    found: list[Outcome] = []
    for (seed, launches), result in share_out(tasks, run_kernel, jobs=jobs, limit=LIMIT_SECONDS, environment={}):
        if isinstance(result, Lost):
            result = [Outcome(seed, index, "failed", result.reason) for index in range(launches)]
        for outcome in result:
            found.append(outcome)
            if outcome.fate in ("wrong", "failed"):
                print(f"{outcome.fate}: seed {outcome.seed}, launch {outcome.index}: {outcome.said}", flush=True)
    return sorted(found, key=lambda each: (each.seed, each.index))


def counts(tasks: Sequence[tuple[int, int]]) -> dict[str, dict[str, int]]:
    """The number of kernels with each choice."""
    from support.triton.drawn.choices import draw

    found: dict[str, Counter[str]] = {}
    for seed, _ in tasks:
        for name, value in asdict(draw(seed)).items():
            if name != "seed":
                found.setdefault(name, Counter()).update([str(value)] if not isinstance(value, tuple) else value)
    return {name: dict(sorted(counted.items())) for name, counted in found.items()}


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--launches", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=min(MOST_WORKERS, os.cpu_count() or 1))
    args = parser.parse_args()
    try:
        facts = host_header(require_torch())
    except CannotMeasureError as error:
        parser.error(str(error))
    begin = time.perf_counter()
    first = args.seed * 10**6
    whole, rest = divmod(args.launches, PER_KERNEL)
    tasks = [(first + index, PER_KERNEL) for index in range(whole)] + ([(first + whole, rest)] if rest else [])
    outcomes = run_all(tasks, args.workers)
    fates = Counter(outcome.fate for outcome in outcomes)
    seconds = round(time.perf_counter() - begin, 1)
    record = {
        **facts,
        "protocol": " ".join(str(__doc__).split()),
        "seed": args.seed,
        "kernels": len(tasks),
        "launches": len(outcomes),
        **{fate: fates[fate] for fate in ("right", "wrong", "refused", "failed")},
        "seconds": seconds,
        "counts": counts(tasks),
        "not_right": [asdict(outcome) for outcome in outcomes if outcome.fate != "right"],
    }
    if args.out is not None:
        write_record(args.out, record)
    told = ", ".join(f"{count} {fate}" for fate, count in fates.items())
    print(f"{len(outcomes)} launches of {len(tasks)} kernels: {told}; {seconds} s")
    return 1 if fates["wrong"] or fates["failed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
