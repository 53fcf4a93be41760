from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import louver

ROOT = Path(__file__).resolve().parents[3]
HEAVY = ("torch", "triton", "cuda", "xdsl", "matplotlib", "click", "scipy")
LONGEST_FILE = 600
IMPORT_SECONDS = 0.35


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


def test_import_is_quick() -> None:
    # The best of several: other work on the machine only ever adds to the time.
    timing = "import time; t = time.perf_counter(); import louver; print(time.perf_counter() - t)"
    seconds = min(float(run("-c", timing).stdout) for _ in range(5))
    assert seconds <= IMPORT_SECONDS


def test_rooms_keep_the_import_contract() -> None:
    done = run("-c", "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))")
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_finds_nothing() -> None:
    done = run("-m", "ruff", "check", "--no-cache", ".")
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_file_is_too_long() -> None:
    long = {str(path.relative_to(ROOT)): count for path in sources() if (count := lines(path)) > LONGEST_FILE}
    assert not long, f"at most {LONGEST_FILE} lines a file: split {long}"


def lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error"])
def test_nothing_is_left_undone(word: str) -> None:
    assert not [str(path.relative_to(ROOT)) for path in sources() if word in path.read_text(encoding="utf-8")]


def test_the_changelog_has_this_version_and_is_short() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", text, re.M)
    assert released[0] == louver.__version__, "the newest release of CHANGELOG.md is the version"
    assert len(released) == len(set(released)) == text.count("\n## ") - 1
    (unreleased,) = re.findall(r"^## \[Unreleased\]\n(.*?)^## ", text, re.M | re.S)
    assert len(unreleased.split()) <= 800, "say what users see in at most 800 words"


def test_the_citation_names_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    date = re.search(rf"^## \[{re.escape(louver.__version__)}\] - (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert date is not None
    assert f"\nversion: {louver.__version__}\n" in text and f'\ndate-released: "{date[1]}"\n' in text


def test_nothing_is_unpickled_and_no_code_of_a_checkpoint_is_trusted() -> None:
    # What SECURITY.md says of files that Louver reads.
    loads: list[str] = []
    for path in (ROOT / "louver").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            assert not {"pickle", "dill", "joblib", "marshal", "shelve"} & set(named), path
            if isinstance(node, ast.Call):
                given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert "trust_remote_code" not in given and given.get("shell", "False") == "False", path
                if ast.unparse(node.func) == "torch.load":
                    loads.append(given.get("weights_only", "missing"))
                if ast.unparse(node.func) == "np.load":
                    assert given.get("allow_pickle") == "False", path
    assert loads and set(loads) == {"True"}
