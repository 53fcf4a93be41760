"""`louver claims`: counts, the statements of a document, those with a verdict."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from louver.cli.commands.claims import VERDICTS, kept

if TYPE_CHECKING:
    from support.command_line import Cli


def test_counts_by_document_and_verdict(cli: Cli) -> None:
    found = json.loads(cli("claims", "--json").output)
    assert found["kind"] == "claims" and [each["name"] for each in found["documents"]] == [
        "000",
        "001",
        "002",
        "003",
        "004",
    ]
    for each, document in zip(found["documents"], kept(), strict=True):
        assert each["statements"] == sum(each["verdicts"].values()) == len(document.rows)
        assert set(each["verdicts"]) <= set(VERDICTS)
    text = cli("claims", columns="300").output
    assert "NM-SpMM" in text and "refuted by measurement" in text


def test_the_statements_of_a_document(cli: Cli) -> None:
    found = json.loads(cli("claims", "004", "--json").output)
    assert found["document"] == "004" and [each["number"] for each in found["claims"]] == list(range(1, 50))
    assert found["claims"][11]["verdict"] == "contradicts itself" and found["claims"][11]["lines"] == "L109"
    text = cli("claims", "004", columns="200").output
    assert found["believe"][0] in text and "PTX ISA: wgmma.mma_async.sp" in text


@pytest.mark.parametrize("verdict", VERDICTS)
def test_one_verdict(cli: Cli, verdict: str) -> None:
    rows = json.loads(cli("claims", "000", "--verdict", verdict, "--json").output)["claims"]
    assert rows and {row["verdict"] for row in rows} == {verdict}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("005",), "the documents are 000, 001, 002, 003, 004, got '005'"),
        (("000", "--verdict", "true"), "the verdicts are reproduced, contradicts itself, "),
        (("--verdict", "reproduced"), "--verdict chooses among a document's statements, got no document"),
    ],
)
def test_what_is_not_there(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    result = cli("claims", *arguments)
    assert result.exit_code == 2 and message in result.output
