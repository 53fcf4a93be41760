"""A run's outcomes as JSON: what ran where, for the record in benchmarks/results."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

PACKAGES = ("louver", "numpy", "xdsl", "cuda-bindings", "nvidia-cuda-nvcc", "torch", "triton")


def installed(package: str) -> str | None:
    """The installed version of a distribution, None when it is missing."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def machine() -> dict[str, Any]:
    """The machine that ran the tests: Python, packages, assembler, device and driver; None for what is not there."""
    from louver.cli.commands.doctor import examine

    found = {fact.name: fact.value if fact.ok else None for fact in examine()}
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: installed(name) for name in PACKAGES},
        "ptxas": found.get("ptxas"),
        "device": found.get("GPU"),
        "driver": found.get("driver"),
    }


class ResultsRecorder:
    """A pytest plugin that writes every test's outcome to `path` when the session ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the worst phase: a failure in set-up or clean-up counts as an error."""
        entry = self.tests.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0})
        entry["seconds"] = round(entry["seconds"] + report.duration, 4)
        if report.failed:
            entry["outcome"] = "failed" if report.when == "call" else "error"
            entry["message"] = str(report.longrepr)[-2000:]
        elif report.skipped:
            entry["outcome"] = "xfailed" if hasattr(report, "wasxfail") else "skipped"
            entry["message"] = _skip_reason(report)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the file, whole or not at all."""
        totals = Counter(entry["outcome"] for entry in self.tests.values())
        record = {
            "schema": 1,
            "machine": machine(),
            "exit_status": int(exitstatus),
            "totals": dict(sorted(totals.items())),
            "tests": dict(sorted(self.tests.items())),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(self.path.name + f".{os.getpid()}.part")
        partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        partial.replace(self.path)


def _skip_reason(report: pytest.TestReport) -> str:
    longrepr = report.longrepr
    return longrepr[2] if isinstance(longrepr, tuple) else str(longrepr or "")
