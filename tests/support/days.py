"""Tests marked `sampled(n)`: their cases take turns, so that n days run them all."""

from __future__ import annotations

import argparse
import os
import zlib
from collections import defaultdict
from collections.abc import Sequence
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


def cases_of_day(cases: Sequence[str], days: int, day: str) -> set[str]:
    """Those of a test's cases that `day` runs: every case once in `days` days, at least one each day.

    Cases are dealt in the order of their hashes: neighbours, which often differ in one parameter only, run on different days.
    """
    parts = min(days, len(cases))
    # Tests of the same number of days begin on different ones, so that no day has all the larger parts.
    turn = date.fromisoformat(day).toordinal() + zlib.crc32(cases[0].partition("[")[0].encode())
    dealt = sorted(cases, key=lambda case: (zlib.crc32(case.encode()), case))
    return set(dealt[turn % parts :: parts])


def days_of(item: pytest.Item) -> int | None:
    """n of `sampled(n)`, None where the test has no such marker."""
    marker = item.get_closest_marker("sampled")
    if marker is None:
        return None
    match marker.args:
        case [int(days)] if 1 <= days <= WEEK and not marker.kwargs:
            return days
    given = ", ".join([*map(repr, marker.args), *(f"{key}={value!r}" for key, value in marker.kwargs.items())])
    raise pytest.UsageError(f"{item.nodeid}: sampled(n) takes a number of days from 1 to {WEEK}, got ({given})")


class Days:
    """A pytest plugin that marks as `slow` the cases that are not of the day. It says the day, and the share that ran."""

    def __init__(self, config: pytest.Config) -> None:
        self.day: str = config.getoption("--day")
        self.applies = "not slow" in config.option.markexpr
        self.counts: tuple[int, int] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deal the cases of every test that is marked, those apart that are slow on any day."""
        families: defaultdict[str, list[tuple[pytest.Item, int]]] = defaultdict(list)
        for item in items:
            days = days_of(item)
            if days is not None and item.get_closest_marker("slow") is None:
                families[item.nodeid.partition("[")[0]].append((item, days))
        others = 0
        for family in families.values():
            kept = cases_of_day([item.nodeid for item, _ in family], family[0][1], self.day)
            for item, _ in family:
                if item.nodeid not in kept:
                    item.add_marker(pytest.mark.slow)
                    others += 1
        self.counts = others, len(items)
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
        """The share that was left to other days."""
        if self.applies and self.counts is not None:
            others, total = self.counts
            terminalreporter.write_line(
                f"day {self.day}: {others:,} of {total:,} tests are left to the other days; {VARIABLE}={self.day} repeats it"
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
