"""The loop that runs passes: what it verifies and when, and what both pipelines share."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import i32, i64
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from louver.compile import products, tiles
from louver.compile.canonical import canonicalize
from louver.compile.dump import Dump
from louver.compile.passes import COPY, Pass, State, names, run_passes
from louver.ir.context import parse_ir
from support.golden import ROOT
from support.pass_golden import PASSES as PASSES_OF_MODULES

FOLDER = Path(__file__).parent / "canonical"

TEXT = """tt.func public @k(%x: i32) {
  %y = arith.addi %x, %x : i32
  tt.return
}"""


def _widen(state: State) -> None:
    (add,) = [op for op in state.module.walk() if isinstance(op, arith.AddiOp)]
    Rewriter.replace_value_with_new_type(add.result, i64)


def _mend(state: State) -> None:
    (add,) = [op for op in state.module.walk() if isinstance(op, arith.AddiOp)]
    Rewriter.replace_value_with_new_type(add.result, i32)


BREAKS: Pass[State] = Pass("breaks", _widen)
MENDS: Pass[State] = Pass("mends", _mend)


def test_what_passes_leave_is_verified() -> None:
    with pytest.raises(VerifyException):
        run_passes((COPY, BREAKS), State(parse_ir(TEXT)))


def test_what_passes_only_read_is_not_verified_again() -> None:
    state = State(parse_ir(TEXT))
    _widen(state)
    run_passes((Pass("reads", lambda state: str(state.module)),), state)
    with pytest.raises(VerifyException):
        run_passes((Pass("reads", lambda state: str(state.module)), Pass("rewrites", lambda _: None)), state)


def test_while_dumping_the_pass_that_breaks_a_module_is_found(tmp_path: Path) -> None:
    passes = (COPY, BREAKS, MENDS)
    run_passes(passes, State(parse_ir(TEXT)))
    with pytest.raises(VerifyException):
        run_passes(passes, State(parse_ir(TEXT)), Dump(tmp_path, names(passes)))
    assert [each.name for each in tmp_path.iterdir()] == ["00-tile-ir.mlir"]


def test_the_given_module_stays() -> None:
    module = parse_ir(TEXT)
    before = str(module)
    run_passes((COPY, Pass("erase", lambda state: state.kernel.detach())), State(module))
    assert str(module) == before


def test_both_pipelines_run_the_same_passes_where_they_share_them() -> None:
    shared = [each for each in tiles.PASSES if each in products.PASSES]
    assert names(shared) == (
        "tile-ir",
        "count-loops",
        "propagate-sparsity",
        "drop-assumptions",
        "join-equal-integers",
        "make-host-descriptors",
        "turn-across",
    )
    for passes in (products.PASSES, tiles.PASSES, canonicalize.CANONICAL):
        assert len(set(names(passes))) == len(passes)


def test_a_module_of_two_kernels_is_refused() -> None:
    state = State(parse_ir(TEXT + TEXT.replace("@k", "@l")))
    with pytest.raises(ValueError, match="a module holds one kernel, got 2: compile one kernel at a time"):
        _ = state.kernel


@pytest.mark.parametrize("name", PASSES_OF_MODULES)
def test_each_canonical_pass_has_a_test_and_a_golden_file_of_its_name(name: str) -> None:
    assert (FOLDER / f"test_{name.replace('-', '_')}.py").exists()
    # It changes nothing.
    assert (ROOT / "canonical" / "passes" / f"{name}.diff").exists() or name == "require-multiplied"


def test_each_file_of_the_canonical_passes_has_the_name_of_its_pass() -> None:
    files = {path.stem.replace("_", "-") for path in Path(canonicalize.__file__).parent.glob("[a-z]*.py")}
    assert files - {"canonicalize"} <= PASSES_OF_MODULES.keys()
