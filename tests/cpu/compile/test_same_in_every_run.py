"""Two runs of one commit write the same text in each pass, the same PTX and the same record of a launch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from xdsl.dialects import scf
from xdsl.ir import BlockArgument

from louver.compile.dump import VARIABLE
from louver.compile.plan.feeds.steps_ahead import taken
from louver.ir.context import parse_ir

FORMS = ("structures/convolution", "plain/masked product", "parts/parts of a matrix [parts · N, K]")
"""Rings and boxes with conditions of the launch, a product, and parts of one matrix."""


def _run(seed: int, folder: Path) -> tuple[str, dict[str, str]]:
    """What the launches are told, and the texts of the passes by file."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), VARIABLE: str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "support.compile_again", str(seed), *FORMS],
        env=environment | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    texts = {str(each.relative_to(folder)): each.read_text() for each in sorted(folder.rglob("*.*"))}
    return done.stdout, texts


def test_two_runs_make_the_same(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (one, texts), (other, again) = (_run(seed, tmp_path / str(seed)) for seed in (1, 2))
    assert one == other
    assert list(texts) == list(again)
    assert len(texts) > 40
    assert [name for name, text in texts.items() if text != again[name]] == []


BRANCH = """tt.func public @k(%a: i32, %b: i32, %c: i32, %d: i32, %which: i1) {
  %x = scf.if %which -> (i32) {
    %y = arith.addi %d, %c : i32
    %z = arith.muli %y, %b : i32
    scf.yield %z : i32
  } else {
    scf.yield %a : i32
  }
  tt.return
}"""


def test_values_that_a_branch_takes_are_in_the_order_of_its_operations() -> None:
    module = parse_ir(BRANCH)
    (branch,) = [op for op in module.walk() if isinstance(op, scf.IfOp)]
    for _ in range(5):
        # Copies have other addresses, so that a set of their operations has another order.
        branch = branch.clone()
        assert [cast(BlockArgument, each).index for each in taken(branch)] == [4, 3, 2, 1, 0]
