"""Tests marked `sampled(n)`: their cases take turns, so that n days, a week at most, run them all."""

from __future__ import annotations

import argparse
import os
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pytest

WEEK = 7
VARIABLE = "LOUVER_TEST_DAY"


def parse_day(text: str) -> str:
    """A date such as 2026-11-28, or "today" as the date (UTC)."""
    if text == "today":
        return datetime.now(UTC).date().isoformat()
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise argparse.ArgumentTypeError(f"the day is a date such as 2026-11-28, or today, got {text!r}") from None


def week_of(day: str) -> int:
    """The number of a week, which begins on Monday."""
    return (date.fromisoformat(day).toordinal() - 1) // WEEK


def cases_of_day(cases: Sequence[str], days: int, day: str) -> set[str]:
    """Those of a test's cases that `day` runs: every case once in `days` days, at least one each day.

    Cases are dealt in the order of their hashes: neighbours, which often differ in one parameter only, run on different days.
    """
    if not cases:
        return set()
    parts = min(days, len(cases))
    # Tests of the same number of days begin on different ones, so that no day has all the larger parts.
    # Each week begins one part later: who tests on some weekdays only still runs every case.
    turn = date.fromisoformat(day).toordinal() + week_of(day) + zlib.crc32(cases[0].partition("[")[0].encode())
    dealt = sorted(cases, key=lambda case: (zlib.crc32(case.encode()), case))
    return set(dealt[turn % parts :: parts])


@dataclass(frozen=True, slots=True)
class Sampled:
    """The marker of a test. days: 1 to 7 run its cases in turns. every: of so many cases one takes part, each week another one."""

    days: int
    every: int = 1

    def __post_init__(self) -> None:
        if not (type(self.days) is type(self.every) is int and 1 <= self.days <= WEEK and self.every >= 1):
            raise ValueError(f"got {self}")

    @classmethod
    def of(cls, item: pytest.Item) -> Sampled | None:
        """That of a test, None where it has none. Raises UsageError for a marker of anything else."""
        marker = item.get_closest_marker("sampled")
        if marker is None:
            return None
        try:
            return cls(*marker.args, **marker.kwargs)
        except (TypeError, ValueError) as error:
            rule = f"sampled(n, every=1) takes a number of days from 1 to {WEEK}, and of how many cases one takes part"
            raise pytest.UsageError(f"{item.nodeid}: {rule}: {error}") from None


class Days:
    """A pytest plugin that marks as `slow` the cases that are not of the day. It says the day, and the share that ran."""

    def __init__(self, config: pytest.Config) -> None:
        self.day: str = config.getoption("--day")
        self.applies = "not slow" in config.option.markexpr
        self.counts: tuple[int, int] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deal the cases of every test that is marked, but for those that are slow on any day."""
        families: defaultdict[tuple[str, Sampled], list[pytest.Item]] = defaultdict(list)
        for item in items:
            sampled = Sampled.of(item)
            if sampled is not None:
                families[item.nodeid.partition("[")[0], sampled].append(item)
        week = today = 0
        for (_, sampled), family in families.items():
            begin = week_of(self.day) % min(sampled.every, len(family))
            takes_part = [
                each.nodeid for each in family[begin :: sampled.every] if each.get_closest_marker("slow") is None
            ]
            kept = cases_of_day(takes_part, sampled.days, self.day)
            for item in family:
                if item.nodeid not in kept:
                    item.add_marker(pytest.mark.slow)
            week += len(takes_part)
            today += len(kept)
        self.counts = today, week
        if hasattr(config, "workeroutput"):
            config.workeroutput["louver-days"] = self.counts

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the numbers from a worker: each has the same."""
        self.counts = getattr(node, "workeroutput", {}).get("louver-days", self.counts)

    def pytest_report_header(self) -> str | None:
        """The day, and how to repeat it."""
        if not self.applies:
            return None
        return f"day: {self.day} of the tests marked sampled; to repeat it: {VARIABLE}={self.day} make test (or --day {self.day})"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The share of the day."""
        if self.applies and self.counts is not None and self.counts[1]:
            today, week = self.counts
            terminalreporter.write_line(
                f"day {self.day}: {today:,} of the week's {week:,} sampled cases; {VARIABLE}={self.day} repeats it"
            )


def add_option(group: Any) -> None:
    """`--day`, by default that of the environment, or today."""
    group.addoption(
        "--day",
        type=parse_day,
        default=os.environ.get(VARIABLE) or "today",
        metavar="DATE",
        help=f"whose cases of the tests marked sampled(n) are not slow (default: {VARIABLE}, or today)",
    )
