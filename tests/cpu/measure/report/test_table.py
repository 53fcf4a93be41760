from __future__ import annotations

import pytest

from louver.measure.report.table import NAME, Column, Table, cells
from support.work import calls

COLUMNS = (Column("tensor", least=NAME), Column("shape", right=True), Column("found", least=9))
ROWS = [
    ("encoder.layer.11.attention.weight", "4096×14336", "0: 4.17% 2: 95.8%"),
    ("b", "3", "–"),
    ("重み" * 12, "8×8", ""),
]
TABLE = Table("what is there", COLUMNS, ROWS, footer=("3 tensors", "", ""))


def test_columns_are_as_wide_as_their_text_where_there_is_room() -> None:
    assert list(TABLE.lines())[1:] == [
        "tensor                                                 shape  found",
        "─" * (48 + 2 + 10 + 2 + 17),
        "encoder.layer.11.attention.weight                 4096×14336  0: 4.17% 2: 95.8%",
        "b                                                          3  –",
        "重み" * 12 + "         8×8",
        "─" * (48 + 2 + 10 + 2 + 17),
        "3 tensors",
    ]
    assert list(TABLE.lines(79)) == list(TABLE.lines())


def test_names_and_sentences_fold_where_there_is_less() -> None:
    lines = list(TABLE.lines(44))
    assert max(map(cells, lines)) <= 44
    assert lines[3].split() == ["encoder.layer.11.", "4096×14336", "0:", "4.17%", "2:"]
    assert lines[4].split() == ["attention.weight", "95.8%"]


@pytest.mark.parametrize("width", [38, 24, 12, 1])
def test_below_that_each_row_is_a_list_and_nothing_is_lost(width: int) -> None:
    lines = list(TABLE.lines(width))
    text = "".join(line.strip() for line in lines).replace(" ", "")
    for row in ROWS:
        assert all(cell.replace(" ", "") in text for cell in row)
    if width >= 24:
        assert max(map(cells, lines)) <= width
        assert "  shape: 3" in lines and "" in lines
        assert lines[-1] == "3 tensors", "empty cells are left out"


def test_cells_cannot_break_the_table_or_reach_the_terminal() -> None:
    table = Table("a\nb", COLUMNS, [("w\nfake  1\x1b[1A", "\u202e1", "x\ty")])
    for width in (None, 60, 20):
        assert all(line.isprintable() for line in table.lines(width))
    assert len(list(table.lines())) == 4


def test_ascii_has_no_other_character() -> None:
    lines = list(TABLE.lines(100, "ascii"))
    assert all(line.isascii() for line in lines)
    assert "4096x14336" in lines[3] and set(lines[2]) == {"-"}


def test_rows_have_a_cell_for_each_column() -> None:
    with pytest.raises(ValueError, match=r"a row has 3 cells, got 2: \['a', 'b'\]"):
        Table("", COLUMNS, [("a", "b")])


@pytest.mark.parametrize("width", [None, 100, 40])
def test_work_is_by_the_number_of_rows(width: int | None) -> None:
    def work(rows: int) -> int:
        table = Table("many", COLUMNS, [(f"model.layers.{i}.weight", "4096×14336", "2: 100%") for i in range(rows)])
        return calls(lambda: list(table.lines(width)))

    # A hundred thousand rows take seconds at this rate.
    assert work(1000) < 300 * 1000
    assert work(4000) < 4.1 * work(1000)
