"""Verdicts on documents: each one's evidence runs and gives what the package keeps, and each place that it names exists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import claims_tables
from claims.claim import TOLD, Claim, Document, places
from claims.shown import has, native, refused, taken
from louver.cli.commands.claims import FILE, VERDICTS

if TYPE_CHECKING:
    from support.golden import Golden

ROOT = Path(__file__).resolve().parents[3]
ROWS = {"000": 149, "001": 25, "002": 33, "003": 47, "004": 49}


@pytest.mark.parametrize("name", ROWS)
def test_the_evidence_of_each_statement_runs_and_says_what_is_kept(name: str, golden: Golden) -> None:
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    found = claims_tables.data(name)
    if golden.update:
        kept = [found if each["name"] == name else each for each in kept]
        FILE.write_text(claims_tables.text(kept), encoding="utf-8")
    (before,) = [each for each in kept if each["name"] == name]
    assert before == found, "run python docs/claims_tables.py, then python docs/generate.py"
    assert len(found["rows"]) == ROWS[name]


def test_the_package_keeps_all_documents_in_a_small_file() -> None:
    assert tuple(ROWS) == claims_tables.NAMES
    assert claims_tables.text(json.loads(FILE.read_text(encoding="utf-8"))) == FILE.read_text(encoding="utf-8")
    assert FILE.stat().st_size < 100_000


@pytest.mark.parametrize("name", ROWS)
def test_places_exist_and_what_is_in_the_project_has_one(name: str) -> None:
    (kept,) = [each for each in json.loads(FILE.read_text(encoding="utf-8")) if each["name"] == name]
    for number, _, statement, verdict, evidence in kept["rows"]:
        assert statement and evidence.endswith("."), number
        assert verdict != "in the project" or places(evidence), f"row {number} names no file"
        missing = [place for place in places(evidence) if not (ROOT / place).exists()]
        assert not missing, f"row {number} names {missing}"
        for record in re.findall(r"[\w/-]+\.json", evidence):
            assert (ROOT / record).exists(), record
    assert 4 <= len(kept["believe"]) <= 10
    assert all((ROOT / place).exists() for line in kept["believe"] for place in places(line))


def test_measured_verdicts_name_their_record() -> None:
    for each in json.loads(FILE.read_text(encoding="utf-8")):
        for number, _, _, verdict, evidence in each["rows"]:
            assert (
                "measurement" not in verdict or "benchmarks/results/" in evidence or "recorded products" in evidence
            ), (
                each["name"],
                number,
            )


def test_the_package_does_not_need_the_sources() -> None:
    importing = [
        path.name
        for path in (ROOT / "louver").rglob("*.py")
        if re.search(r"^\s*(from|import) claims\b", path.read_text(encoding="utf-8"), re.M)
    ]
    assert not importing


def test_claims_that_are_none() -> None:
    with pytest.raises(ValueError, match="the verdicts are reproduced, .*, got 'true'"):
        Claim(1, "L1", "It is so", "true", "It is.")
    for verdict in set(VERDICTS) - set(TOLD):
        with pytest.raises(ValueError, match=f"{verdict!r} has a function as evidence, got a text: row 3"):
            Claim(3, "L1", "It is so", verdict, "It is.")
    told = [Claim(number, "L1", "It is so", "in the project", "`louver/cli`.") for number in (1, 3)]
    with pytest.raises(ValueError, match="numbered without a gap, got 3 as row 2 of 009"):
        Document("009", "None", (), tuple(told))


def test_evidence_fails_where_it_no_longer_holds() -> None:
    with pytest.raises(AssertionError, match="ptxas takes bar.sync 0; for sm_80, sm_90a, sm_100a, sm_120a"):
        refused("bar.sync 0;")
    assert refused("bar.sinc 0;").startswith("ptxas refuses the text for sm_80, sm_90a, sm_100a, sm_120a: ")
    with pytest.raises(AssertionError, match=r"ptxas takes bar.sync 0; for .*, not \['sm_90a'\]"):
        taken("bar.sync 0;", ["sm_90a"])
    with pytest.raises(AssertionError, match=r"not in the text: \['c'\]"):
        has("a b", "a", "c")
    assert native("wgmma.sp", "f16") == ["sm_90a"]


def test_places_are_paths_in_backticks() -> None:
    assert places("`louver/isa/mma.py` and `docs/claims` but not louver/x.py, `mma.sp`, `louver.jit`") == [
        "louver/isa/mma.py",
        "docs/claims",
    ]
