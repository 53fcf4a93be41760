from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HEAVY = ("torch", "triton", "cuda", "xdsl", "matplotlib", "click", "scipy")
LONGEST_FILE = 600
IMPORTED = 60
"""Modules that `import louver` may load: the others are loaded by the names that need them."""


def sources() -> list[Path]:
    found = [path for folder in ("louver", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    assert len(found) > 20
    return found


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=ROOT, timeout=120)


def test_import_reaches_nothing_heavy() -> None:
    listing = run("-c", "import louver, sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))")
    assert listing.returncode == 0, listing.stderr
    assert not set(HEAVY) & set(listing.stdout.split())


def test_import_loads_few_modules() -> None:
    count = run("-c", "import sys; before = set(sys.modules); import louver; print(len(set(sys.modules) - before))")
    assert 0 < int(count.stdout) <= IMPORTED, count.stderr


def test_rooms_keep_the_import_contract() -> None:
    done = run("-c", "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))")
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_finds_nothing() -> None:
    done = run("-m", "ruff", "check", "--no-cache", ".")
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_test_asserts_what_a_clock_says() -> None:
    """On a busy machine a clock says nothing of the code: `support.work` counts calls."""
    clock = re.compile(r"^ *assert\b.*\b(perf_counter|monotonic|process_time|thread_time|ru_utime|time\.time)\b", re.M)
    assert not [str(path) for path in (ROOT / "tests").rglob("*.py") if clock.search(path.read_text(encoding="utf-8"))]


def test_no_file_is_too_long() -> None:
    long = {str(path.relative_to(ROOT)): count for path in sources() if (count := lines(path)) > LONGEST_FILE}
    assert not long, f"at most {LONGEST_FILE} lines a file: split {long}"


def lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error"])
def test_nothing_is_left_undone(word: str) -> None:
    assert not [str(path.relative_to(ROOT)) for path in sources() if word in path.read_text(encoding="utf-8")]
