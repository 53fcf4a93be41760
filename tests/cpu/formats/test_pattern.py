from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from louver.formats.pattern import MAX_GROUP, Pattern


def test_parse() -> None:
    assert Pattern.parse("2:4") == Pattern(2, 4)
    assert Pattern.parse("1:2") == Pattern(1, 2)
    assert Pattern.parse("8:32@16") == Pattern(8, 32, 16)
    assert Pattern.parse("2:4@1") == Pattern(2, 4)
    assert Pattern.parse(Pattern(6, 8)) == Pattern(6, 8)
    assert Pattern.parse("64:2:8") == Pattern.parse("2:8@V64") and str(Pattern.parse("64:2:8")) == "2:8@V64"
    assert Pattern.parse("2:8@V64") == Pattern(2, 8, 64, shared=4) != Pattern(2, 8, 64)


@given(st.integers(1, MAX_GROUP).flatmap(lambda m: st.tuples(st.integers(1, m), st.just(m), st.integers(1, 512))))
def test_text_round_trip(parts: tuple[int, int, int]) -> None:
    pattern = Pattern(*parts)
    assert Pattern.parse(str(pattern)) == pattern


def test_a_pattern_is_composed_of_levels() -> None:
    assert Pattern.parse("2:8@16").levels == (Pattern(2, 8, 16),)
    pattern = Pattern.parse("2:8@V128")
    assert (str(pattern), pattern.levels, pattern.rescaling) == ("2:8@V128", (Pattern(4, 8, 128), Pattern(2, 4)), 4)


@pytest.mark.parametrize(
    ("parts", "rule"),
    [
        ((2, 4, 64, 4), "4 vectors of 5 or more, of 2 rows or more, got 2:4@V64"),
        ((2, 8, 1, 4), "of 2 rows or more, got 2:8@V1"),
        ((3, 8, 64, 4), "rows of V:N:M keep 2 of 4 vectors that they share, got 3 of 4"),
        ((2, 8, 64, 6), "got 2 of 6"),
    ],
)
def test_rows_share_four_vectors_of_more(parts: tuple[int, int, int, int], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Pattern(*parts)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2:8@V",
        "2:8V4",
        "2:8@v4",
        "2:8@V0",
        "2",
        "2:",
        ":4",
        "2:4@",
        "2:4@0",
        "0:4",
        "2 :4",
        " 2:4",
        "2:4\n",
        "-1:4",
        "2:4:8",
        "02:4",
        "²:4",
        "2/4",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match='"N:M" or "N:M@L" with positive integers'):
        Pattern.parse(text)


@pytest.mark.parametrize("parts", [(5, 4), (0, 4), (-1, 2), (1, 0)])
def test_a_pattern_keeps_at_least_one_and_at_most_all(parts: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"keeps 1 to M elements of a group, got {parts[0]}:{parts[1]}"):
        Pattern(*parts)


def test_limits_of_group_and_vector() -> None:
    with pytest.raises(ValueError, match="at most 256 elements, got M = 257"):
        Pattern(2, MAX_GROUP + 1)
    with pytest.raises(ValueError, match="at least 1 element, got 0"):
        Pattern(2, 4, 0)


def test_a_cut_group_counts() -> None:
    assert [Pattern(2, 4).groups(size) for size in (0, 1, 4, 5, 8)] == [0, 1, 1, 2, 2]
