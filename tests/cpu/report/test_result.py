from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path

import pytest

from louver.report.files import write_text
from louver.report.result import Result
from louver.report.table import Column, Table


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


def test_a_file_is_replaced_whole_and_a_link_leads_to_its_target(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    assert write_text(link, "é\n") == link
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert link.is_symlink() and target.read_bytes() == "é\n".encode()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "target"]


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new \ud800")
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, tmp_path, Path("/dev/null")):
        with pytest.raises(ValueError, match="is no regular file: choose another name"):
            write_text(path, "x")
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    with pytest.raises(ValueError, match="is no folder: make it first"):
        write_text(tmp_path / "none" / "x", "x")
