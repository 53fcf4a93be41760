"""Loads of both arms of a branch become one load with an exact mask. Arms with effects, and arms that differ, stay."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import scf

from louver.compile.canonical.join_arms import join_arms
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel
from louver.ir.tile import LoadOp
from support.golden import Golden
from support.pass_golden import check_pass

WHOLE = "%a = tt.load %at : tensor<8x!tt.ptr<i32>>"
MASK = """%left{n} = arith.subi %K, %first : i32
        %most{n} = tt.splat %left{n} : i32 -> tensor<8xi32>
        %inside{n} = arith.cmpi slt, %lanes, %most{n} : tensor<8xi32>
        """
MASKED = MASK.format(n="") + "%b = tt.load %at, %inside, %zeros : tensor<8x!tt.ptr<i32>>"
BELOW_LAST = "%last = arith.subi %steps, %c1 : i32\n      %go = arith.cmpi slt, %k, %last : i32"
YIELDS = "\n        scf.yield {} : tensor<8xi32>"


def kernel(condition: str, one: str, other: str) -> str:
    """Sums K numbers in steps of 8. `one` ends with a tile %a, `other` with a tile %b."""
    return f"""builtin.module {{
  tt.func public @k(%x: !tt.ptr<i32>, %y: !tt.ptr<i32>, %K: i32, %P: i32) attributes {{noinline = false}} {{
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c7 = arith.constant 7 : i32
    %c8 = arith.constant 8 : i32
    %zeros = arith.constant dense<0> : tensor<8xi32>
    %threes = arith.constant dense<3> : tensor<8xi32>
    %lanes = tt.make_range {{start = 0 : i32, end = 8 : i32}} : tensor<8xi32>
    %more = arith.addi %K, %c7 : i32
    %steps = arith.divsi %more, %c8 : i32
    %out = tt.splat %y : !tt.ptr<i32> -> tensor<8x!tt.ptr<i32>>
    %to = tt.addptr %out, %lanes : tensor<8x!tt.ptr<i32>>, tensor<8xi32>
    %total = scf.for %k = %c0 to %steps step %c1 iter_args(%sum = %zeros) -> (tensor<8xi32>) : i32 {{
      %first = arith.muli %k, %c8 : i32
      %end = arith.addi %first, %c8 : i32
      %from = tt.addptr %x, %first : !tt.ptr<i32>, i32
      %base = tt.splat %from : !tt.ptr<i32> -> tensor<8x!tt.ptr<i32>>
      %at = tt.addptr %base, %lanes : tensor<8x!tt.ptr<i32>>, tensor<8xi32>
      {condition}
      %tile = scf.if %go -> (tensor<8xi32>) {{
        {one}{YIELDS.format("%a")}
      }} else {{
        {other}{YIELDS.format("%b")}
      }}
      %next = arith.addi %sum, %tile : tensor<8xi32>
      scf.yield %next : tensor<8xi32>
    }}
    tt.store %to, %total : tensor<8x!tt.ptr<i32>>
    tt.return
  }}
}}
"""


def swapped(text: str) -> str:
    """An arm of the other place."""
    return text.replace("%a =", "%c =").replace("%b =", "%a =").replace("%c =", "%b =")


STEP = kernel(BELOW_LAST, WHOLE, MASKED)
PROVED = {
    "below the last step": STEP,
    "the last step": kernel(BELOW_LAST.replace("slt", "eq"), swapped(MASKED), swapped(WHOLE)),
    "not the last step": kernel(BELOW_LAST.replace("slt", "ne"), WHOLE, MASKED),
    "a whole step is left": kernel("%go = arith.cmpi sle, %end, %K : i32", WHOLE, MASKED),
    "no whole step is left": kernel("%go = arith.cmpi sgt, %end, %K : i32", swapped(MASKED), swapped(WHOLE)),
    "two conditions": kernel(
        BELOW_LAST.replace("%go", "%low")
        + "\n      %odd = arith.cmpi ne, %k, %P : i32\n      %go = arith.andi %low, %odd : i1",
        WHOLE,
        MASKED,
    ),
    "masks that share a condition": kernel(
        BELOW_LAST
        + """
      %limit = tt.splat %P : i32 -> tensor<8xi32>
      %low = arith.cmpi slt, %lanes, %limit : tensor<8xi32>""",
        "%a = tt.load %at, %low, %zeros : tensor<8x!tt.ptr<i32>>",
        MASK.format(n="")
        + "%both = arith.andi %inside, %low : tensor<8xi1>\n        %b = tt.load %at, %both, %zeros : tensor<8x!tt.ptr<i32>>",
    ),
}
CHOSEN = {
    "at most the last step": kernel(BELOW_LAST.replace("slt", "sle"), WHOLE, MASKED),
    "a condition of its own": kernel("%go = arith.cmpi slt, %k, %P : i32", WHOLE, MASKED),
    "the other arm": kernel("%go = arith.cmpi sge, %k, %P : i32", swapped(MASKED), swapped(WHOLE)),
    "two masks": kernel(
        "%go = arith.cmpi slt, %k, %P : i32",
        "%some = arith.cmpi slt, %lanes, %threes : tensor<8xi32>\n        %a = tt.load %at, %some, %zeros : tensor<8x!tt.ptr<i32>>",
        MASKED,
    ),
}
SUM = "%far = arith.addi %lanes, %threes : tensor<8xi32>\n        "
ALIKE = {
    "equal results": kernel(
        BELOW_LAST,
        SUM + "%a = arith.remsi %far, %threes : tensor<8xi32>",
        SUM + "%b = arith.remsi %far, %threes : tensor<8xi32>",
    ),
    "values from outside": kernel(BELOW_LAST, "", "")
    .replace("yield %a", "yield %lanes")
    .replace("yield %b", "yield %lanes"),
}
"""Arms without loads that give the same."""

STAYS = {
    "other results": kernel(
        BELOW_LAST,
        "%a = arith.remsi %lanes, %threes : tensor<8xi32>",
        "%b = arith.divsi %lanes, %threes : tensor<8xi32>",
    ),
    "a store": kernel(BELOW_LAST, "tt.store %to, %sum : tensor<8x!tt.ptr<i32>>\n        " + WHOLE, MASKED),
    "other fills": kernel(
        BELOW_LAST,
        MASK.format(n="2") + "%a = tt.load %at, %inside2, %threes : tensor<8x!tt.ptr<i32>>",
        MASKED,
    ),
    "other pointers": kernel(BELOW_LAST, WHOLE.replace("%at", "%to"), MASKED),
    "a volatile load": kernel(BELOW_LAST, WHOLE.replace("%at", "%at {isVolatile = true}"), MASKED),
    "one load": kernel(BELOW_LAST, WHOLE, "%b = arith.addi %lanes, %lanes : tensor<8xi32>"),
    "a mask that divides": kernel(
        BELOW_LAST,
        WHOLE,
        MASKED.replace("%left = arith.subi %K, %first", "%left = arith.divsi %K, %P"),
    ),
}


def loads(text: str) -> tuple[list[LoadOp], list[scf.IfOp]]:
    module = parse_ir(text)
    join_arms(module)
    module.verify()
    found = [op for op in module.walk() if isinstance(op, LoadOp)]
    return found, [op for op in module.walk() if isinstance(op, scf.IfOp)]


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "join-arms", parse_ir(STEP))


@pytest.mark.parametrize("form", ALIKE)
def test_arms_that_give_the_same_are_no_branch(form: str) -> None:
    found, branches = loads(ALIKE[form])
    assert not found and not branches


@pytest.mark.parametrize("form", PROVED)
def test_one_mask_that_both_arms_may_have(form: str) -> None:
    (load,), branches = loads(PROVED[form])
    assert not branches and load.mask is not None and load.other is not None
    assert "arith.ori" not in str(load.mask.owner)


@pytest.mark.parametrize("form", CHOSEN)
def test_masks_that_are_chosen(form: str) -> None:
    (load,), branches = loads(CHOSEN[form])
    assert not branches and load.mask is not None
    assert "arith.ori" in str(load.mask.owner)


@pytest.mark.parametrize("form", STAYS)
def test_what_stays(form: str) -> None:
    module = parse_ir(STAYS[form])
    text = str(module)
    join_arms(module)
    assert str(module) == text


@pytest.mark.parametrize("form", PROVED | CHOSEN)
@pytest.mark.parametrize("k", [0, 1, 7, 8, 9, 16, 24, 29, 64])
def test_kernels_keep_their_results(rng: np.random.Generator, form: str, k: int) -> None:
    """Memory ends with the numbers, unless the kernel itself reads beyond them. The interpreter rejects reads outside."""
    text = (PROVED | CHOSEN)[form]
    x = rng.integers(-99, 100, k + 8 * (form in CHOSEN)).astype(np.int32)
    for limit in (-1, 0, 2, 5):
        found: list[np.ndarray] = []
        for joined in (False, True):
            module = parse_ir(text)
            if joined:
                join_arms(module)
            y = np.full(8, -1, np.int32)
            run_kernel(module, (1,), {"x": x if x.size else np.zeros(1, np.int32), "y": y, "K": k, "P": limit})
            found.append(y)
        np.testing.assert_array_equal(found[0], found[1])


def test_dots_behind_the_loads_are_joined_and_the_rest_stays() -> None:
    """Of two results only one is the same in both arms."""
    more = "{0}\n        %{1} = arith.muli %{2}, %threes : tensor<8xi32>"
    one, other = more.format(WHOLE, "p", "a"), more.format(MASKED, "q", "b")
    rest = "\n        %{0} = arith.{1} %{2}, %lanes : tensor<8xi32>"
    text = kernel(BELOW_LAST, one + rest.format("r", "addi", "p"), other + rest.format("s", "subi", "q"))
    text = text.replace(YIELDS.format("%a"), YIELDS.format("%r")).replace(YIELDS.format("%b"), YIELDS.format("%s"))
    (load,), (branch,) = loads(text)
    assert load.parent is branch.parent
    assert [op.name for region in branch.regions for op in region.block.ops] == [
        *("arith.addi", "scf.yield"),
        *("arith.subi", "scf.yield"),
    ]


def test_nested_branches_become_one_load() -> None:
    inner = f"""%a = scf.if %low -> (tensor<8xi32>) {{
          {WHOLE.replace("%a =", "%c =")}
          scf.yield %c : tensor<8xi32>
        }} else {{
          {MASK.format(n="2")}%d = tt.load %at, %inside2, %zeros : tensor<8x!tt.ptr<i32>>
          scf.yield %d : tensor<8xi32>
        }}"""
    condition = BELOW_LAST + "\n      %low = arith.cmpi sle, %end, %K : i32"
    (load,), branches = loads(kernel(condition, inner, MASKED))
    assert not branches and load.mask is not None
