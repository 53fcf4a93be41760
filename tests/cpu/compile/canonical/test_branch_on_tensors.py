"""Code behind a choice between sparse tensors is repeated in a branch; what does not depend on the choice stays before it."""

from __future__ import annotations

import re

import pytest
from xdsl.dialects import scf

from louver.compile.canonical.branch_on_tensors import branch_on_tensors
from louver.compile.canonical.propagate_sparsity import propagate_sparsity
from louver.ir.comparisons import SelectOp
from louver.ir.context import parse_ir
from louver.ir.refusal import UnsupportedKernelError
from support.golden import Golden
from support.pass_golden import check_pass

SELECT = "%from = arith.select %first, %v, %w : !tt.ptr<f16>"
IF = """%from = scf.if %first -> (!tt.ptr<f16>) {
      %moved = tt.addptr %v, %c64 : !tt.ptr<f16>, i32
      scf.yield %moved : !tt.ptr<f16>
    } else {
      scf.yield %w : !tt.ptr<f16>
    }"""
USE = """%base = tt.splat %from : !tt.ptr<f16> -> tensor<16x16x!tt.ptr<f16>>
    %at = tt.addptr %base, %lanes : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
    %tile = tt.load %at : tensor<16x16x!tt.ptr<f16>>
    %wide = arith.extf %tile : tensor<16x16xf16> to tensor<16x16xf32>
    tt.store %to, %wide : tensor<16x16x!tt.ptr<f32>>"""
LOOP = """%end = scf.for %i = %c0 to %c64 step %c16 iter_args(%from = %v) -> (!tt.ptr<f16>) : i32 {
      %next = arith.select %first, %from, %w : !tt.ptr<f16>
      scf.yield %next : !tt.ptr<f16>
    }"""


def kernel(choice: str, use: str = USE, *, sparse: str = "vw") -> str:
    """Loads a tile of v or w. sparse: names of those that are marked."""
    mark = {name: " {louver.sparse.NV24 = 1 : i32}" if name in sparse else "" for name in "vw"}
    return f"""builtin.module {{
  tt.func public @k(%v: !tt.ptr<f16>{mark["v"]}, %w: !tt.ptr<f16>{mark["w"]}, %y: !tt.ptr<f32>) attributes {{noinline = false}} {{
    %c0 = arith.constant 0 : i32
    %c16 = arith.constant 16 : i32
    %c64 = arith.constant 64 : i32
    %pid = tt.get_program_id x : i32
    %first = arith.cmpi eq, %pid, %c0 : i32
    {choice}
    %row = tt.make_range {{start = 0 : i32, end = 16 : i32}} : tensor<16xi32>
    %rows = tt.expand_dims %row {{axis = 1 : i32}} : tensor<16xi32> -> tensor<16x1xi32>
    %lanes = tt.broadcast %rows : tensor<16x1xi32> -> tensor<16x16xi32>
    %out = tt.splat %y : !tt.ptr<f32> -> tensor<16x16x!tt.ptr<f32>>
    %to = tt.addptr %out, %lanes : tensor<16x16x!tt.ptr<f32>>, tensor<16x16xi32>
    {use}
    tt.return
  }}
}}
"""


@pytest.mark.parametrize("choice", [SELECT, IF], ids=["select", "if"])
def test_each_arm_has_its_tensor(choice: str) -> None:
    module = parse_ir(kernel(choice))
    branch_on_tensors(module)
    module.verify()
    (branch,) = [op for op in module.walk() if isinstance(op, scf.IfOp)]
    arms = [[op.name for op in region.block.ops] for region in branch.regions]
    assert all("tt.load" in arm and "tt.store" in arm and "tt.make_range" not in arm for arm in arms)
    propagate_sparsity(module)
    module.verify()


@pytest.mark.parametrize("sparse", ["v", "w"])
def test_one_of_both_may_be_dense(sparse: str) -> None:
    module = parse_ir(kernel(SELECT, sparse=sparse))
    branch_on_tensors(module)
    propagate_sparsity(module)
    module.verify()
    assert str(module).count("tt.load") == 2 and str(module).count("tt.decompress") == 1


@pytest.mark.parametrize(
    ("choice", "use", "sparse"),
    [
        (SELECT, USE, ""),
        (SELECT, "", "vw"),
        (SELECT.replace("%v, %w", "%v, %v"), USE, "vw"),
    ],
    ids=["dense tensors", "no use", "one tensor"],
)
def test_other_choices_do_not_change(choice: str, use: str, sparse: str) -> None:
    module = parse_ir(kernel(choice, use, sparse=sparse))
    before = str(module)
    branch_on_tensors(module)
    assert str(module) == before


@pytest.mark.parametrize(
    "others",
    [
        ["%from = arith.select %first, %w, %v : !tt.ptr<f16>"],
        [IF, SELECT],
        [f"scf.if %first {{ {USE.replace('%base', '%b').replace('%at', '%a').replace('%from', '%w')} }}"],
        [f"scf.if %first {{ }} else {{ {USE.replace('%base', '%b').replace('%at', '%a').replace('%from', '%w')} }}"],
    ],
    ids=["select", "both", "branch", "branch with two arms"],
)
def test_choices_by_one_condition_are_one_branch(others: list[str]) -> None:
    """Three choices make two copies, not eight."""
    uses = [each.replace("%from", f"%from_{number}") for number, each in enumerate([SELECT, *others])]
    uses = [each if each.startswith("scf.if") else f"{each}\n    {_use(number)}" for number, each in enumerate(uses)]
    module = parse_ir(kernel("", "\n    ".join(uses)))
    branch_on_tensors(module)
    module.verify()
    (branch,) = [op for op in module.walk() if isinstance(op, scf.IfOp)]
    assert not any(isinstance(op, SelectOp) for op in module.walk()) and len(branch.regions) == 2
    propagate_sparsity(module)
    module.verify()


def _use(number: int) -> str:
    """The use of a choice, with names of its own."""
    return re.sub(r"%(base|at|tile|wide|from)", rf"%\1_{number}", USE)


def test_one_of_three_tensors_makes_three_copies() -> None:
    chosen = "%other = arith.select %second, %w, %u : !tt.ptr<f16>\n    %from = arith.select %first, %v, %other : !tt.ptr<f16>"
    text = kernel(chosen).replace("%y: !tt", "%u: !tt.ptr<f16> {louver.sparse.NV24 = 1 : i32}, %y: !tt")
    module = parse_ir(text.replace("%other =", "%second = arith.cmpi eq, %pid, %c16 : i32\n    %other =", 1))
    branch_on_tensors(module)
    module.verify()
    assert str(module).count("tt.load") == 3 and "arith.select" not in str(module)


def test_what_the_condition_decides_before_the_choice_is_decided_too() -> None:
    """A stride that is chosen, and computed with, before the tensor is."""
    before = "%stride = arith.select %first, %c16, %c64 : i32\n    %row = arith.muli %stride, %c16 : i32\n    "
    use = USE.replace("%base =", "%moved = tt.addptr %from, %row : !tt.ptr<f16>, i32\n    %base =").replace(
        "splat %from", "splat %moved"
    )
    module = parse_ir(kernel(before.replace("%row", "%far") + SELECT, use.replace("%row", "%far")))
    branch_on_tensors(module)
    module.verify()
    assert str(module).count("arith.muli") == 2 and "arith.select" not in str(module)


def test_a_choice_that_a_loop_carries_on_is_refused() -> None:
    module = parse_ir(kernel(LOOP, USE.replace("%from", "%end")))
    branch_on_tensors(module)
    with pytest.raises(UnsupportedKernelError, match="a sparse tile is of one argument"):
        propagate_sparsity(module)


def test_repeats_what_reads_the_chosen_tensor(golden: Golden) -> None:
    check_pass(golden, "branch-on-tensors", parse_ir(kernel(IF)))
