from __future__ import annotations

import json
import math

from louver.measure.report.table import Column, Result, Table


def test_a_document_has_a_schema_and_a_kind_and_no_raw_character() -> None:
    result = Result("x", {"name": "\x1b\x7f\ud800é\n", "values": [1.5, math.inf, (math.nan, None)], "ok": True}, [])
    text = result.json()
    assert text.isascii() and all(line.isprintable() for line in text.splitlines())
    assert json.loads(text) == {
        "schema": 1, "kind": "x", "name": "\x1b\x7f\ud800é\n", "values": [1.5, None, [None, None]], "ok": True
    }  # fmt: skip


def test_text_has_a_line_between_a_table_and_what_follows() -> None:
    table = Table("t", (Column("a"),), [("1",)])
    assert list(Result("x", {}, [table, "one", "two words", table]).lines(5)) == [
        "t", "a", "─", "1", "", "one", "two", "words", "t", "a", "─", "1"
    ]  # fmt: skip
