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


@given(st.integers(1, MAX_GROUP).flatmap(lambda m: st.tuples(st.integers(1, m), st.just(m), st.integers(1, 512))))
def test_text_round_trip(parts: tuple[int, int, int]) -> None:
    pattern = Pattern(*parts)
    assert Pattern.parse(str(pattern)) == pattern


@pytest.mark.parametrize(
    "text",
    ["", "2", "2:", ":4", "2:4@", "2:4@0", "0:4", "2 :4", " 2:4", "2:4\n", "-1:4", "2:4:8", "02:4", "²:4", "2/4"],
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
