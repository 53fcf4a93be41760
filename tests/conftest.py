from __future__ import annotations

import gc
import os
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from support.days import Days, add_option
from support.golden import ROOT, Golden
from support.needs import Needs
from support.quiet import Quiet
from support.results import ResultsRecorder


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("louver")
    group.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")
    add_option(group)
    group.addoption("--results", type=Path, metavar="FILE", help="write machine, outcomes and totals to FILE as JSON")


def pytest_configure(config: pytest.Config) -> None:
    # Triton 3.9 warns once where it is unset, in whichever test compiles first.
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    config.pluginmanager.register(Days(config), "louver-days")
    config.pluginmanager.register(Needs(), "louver-needs")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Quiet(config), "louver-quiet")
        path = config.getoption("--results")
        if path is not None:
            config.pluginmanager.register(ResultsRecorder(path), "louver-results")


def pytest_collection_finish() -> None:
    """Leave what was collected out of garbage collection: 15,000 tests are millions of objects, and compilers make cycles all the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


def pytest_unconfigure() -> None:
    """Let the interpreter's end collect all: extension modules report as leaks what is left."""
    gc.unfreeze()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden.check("room/name.ptx", text)` compares with tests/golden/room/name.ptx."""
    return Golden(ROOT, request.config.getoption("--update-golden"))


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers that differ from test to test and repeat from run to run."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture
def without_louver_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has not imported `louver.torch`, whichever tests ran before."""
    monkeypatch.setitem(sys.modules, "louver.torch", None)
