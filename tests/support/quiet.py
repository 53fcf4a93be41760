"""What a run of many tests prints: lines of progress instead of dots, failures at once, skips folded by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

import pytest

MANY = 1000
"""Fewer tests than this, or `-v`, have pytest's own progress."""

STEPS = 20
"""Lines of progress of a run."""


class Quiet:
    """A pytest plugin for the process that prints. least: the number of tests that are many."""

    def __init__(self, config: pytest.Config, least: int = MANY) -> None:
        self.config = config
        self.least = least
        self.done = self.failed = 0

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep the session: it knows the number of tests, from workers too."""
        self.session = session

    @property
    def many(self) -> bool:
        return self.session.testscollected >= self.least and self.config.option.verbose <= 0

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(
        self,
    ) -> Generator[None, tuple[str, str, str | tuple[str, dict[str, bool]]], tuple[str, str, object]]:
        """Leave out letters; the outcome is counted."""
        category, letter, word = yield
        return (category, "", "") if self.many else (category, letter, word)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a failure, and each twentieth part of the run."""
        if not self.many:
            return
        if report.failed:
            self.failed += 1
            self._print(f"FAILED {report.nodeid} ({report.when})")
        if report.when == "teardown":
            self.done += 1
            total = self.session.testscollected
            if self.done * STEPS // total > (self.done - 1) * STEPS // total:
                self._print(f"{100 * self.done // total:3}%: {self.done:,} of {total:,} tests, {self.failed} failed")

    def _print(self, line: str) -> None:
        self._reporter.ensure_newline()
        self._reporter.write_line(line)
        self._reporter.flush()

    @property
    def _reporter(self) -> pytest.TerminalReporter:
        found = self.config.pluginmanager.getplugin("terminalreporter")
        assert found is not None
        return found

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print each reason of skips, with their number."""
        reports = terminalreporter.stats.get("skipped", [])
        reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"skipped {count:,}: {reason}")
