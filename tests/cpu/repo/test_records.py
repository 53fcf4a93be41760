"""benchmarks/results: each record is cited by a page, and benchmarks/README.md has the command that makes it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "benchmarks" / "results"
COMMANDS = ROOT / "benchmarks" / "README.md"
FILES = sorted(path for path in RESULTS.rglob("*") if path.is_file())
RECORDS = [path for path in FILES if path.suffix == ".json"]


def name(path: Path) -> str:
    return str(path.relative_to(RESULTS))


def citing() -> str:
    """All text that may cite a record: pages that are no history, and code."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    current = [page for page in pages if page.name != "CHANGELOG.md" and page.parent.name != "perf-log"]
    code = [path for folder in ("louver", "benchmarks", "docs") for path in (ROOT / folder).rglob("*.py")]
    return "\n".join(path.read_text(encoding="utf-8") for path in (*current, *code))


@pytest.fixture(scope="module")
def cited() -> str:
    return citing()


@pytest.fixture(scope="module")
def commands() -> dict[str, str]:
    """The command of each record in the table of benchmarks/README.md."""
    rows = re.findall(r"^\| `([\w/.-]+\.json)` \| `([^`]+)`", COMMANDS.read_text(encoding="utf-8"), re.M)
    found = dict(rows)
    assert len(found) == len(rows), "a record has one row"
    return found


@pytest.mark.parametrize("record", RECORDS, ids=name)
def test_a_record_is_cited_and_has_its_command(record: Path, cited: str, commands: dict[str, str]) -> None:
    shown = {name(record.with_suffix(suffix)) for suffix in (".json", ".txt")}
    assert any(each in cited for each in shown), f"no page cites {name(record)}: cite it, or delete it"
    assert name(record) in commands, f"benchmarks/README.md has no command that makes {name(record)}"


def test_commands_are_of_records_that_exist(commands: dict[str, str]) -> None:
    assert set(commands) == {name(record) for record in RECORDS}
    for command in commands.values():
        program = re.search(r"python (\S+\.py)", command)
        assert program is None or (ROOT / program[1]).exists(), command


@pytest.mark.parametrize("file", [path for path in FILES if path.suffix != ".json"], ids=name)
def test_pictures_and_texts_stand_beside_their_records(file: Path, cited: str) -> None:
    assert file.with_suffix(".json") in RECORDS
    assert name(file) in cited, f"no page shows {name(file)}: show it, or delete it"
