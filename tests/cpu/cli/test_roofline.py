from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.command_line import Cli


def test_a_row_for_each_pattern_and_blocking(cli: Cli) -> None:
    result = cli("roofline", "16:32@32", "2:8@128", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["kind"] == "roofline" and found["ridge"] == pytest.approx(132 * 256 * 1.98e9 / 4.3e12)
    assert [(row["pattern"], row["blocking"]) for row in found["rows"]][2:4] == [
        ("16:32@32", "large"),
        ("2:8@128", "small"),
    ]
    large = found["rows"][-1]
    assert (large["kept"], large["packs"], large["limit"]) == (0.25, True, "FMA")
    # Packed, a byte of A is worth as much as one of B'.
    ks, ws, steps = large["ks"], large["ws"], -(-4096 // large["ks"])
    assert large["intensity_packed"] == pytest.approx(
        2 * 64 * 128 * ws / (64 * ks / 4 + ws * 128 + 2 * 64 * 128 / steps) / 4
    )


def test_the_table_and_other_sizes(cli: Cli) -> None:
    result = cli("roofline", "2:4", "--blocking", "64,128,32,64,8,8", "--k", "64")
    assert "K = 64; memory is the limit below 15.6 FLOP/B" in result.output
    (line,) = [line for line in result.output.splitlines() if line.startswith("2:4 ")]
    assert line.split()[1:4] == ["64,128,32,64,8,8", "64", "32"] and "no" in line.split()


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("2:4", "--blocking", "huge"), "a blocking is small, medium, large, or ms,ns,mr,nr,mt,nt"),
        (("2:4", "--blocking", "64,128,32,64,8,16"), "a warp's tile has 32 threads' tiles"),
        (("5:4",), "keeps 1 to M elements of a group, got 5:4"),
    ],
)
def test_bad_input(cli: Cli, arguments: tuple[str, ...], rule: str) -> None:
    result = cli("roofline", *arguments)
    assert result.exit_code == 2 and rule in result.output


def test_the_text_has_the_bound_and_a_legend(cli: Cli) -> None:
    output = cli("roofline", "2:8@128", "--blocking", "small", columns="300").output
    assert "bound: TFLOP/s of kept products at that limit" in output
    (row,) = json.loads(cli("roofline", "2:8@128", "--blocking", "small", "--json").output)["rows"]
    assert row["limit"] == "memory" and row["bound_tflops"] == pytest.approx(row["intensity_packed"] * 4.3)
    assert f"{row['bound_tflops']:.1f}" in output
