"""Speed under sustained load, where power is the limit: time, clock and power over seconds of the same work."""

from __future__ import annotations

import statistics
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from louver.measure.graph import Load
from louver.measure.machine import gpu_uuid, nvidia_smi
from louver.measure.protocol import Protocol

FIELDS = ("clocks.sm", "power.draw.instant")
INTERVAL_MS = 50
EXIT_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading. at: seconds of time.monotonic. clock: MHz. power: watts."""

    at: float
    clock: float
    power: float


@dataclass(frozen=True, slots=True)
class Sustained:
    """A sustained measurement. us: microseconds of a launch. clock_mhz, power_w: means; None without readings."""

    us: float
    clock_mhz: float | None
    power_w: float | None

    def to_json(self, flops: float) -> dict[str, float | None]:
        """JSON values with TFLOP/s and TFLOP/J. flops: dense-equivalent, of one launch."""
        return {**asdict(self), "tflops": self.tflops(flops), "tflop_per_joule": self.tflop_per_joule(flops)}

    def tflops(self, flops: float) -> float:
        """Dense-equivalent TFLOP/s."""
        return flops / self.us * 1e-6

    def tflop_per_joule(self, flops: float) -> float | None:
        """Dense-equivalent TFLOP per joule."""
        return self.tflops(flops) / self.power_w if self.power_w else None


class Sampler:
    """Reads nvidia-smi in the background, as a context manager. Without nvidia-smi there are no samples."""

    def __init__(self, gpu: str) -> None:
        self._command = [*nvidia_smi(FIELDS, gpu), "-lms", str(INTERVAL_MS)]
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.samples: list[Sample] = []

    def __enter__(self) -> Sampler:
        try:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        except OSError:
            return self
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            # The tool may hang in the driver of a busy machine. Its output so far is used.
            self._process.kill()
        self._thread.join(EXIT_SECONDS)

    def _read(self) -> None:
        if self._process is None or self._process.stdout is None:
            return
        for line in self._process.stdout:
            sample = parse_sample(line, time.monotonic())
            if sample is not None:
                self.samples.append(sample)


def parse_sample(line: str, at: float) -> Sample | None:
    """A sample from a line of nvidia-smi's output; None without two numbers, when the GPU lacks a field."""
    try:
        clock, power = (float(part) for part in line.split(","))
    except ValueError:
        return None
    return Sample(at, clock, power)


def mean_between(samples: Sequence[Sample], begin: float, end: float) -> tuple[float, float] | None:
    """Mean clock and power of the samples between two times; None without samples."""
    inside = [sample for sample in samples if begin <= sample.at <= end]
    if not inside:
        return None
    return statistics.fmean(s.clock for s in inside), statistics.fmean(s.power for s in inside)


def sustain(torch: Any, load: Load, protocol: Protocol) -> Sustained:
    """Run the load until it settles, then time it while clock and power are read."""
    with Sampler(gpu_uuid(torch)) as sampler:
        load.graph.seconds(load.replays_for(protocol.settle_seconds))
        begin = time.monotonic()
        seconds = load.graph.seconds(load.replays_for(protocol.sustained_seconds))
        end = time.monotonic()
    means = mean_between(sampler.samples, begin, end)
    clock, power = means if means is not None else (None, None)
    return Sustained(seconds * 1e6, clock, power)
