from __future__ import annotations

import json

from louver.report.products import ProductRow, products_json, products_markdown, products_table

ROWS = [
    ProductRow("a.weight", (9, 256, 128), "reference", 0.25, 0.031, True),
    ProductRow("[b]", (7, 64, 12), "emulator", 1.5, 7.25, False),
]


def test_table_shows_what_failed() -> None:
    good, bad = (line for line in products_table(ROWS, "checked").lines() if "×" in line and "M×N×K" not in line)
    assert "9×256×128" in good and "0.031" in good and good.rstrip().endswith("yes")
    assert "[b]" in bad and "7.250" in bad and bad.rstrip().endswith("NO")


def test_markdown_and_json_hold_the_rows() -> None:
    lines = products_markdown(ROWS).splitlines()
    assert len(lines) == 4 and len({line.count("|") for line in lines}) == 1
    assert json.loads(json.dumps(products_json(ROWS)))[1]["worst"] == 7.25
