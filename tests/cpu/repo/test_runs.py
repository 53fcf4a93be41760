"""What a run of the tests leaves out, and what it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import needs

pytest_plugins = ("pytester",)

ROOT = Path(__file__).resolve().parents[3]

CONFTEST = """
from pathlib import Path
from support.quiet import Quiet
from support.needs import Needs, why_missing

def pytest_configure(config):
    here = Path(__file__).parent
    reasons = {"near": lambda: None, "far/device": lambda: "no device", "models": lambda: why_missing("louver", "louver_x", "louver_y")}
    config.pluginmanager.register(Needs(here, reasons))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Quiet(config, least=40))
"""
BROKEN = "raise AssertionError('collected')"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Four folders of tests: two of them cannot run."""
    monkeypatch.syspath_prepend(str(ROOT / "tests"))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'tests'}:{ROOT}")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest(CONFTEST)
    for folder, text in {"near": "def test_near(): pass", "far/device": BROKEN, "models": BROKEN}.items():
        path = pytester.path / folder
        path.mkdir(parents=True)
        (path / f"test_{path.name}.py").write_text(text)
    (pytester.path / "far/test_far.py").write_text("def test_far(): pass")
    return pytester


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "1")])
def test_folders_that_cannot_run_are_left_out_with_a_line_each(
    project: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    done = (project.runpytest_subprocess if workers else project.runpytest_inprocess)(*workers)
    done.assert_outcomes(passed=2)
    assert [line for line in done.outlines if "left out" in line] == [
        "left out: far/device: no device",
        "left out: models: no louver_x and no louver_y: see make test-models",
    ]


def test_only_folders_that_were_asked_for_are_named(project: pytest.Pytester) -> None:
    assert "left out" not in project.runpytest_inprocess("near/test_near.py::test_near").stdout.str()
    (project.path / "far/device/test_device.py").write_text("def test_device(): assert False")
    done = project.runpytest_inprocess("far/device/test_device.py")
    assert done.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert [line for line in done.outlines if "left out" in line] == ["left out: far/device: no device"]


def test_the_folders_are_there() -> None:
    assert all((needs.TESTS / folder).is_dir() for folder in needs.NEEDS)


MANY = """
import pytest

@pytest.mark.parametrize("i", range(40))
def test_each(i):
    if i % 10 == 4:
        pytest.skip("a tile of no rows" if i < 30 else "no rows")
    assert i != 33

@pytest.fixture
def broken():
    raise OSError("no set-up")

def test_error(broken): pass
"""


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")])
def test_many_tests_print_progress_failures_and_each_reason_once(
    pytester: pytest.Pytester, project: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    project.makepyfile(test_many=MANY)
    done = (project.runpytest_subprocess if workers else project.runpytest_inprocess)(*workers, "test_many.py")
    done.assert_outcomes(passed=35, skipped=4, failed=1, errors=1)
    lines = done.outlines
    progress = [line for line in lines if " of 41 tests, " in line]
    assert len(progress) == 20
    assert progress[0] == "  7%: 3 of 41 tests, 0 failed" and progress[-1] == "100%: 41 of 41 tests, 2 failed"
    assert lines.count("FAILED test_many.py::test_each[33] (call)") == 1
    assert lines.count("FAILED test_many.py::test_error (setup)") == 1
    assert lines.count("skipped 3: a tile of no rows") == lines.count("skipped 1: no rows") == 1
    assert not [line for line in lines if line.startswith("..")]


def test_few_tests_have_dots(project: pytest.Pytester) -> None:
    lines = project.runpytest_inprocess("near", "far").outlines
    assert not [line for line in lines if "tests, 0 failed" in line]
    assert [line for line in lines if line.startswith("near/test_near.py .")]
