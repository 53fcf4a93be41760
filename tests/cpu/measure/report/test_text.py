from __future__ import annotations

import pytest

from louver.measure.report.table import cells, fold, shown
from support.work import calls


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("a\r\nb\tc\0\x7f", r"a\r\nb\tc\x00\x7f"),
        ("\x9b31m\x85", r"\x9b31m\x85"),
        ("\u202egnp.exe\u2066\u200f", r"\u202egnp.exe\u2066\u200f"),
        ("\u2028\u2029\ufeff\u00ad", r"\u2028\u2029\ufeff\xad"),
        ("\ud800 \udcff", r"\ud800 \udcff"),
        ("\U000e0041", r"\U000e0041"),
        ("[red]w[/red] :smile: \\x1b", "[red]w[/red] :smile: \\x1b"),
        ("gewicht_größe 重み 🙂", "gewicht_größe 重み 🙂"),
    ],
)
def test_only_what_prints_is_shown(text: str, escaped: str) -> None:
    assert shown(text) == escaped
    assert shown(text).isprintable()


def test_line_ends_stay_where_they_are_asked_for() -> None:
    assert shown("a\n\tb\x1b\r", keep="\n\t") == "a\n\tb\\x1b\\r"


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("ascii", "4x4 -> 5us - ... \\u91cd\\U0001f642\\xe9"),
        ("latin-1", "4x4 -> 5us - ... \\u91cd\\U0001f642é"),
        ("utf-8", "4×4 → 5µs – … 重🙂é"),
    ],
)
def test_what_an_encoding_does_not_have_gets_a_stand_in(encoding: str, expected: str) -> None:
    assert shown("4×4 → 5µs – … 重🙂é", encoding) == expected


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("4×4", 3), ("重み", 4), ("e\u0301", 1), ("🙂", 2), ("", 0)])
def test_cells_are_those_of_a_terminal(text: str, width: int) -> None:
    assert cells(text) == width


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("short", 9, ["short"]),
        ("two words here", 9, ["two words", "here"]),
        ("layer.0.attention.weight", 10, ["layer.0.", "attention.", "weight"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("重み重み重", 4, ["重み", "重み", "重"]),
        ("重", 1, ["重"]),
        ("", 4, [""]),
    ],
)
def test_long_text_is_folded_and_nothing_is_lost(text: str, width: int, lines: list[str]) -> None:
    assert list(fold(text, width)) == lines
    assert "".join(lines) == text.replace(" ", "") or " ".join(lines) == text


@pytest.mark.parametrize("unit", ["a", "重", "a ", "ab."])
def test_folding_takes_work_by_the_text_s_length_alone(unit: str) -> None:
    def work(times: int) -> int:
        return calls(lambda: list(fold(unit * times, 40)))

    assert work(1000) < 20 * 1000
    assert work(4000) < 4.1 * work(1000)
