from __future__ import annotations

import time
from pathlib import Path

import pytest

from louver.measure import sustained
from louver.measure.sustained import Sample, Sampler, mean_between, parse_sample


def test_reads_a_line() -> None:
    assert parse_sample("1410, 688.25\n", 2.0) == Sample(2.0, 1410.0, 688.25)


@pytest.mark.parametrize("line", ["", "1410", "1410, [N/A]", "1, 2, 3", "Field is not valid"])
def test_leaves_out_what_is_not_two_numbers(line: str) -> None:
    assert parse_sample(line, 0.0) is None


def test_means_are_over_the_span() -> None:
    samples = [Sample(0.9, 100, 1), Sample(1.0, 1500, 600), Sample(2.0, 1400, 700), Sample(2.1, 100, 1)]
    assert mean_between(samples, 1.0, 2.0) == (1450, 650)
    assert mean_between(samples, 3.0, 4.0) is None


def test_without_the_tool_there_are_no_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with Sampler("GPU-0") as sampler:
        pass
    assert sampler.samples == []


def test_a_tool_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\ntrap '' TERM\necho 1, 2\nwhile :; do sleep 0.02; done\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(sustained, "EXIT_SECONDS", 0.5)
    with Sampler("GPU-0") as sampler:
        while not sampler.samples:
            time.sleep(0.01)
    assert sampler.samples[0].clock == 1


def test_samples_come_in_while_it_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\necho "$*" > "$0.called"\nwhile :; do echo "1400, 690.5"; sleep 0.02; done\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    begin = time.monotonic()
    with Sampler("GPU-7") as sampler:
        while len(sampler.samples) < 3 and time.monotonic() < begin + 20:
            time.sleep(0.01)
    end = time.monotonic()
    assert mean_between(sampler.samples, begin, end) == (1400, 690.5)
    assert "-i GPU-7" in (tmp_path / "nvidia-smi.called").read_text()
    taken = len(sampler.samples)
    time.sleep(0.1)
    assert len(sampler.samples) == taken
