from __future__ import annotations

from collections import Counter

from louver.emulator import Report


def test_a_report_prints_in_three_lines() -> None:
    counts = Counter({f"op{i}.u32": 1000 * i for i in range(1, 40)})
    report = Report(counts, frozenset(range(5000)), 12, 3, 1024)
    assert str(report).splitlines() == [
        "780,000 instructions of warps, 39 kinds: op39.u32 39,000, op38.u32 38,000, op37.u32 37,000, op36.u32 36,000",
        "12 bulk loads, 3 bulk stores, 1,024 products of warpgroups",
        "5,000 instructions of the program executed",
    ]
    assert repr(report) == "Report(bulk_loads=12, bulk_stores=3, products=1024)"
