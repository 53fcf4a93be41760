from __future__ import annotations

from louver.measure.report.products import MOST_LINES, ProductRow, each_product, products_table

ROWS = [
    ProductRow("a.weight", (9, 256, 128), "reference", 0.25, 0.971, True),
    ProductRow("[b]", (7, 64, 12), "emulator", 1.5, 7.25, False),
    ProductRow("c.weight", (9, 256, 128), "reference", 0.5, 0.031, True),
    ProductRow("d.weight", (7, 64, 12), "emulator", 1.5, 0.25, True),
]


def lines(rows: list[ProductRow]) -> list[str]:
    return [
        line
        for line in products_table(rows, "checked").lines(80)
        if ("×" in line and "M×N×K" not in line) or "more" in line
    ]


def test_table_has_a_line_for_each_shape_and_shows_what_failed() -> None:
    good, bad = lines(ROWS)
    assert good.split() == ["9×256×128", "2", "reference", "0.750", "all"]
    assert bad.split() == ["7×64×12", "2", "emulator", "3.000", "1", "of", "2"]


def test_table_is_no_longer_than_a_screen() -> None:
    rows = [ProductRow(f"w{n}", (n, 8, 16), "reference", 0.1, 0.5, True) for n in range(1, MOST_LINES + 4)]
    shown = lines(rows)
    assert len(shown) == MOST_LINES + 1 and shown[-1].split() == ["3", "more"]
    assert "more" not in "".join(lines(rows[:MOST_LINES]))


def test_the_ratio_to_the_bound_is_for_programs_alone() -> None:
    text = each_product(ROWS).markdown()
    assert "0.971" not in text and "7.250" not in text and "0.971" not in "".join(lines(ROWS))
    assert [line.split("|")[-2].strip() for line in text.splitlines()[2:]] == ["yes", "NO", "yes", "yes"]
    assert len({line.count("|") for line in text.splitlines()}) == 1
