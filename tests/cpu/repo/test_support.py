from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support.golden import Golden

ROOT = Path(__file__).resolve().parents[3]


def test_golden_accepts_the_same_text(tmp_path: Path) -> None:
    Golden(tmp_path, update=True).check("room/x.txt", "one\ntwo")
    assert (tmp_path / "room/x.txt").read_text() == "one\ntwo\n"
    Golden(tmp_path, update=False).check("room/x.txt", "one\ntwo\n")


def test_golden_shows_what_differs(tmp_path: Path) -> None:
    Golden(tmp_path, update=True).check("x.txt", "one\ntwo\nthree")
    with pytest.raises(AssertionError, match=r"(?s)--update-golden.*-two\n\+2"):
        Golden(tmp_path, update=False).check("x.txt", "one\n2\nthree")


def test_golden_that_is_missing_says_how_to_write_it(tmp_path: Path) -> None:
    with pytest.raises(
        AssertionError, match="no golden file x.txt: look at the text and write it with --update-golden"
    ):
        Golden(tmp_path, update=False).check("x.txt", "one")


def test_golden_stays_below_its_root(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lies below"):
        Golden(tmp_path / "golden", update=True).check("../x.txt", "one")


TESTS = """
import pytest
def test_good(): pass
def test_bad(): assert 1 == 2
@pytest.mark.skip(reason="not today")
def test_skipped(): pass
@pytest.mark.xfail(reason="known")
def test_known(): assert False
@pytest.fixture
def broken(): raise OSError("no set-up")
def test_error(broken): pass
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_results_hold_every_outcome_and_the_machine(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    conftest = (ROOT / "tests/conftest.py").read_text()
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'tests')!r})\n" + _after_future(conftest)
    )
    out = tmp_path / "deep" / "results.json"
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(tmp_path),
        "--rootdir",
        str(tmp_path),
        "-n",
        workers,
        "--results",
        str(out),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    record = json.loads(out.read_text())
    assert record["totals"] == {"error": 1, "failed": 1, "passed": 1, "skipped": 1, "xfailed": 1}
    assert record["exit_status"] == 1
    by_name = {name.partition("::")[2]: entry for name, entry in record["tests"].items()}
    assert "not today" in by_name["test_skipped"]["message"]
    assert "no set-up" in by_name["test_error"]["message"]
    assert record["machine"]["packages"]["numpy"] == np.__version__


def _after_future(source: str) -> str:
    return source.replace("from __future__ import annotations\n", "")


def test_rng_differs_between_tests_and_repeats(rng: np.random.Generator, request: pytest.FixtureRequest) -> None:
    import zlib

    again = np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))
    assert rng.integers(1 << 60) == again.integers(1 << 60)
