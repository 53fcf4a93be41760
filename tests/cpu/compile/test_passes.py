"""The loop that runs passes: what it verifies and when, and what both pipelines share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp, i32, i64
from xdsl.rewriter import Rewriter

from louver.compile import pipeline
from louver.compile.canonical import canonicalize
from louver.compile.defect import DefectError
from louver.compile.dump import Dump
from louver.compile.kernel_state import KernelState
from louver.compile.needs import Needs
from louver.compile.passes import COPY, First, Pass, State, UnfitError, Way, attempt, names, passes_of, run_passes
from louver.ir.conditions import NO_CONDITIONS
from louver.ir.context import parse_ir
from louver.ir.refusal import Refusal, UnsupportedKernelError
from louver.isa.rule import RuleError
from louver.isa.targets import target
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
    with pytest.raises(DefectError):
        run_passes((COPY, BREAKS), State(parse_ir(TEXT)))


def test_a_module_is_verified_once_behind_all_tuples_of_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    count, state, verify = 0, State(parse_ir(TEXT)), ModuleOp.verify

    def counted(module: ModuleOp) -> None:
        nonlocal count
        count += 1
        verify(module)

    monkeypatch.setattr(ModuleOp, "verify", counted)
    run_passes(((COPY, BREAKS), First((Way((MENDS,)), Way((BREAKS,))))), state)
    assert count == 1


def test_what_passes_only_read_is_not_verified_again() -> None:
    state = State(parse_ir(TEXT))
    _widen(state)
    run_passes((Pass("reads", lambda state: str(state.module)),), state)
    with pytest.raises(DefectError):
        run_passes((Pass("reads", lambda state: str(state.module)), Pass("rewrites", lambda _: None)), state)


def test_while_dumping_the_pass_that_breaks_a_module_is_found(tmp_path: Path) -> None:
    passes = (COPY, BREAKS, MENDS)
    run_passes(passes, State(parse_ir(TEXT)))
    with pytest.raises(DefectError):
        run_passes(passes, State(parse_ir(TEXT), watch=Dump(tmp_path, names(passes))))
    files = sorted(each.name for each in tmp_path.iterdir())
    assert files == ["00-tile-ir.mlir", "breaks.mlir", "error.txt", "kernel.mlir"]


def test_the_given_module_stays() -> None:
    module = parse_ir(TEXT)
    before = str(module)
    run_passes((COPY, Pass("erase", lambda state: state.kernel.detach())), State(module))
    assert str(module) == before


def test_both_pipelines_run_the_same_passes_where_they_share_them() -> None:
    shared = [each for each in passes_of(pipeline.TILES) if each in passes_of(pipeline.PRODUCT)]
    assert names(shared) == (
        "tile-ir",
        "count-loops",
        "drop-branches",
        "narrow-operands",
        "drop-assumptions",
        "join-arms",
        "nest-loops",
        "drop-carried",
        "drop-counters",
        "drop-choices",
        "split-loops",
        "branch-on-tensors",
        "propagate-sparsity",
        "join-equal-integers",
        "make-host-descriptors",
        "turn-across",
        "load-once",
    )
    for passes in (pipeline.PRODUCT, pipeline.TILES, canonicalize.CANONICAL):
        assert len(set(names(passes))) == len(passes_of(passes))


def _refuses(rule: str, *, by_value: bool = False) -> Pass[State]:
    """A pass that erases what the module holds and then refuses it."""
    error = UnsupportedKernelError(rule, "op", "kernel.py:3:5", "write it otherwise")

    def run(state: State) -> Refusal:
        state.kernel.detach()
        if by_value:
            return Refusal.of(error)
        raise error

    return Pass(rule, run)


NOTHING: Pass[State] = Pass("nothing", lambda state: "seen")


@pytest.mark.parametrize("by_value", [True, False])
def test_a_refusal_is_a_value_with_the_rule_and_the_line(by_value: bool) -> None:
    found = attempt((COPY, _refuses("no a", by_value=by_value), NOTHING), State(parse_ir(TEXT)))
    assert found == Refusal("no a", "op", "write it otherwise", "kernel.py:3:5")
    assert str(found.quoted(lambda place: f"the text of {place}")) == (
        "no a, got at kernel.py:3:5: the text of kernel.py:3:5: write it otherwise"
    )
    with pytest.raises(AttributeError):
        found.rule = "another"  # type: ignore[misc]


def test_a_refusal_without_an_operation_has_its_whole_message() -> None:
    assert Refusal.because("sizes are 1, got 2") == Refusal("sizes are 1, got 2")
    assert str(Refusal.because("sizes are 1, got 2").quoted(lambda place: "x")) == "sizes are 1, got 2"


def test_the_first_way_that_serves_is_taken_and_the_reasons_are_kept() -> None:
    state = State(parse_ir(TEXT))
    ways = First((Way((COPY, _refuses("no a"))), Way(_refuses("no b", by_value=True)), Way((COPY, NOTHING))))
    found = attempt((NOTHING, ways, NOTHING), state)
    assert isinstance(found, State) and found.tile is not found.module
    assert [each.rule for each in found.refusals] == ["no a", "no b"]


def test_each_way_begins_with_its_own_copy_of_the_state() -> None:
    state, seen = State(parse_ir(TEXT)), list[int]()

    def begin(own: State) -> None:
        seen.append(len(own.refusals))
        own.module = own.module.clone()

    found = run_passes(First((Way(_refuses("no a"), begin), Way(NOTHING, begin))), state)
    assert seen == [0, 1] and found.module is not state.module and str(state.module) == str(parse_ir(TEXT))


def test_of_refused_ways_one_leads_and_others_are_told_beside_it() -> None:
    ways = First(
        (
            Way((COPY, _refuses("no a")), told="As a it is refused too"),
            Way((COPY, _refuses("no b")), told=None),
            Way((COPY, _refuses("no c"))),
            Way((COPY, _refuses("no c")), told="As the same"),
            Way(NOTHING, lambda state: Refusal.because("it is not for d")),
        )
    )
    with pytest.raises(
        UnsupportedKernelError, match=r"^no c, got at kernel.py:3:5: op: write it otherwise\n"
    ) as caught:
        run_passes((NOTHING, ways, NOTHING), State(parse_ir(TEXT)))
    (note,) = caught.value.__notes__
    assert note == "As a it is refused too: no a, got at kernel.py:3:5: op: write it otherwise"


def test_a_call_that_does_not_fit_ends_all_ways() -> None:
    """It is no refusal of the kernel, and no defect."""

    def ask(state: State) -> None:
        raise UnfitError(ValueError("M is 3"))

    ways = First((Way((COPY, Pass("ask-call", ask))), Way(NOTHING)))
    with pytest.raises(UnfitError, match="M is 3") as caught:
        attempt((NOTHING, ways), State(parse_ir(TEXT)))
    assert isinstance(caught.value.error, ValueError)


def test_a_call_is_asked_once_and_not_kept() -> None:
    asked: list[Needs] = []
    state = KernelState(parse_ir(TEXT), target("sm_90a"), fits=asked.append)
    needs = Needs(NO_CONDITIONS)
    assert state.ask(needs) is state.ask(needs) is needs and asked == [needs]

    def unfit(needs: Needs) -> None:
        raise ValueError("M is 3")

    state.fits = unfit
    with pytest.raises(UnfitError, match="M is 3"):
        state.ask(needs)
    state.ask(needs)


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


def _raises(error: Exception) -> Pass[State]:
    def run(state: State) -> None:
        _widen(state)
        raise error

    return Pass("raises", run)


def _reached(_: State) -> None:
    raise AssertionError("the next way was tried")


@pytest.mark.parametrize(
    "error", [ValueError("shapes differ"), KeyError("x"), AssertionError(), RecursionError("deep")]
)
def test_an_error_that_is_no_rule_is_a_defect_that_names_pass_and_kernel(error: Exception) -> None:
    ways = First((Way((COPY, _raises(error))), Way((Pass("next", _reached),))))
    with pytest.raises(
        DefectError, match=r"pass raises failed on the kernel k.*please report it with the folder"
    ) as caught:
        run_passes(ways, State(parse_ir(TEXT)))
    found = caught.value
    assert not isinstance(found, ValueError) and found.__cause__ is error
    assert found.folder is not None
    try:
        assert (found.folder / "kernel.mlir").read_text() == f"{parse_ir(TEXT)}\n"
        assert "i64" in (found.folder / "raises.mlir").read_text()
        assert type(error).__name__ in (found.folder / "error.txt").read_text()
    finally:
        shutil.rmtree(found.folder)


def test_a_defect_at_the_beginning_of_a_way_names_the_pass_that_would_follow(tmp_path: Path) -> None:
    def begin(_: State) -> None:
        raise TypeError

    state = State(parse_ir(TEXT), watch=Dump(tmp_path, ("tile-ir",)))
    with pytest.raises(DefectError) as caught:
        run_passes(First((Way((COPY,), begin),)), state)
    assert (caught.value.step, caught.value.folder) == ("before-tile-ir", tmp_path)


def test_a_defect_without_a_place_for_its_folder_is_told_without(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    state = State(parse_ir(TEXT), watch=Dump(tmp_path / "file", ("raises",)))
    with pytest.raises(DefectError, match="please report it$") as caught:
        run_passes((_raises(OSError()),), state)
    assert caught.value.folder is None


def test_only_a_rule_refuses_so_that_the_next_way_is_tried() -> None:
    ways = First((Way((COPY, _raises(RuleError("an even number, got 3")))), Way((COPY,))))
    assert [each.rule for each in run_passes(ways, State(parse_ir(TEXT))).refusals] == ["an even number, got 3"]


def test_errors_of_triton_and_of_the_machine_stay_as_they_are() -> None:
    triton = type("CompilationError", (ValueError,), {"__module__": "triton.compiler.errors"})
    for error in (triton("at 3:4"), MemoryError(), ImportError("no triton")):
        with pytest.raises(type(error)) as caught:
            run_passes((_raises(error),), State(parse_ir(TEXT)))
        assert caught.value is error
