"""Loads a step ahead: what a kernel computes is what it was, nothing is read that was not, and what cannot be ahead stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument

from louver.compile.plan.feeds.prefetch_loads import KEPT_BYTES, prefetch_loads
from louver.compile.plan.feeds.split_addresses import split_addresses
from louver.formats.tensor import SparseTensor
from louver.frontend.ttir import read_ttir
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel
from louver.ir.refusal import source_location
from louver.ir.tile import DotOp, LoadOp
from support.compiled import read_copy
from support.golden import Golden
from support.multiples import mark_arguments
from support.random_kernels import interpreted, numbers, random_kernel
from support.tile_passes import split_dense
from support.triton.tile_cases import kept_tiles
from support.triton.tile_runs import RUNS

P = "tensor<16x16x!tt.ptr<f16>>"
H = "tensor<16x16xf16>"
I = "tensor<16x16xi32>"  # noqa: E741
F = "tensor<16x16xf32>"

ROWS = f"""
  %r = tt.make_range {{start = 0 : i32, end = 16 : i32}} : tensor<16xi32>
  %down = tt.expand_dims %r {{axis = 1 : i32}} : tensor<16xi32> -> tensor<16x1xi32>
  %rows = tt.broadcast %down : tensor<16x1xi32> -> {I}
  %along = tt.expand_dims %r {{axis = 0 : i32}} : tensor<16xi32> -> tensor<1x16xi32>
  %columns = tt.broadcast %along : tensor<1x16xi32> -> {I}
  %pitch = tt.splat %K : i32 -> {I}
  %c16 = arith.constant 16 : i32
  %sixteen = arith.constant dense<16> : {I}
  %zeros = arith.constant dense<0.0> : {F}
  %none = arith.constant dense<0.0> : {H}
  %ones = arith.constant dense<1.0> : {H}
  %a0 = tt.splat %a : !tt.ptr<f16> -> {P}
  %b0 = tt.splat %b : !tt.ptr<f16> -> {P}
  %a1 = arith.muli %rows, %pitch : {I}
  %a2 = tt.addptr %a0, %a1 : {P}, {I}
  %b1 = tt.addptr %b0, %columns : {P}, {I}
  %a3 = tt.addptr %a2, %columns : {P}, {I}
  %b2 = arith.muli %rows, %sixteen : {I}
  %b3 = tt.addptr %b1, %b2 : {P}, {I}"""
"""Places in a, [16, K], and b, [K, 16]: a2 and b1 are at k = 0, a3 and b3 at the first 16 of K."""

PLACES = f"""
    %k0 = tt.splat %i : i32 -> {I}
    %ka = arith.addi %k0, %columns : {I}
    %kb = arith.addi %k0, %rows : {I}
    %pa = tt.addptr %a2, %ka : {P}, {I}
    %kp = arith.muli %kb, %sixteen : {I}
    %pb = tt.addptr %b1, %kp : {P}, {I}
    %in_a = arith.cmpi slt, %ka, %pitch : {I}
    %in_b = arith.cmpi slt, %kb, %pitch : {I}"""
"""In the loop: where this step's elements are, and whether they are inside."""

LOADS = f"""
    %x = tt.load %pa, %in_a, %none : {P}
    %y = tt.load %pb, %in_b, %none : {P}"""

DOT = f"    %t = tt.dot %x, %y, %s : {H} * {H} -> {F}"

STORE = f"""
  %o0 = tt.splat %out : !tt.ptr<f32> -> tensor<16x16x!tt.ptr<f32>>
  %o1 = arith.addi %b2, %columns : {I}
  %o2 = tt.addptr %o0, %o1 : tensor<16x16x!tt.ptr<f32>>, {I}
  tt.store %o2, %sum : tensor<16x16x!tt.ptr<f32>>"""

ARGUMENTS = "%out: !tt.ptr<f32>, %a: !tt.ptr<f16>, %b: !tt.ptr<f16>, %K: i32, %first: i32, %step: i32"


def kernel(
    *body: str, carried: tuple[tuple[str, str, str, str], ...] = (), arguments: str = "", end: str = "%K"
) -> str:
    """A loop that sums dots. carried: beside the sum, each a name, what it is at first, what it is next, and its type."""
    inits = ", ".join(["%s = %zeros", *(f"%{name} = {start}" for name, start, _, _ in carried)])
    types = ", ".join([F, *(type_ for *_, type_ in carried)])
    ends = ", ".join(["%t", *(following for _, _, following, _ in carried)])
    results = ", ".join(["%sum", *(f"%last_{name}" for name, *_ in carried)])
    lines = [
        f"builtin.module {{\ntt.func public @k({ARGUMENTS}{arguments}) attributes {{noinline = false}} {{{ROWS}",
        f"  {results} = scf.for %i = %first to {end} step %step iter_args({inits}) -> ({types}) : i32 {{",
        *body,
        f"    scf.yield {ends} : {types}\n  }}{STORE}\n  tt.return\n}}\n}}\n",
    ]
    return "\n".join(lines)


def taken(before: ModuleOp, after: ModuleOp) -> int:
    """The number of loads that are a step ahead."""
    return len(loads(after)) - len(loads(before))


def loads(module: ModuleOp) -> list[LoadOp]:
    return [op for op in module.walk() if isinstance(op, LoadOp)]


def both(text: str, warps: int = 4) -> tuple[ModuleOp, ModuleOp]:
    """The kernel before and after; the pass changes nothing when it is run again."""
    before = parse_ir(text)
    split_addresses(before)
    after = before.clone()
    prefetch_loads(after, warps)
    shown = str(after)
    assert str(parse_ir(shown)) == shown
    prefetch_loads(after, warps)
    assert str(after) == shown
    return before, after


def run(module: ModuleOp, k: int, first: int, step: int, **more: Any) -> np.ndarray:
    """The sums; every array ends where what may be read ends."""
    rng = np.random.default_rng(abs(k))
    a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((16, max(k, 1)), (max(k, 1), 16)))
    out = np.full((16, 16), np.nan, np.float32)
    run_kernel(module, (1,), {"out": out, "a": a, "b": b, "K": k, "first": first, "step": step, **more})
    assert np.isfinite(out).all()
    return out


MOVED = f"    %next_a = tt.addptr %p, %sixteen : {P}, {I}\n    %next_b = tt.addptr %q, %far : {P}, {I}"
WALK = (("p", "%a3", "%next_a", P), ("q", "%b3", "%next_b", P))
FAR = f"    %far = arith.constant dense<256> : {I}"
LEFT = f"""
    %rest = arith.subi %K, %i : i32
    %left = tt.splat %rest : i32 -> {I}
    %in_a = arith.cmpi slt, %columns, %left : {I}
    %in_b = arith.cmpi slt, %rows, %left : {I}"""

TAKEN = {
    "masks and others": (kernel(PLACES, LOADS, DOT), 2),
    "masks alone": (
        kernel(PLACES, f"    %x = tt.load %pa, %in_a : {P}\n    %y = tt.load %pb, %in_b : {P}", DOT), 2,
    ),
    "carried pointers": (
        kernel(FAR, LEFT, f"    %x = tt.load %p, %in_a, %none : {P}\n    %y = tt.load %q, %in_b, %none : {P}", DOT, MOVED, carried=WALK),
        2,
    ),
    "pointers moved before their loads": (
        kernel(
            FAR, LEFT, MOVED, f"    %x = tt.load %p, %in_a, %none : {P}\n    %y = tt.load %q, %in_b, %none : {P}", DOT,
            f"    %u = arith.extf %y : {H} to {F}", carried=(*WALK, ("v", "%zeros", "%u", F)),
        ), 2,
    ),
    "changed operands": (
        kernel(
            PLACES, f"    %x0 = tt.load %pa, %in_a, %none : {P}\n    %y0 = tt.load %pb, %in_b, %none : {P}",
            f"    %x = arith.addf %x0, %ones : {H}\n    %y = arith.mulf %y0, %ones : {H}", DOT,
        ), 2,
    ),
    "two dots": (
        kernel(
            PLACES, LOADS, f"    %h = tt.dot %x, %y, %s : {H} * {H} -> {F}\n    %t = tt.dot %y, %x, %h : {H} * {H} -> {F}"
        ), 2,
    ),
    "offsets by turns": (
        kernel(
            PLACES, f"    %l = tt.splat %turn : i32 -> {I}\n    %pt = tt.addptr %pa, %l : {P}, {I}",
            f"    %x = tt.load %pt, %in_a, %none : {P}\n    %y = tt.load %pb, %in_b, %none : {P}", DOT,
            carried=(("turn", "%zero", "%other", "i32"), ("other", "%zero", "%turn", "i32")),
        ).replace("  %c16 =", "  %zero = arith.constant 0 : i32\n  %c16 ="), 2,
    ),
    "a bias stays": (
        kernel(
            PLACES, LOADS, f"    %t0 = tt.dot %x, %y, %s : {H} * {H} -> {F}",
            f"    %z = tt.load %pb, %in_b, %none : {P}\n    %w = arith.extf %z : {H} to {F}\n    %t = arith.addf %t0, %w : {F}",
        ), 2,
    ),
    "a quotient by a constant": (
        kernel(
            PLACES, f"    %half = arith.divsi %k0, %sixteen : {I}\n    %same = arith.muli %half, %sixteen : {I}",
            f"    %pt0 = tt.addptr %a2, %same : {P}, {I}\n    %pt = tt.addptr %pt0, %columns : {P}, {I}",
            f"    %x = tt.load %pt, %in_a, %none : {P}\n    %y = tt.load %pb, %in_b, %none : {P}", DOT,
        ), 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", TAKEN)
def test_sums_are_what_they_were(form: str) -> None:
    text, count = TAKEN[form]
    before, after = both(text)
    assert taken(before, after) == count
    # Without others, what a mask leaves out is undefined.
    for k in (0, 16, 32, 112) if "alone" in form else (0, 1, 15, 16, 17, 32, 33, 100):
        np.testing.assert_array_equal(run(after, k, 0, 16), run(before, k, 0, 16), err_msg=str(k))
    for first, step in ((16, 16), (48, 16), (200, 16), (0, 32), (0, 7), (3, 1)):
        if "alone" not in form and "pointers" not in form:
            np.testing.assert_array_equal(run(after, 50, first, step), run(before, 50, first, step))


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("summed", [True, False])
def test_operands_of_products_that_each_step_stores(apart: bool, summed: bool) -> None:
    """They move where the store changes no operand. A warp waits for its products, so sums that are carried on keep none."""
    store = STORE.replace("%sum", "%t").replace("%o0", "%u0").replace("%o1", "%u1").replace("%o2", "%u2")
    text = kernel(PLACES, LOADS, DOT if summed else DOT.replace("%s :", "%zeros :"), store)
    text = text.replace("%out: !tt.ptr<f32>", "%out: !tt.ptr<f32> {louver.apart}") if apart else text
    before, after = both(text)
    assert taken(before, after) == (2 if apart else 0)
    for k in (0, 1, 16, 33):
        np.testing.assert_array_equal(run(after, k, 0, 16), run(before, k, 0, 16), err_msg=str(k))


def test_sums_are_those_of_the_matrices() -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((16, 90), (90, 16)))
    out = np.full((16, 16), np.nan, np.float32)
    _, after = both(kernel(PLACES, LOADS, DOT))
    run_kernel(after, (1,), {"out": out, "a": a, "b": b, "K": 90, "first": 0, "step": 16})
    np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32))


def test_nothing_is_read_beyond_the_end() -> None:
    """Loads without masks of arrays that end with the last step, and of a loop that does not run."""
    text = kernel(PLACES, f"    %x = tt.load %pa : {P}\n    %y = tt.load %pb : {P}", DOT)
    before, after = both(text)
    assert taken(before, after) == 2
    for k in (0, 16, 32, 80):
        np.testing.assert_array_equal(run(after, k, 0, 16), run(before, k, 0, 16), err_msg=str(k))
    for k, first in ((16, 16), (16, 48), (0, 1 << 30)):
        assert not run(after, k, first, 16).any()


LAST = 2**31 - 1


@pytest.mark.parametrize(
    ("first", "end", "step"),
    [
        (LAST - 40, LAST, 16),
        (LAST - 1, LAST, 1),
        (LAST - 16, LAST, LAST),
        (-(2**31), LAST, 2**30),
        (-(2**31), LAST, LAST),
        (-(2**31), -(2**31) + 33, 16),
        (-40, 1, 16),
        (LAST, -(2**31), 16),
    ],
)
def test_numbers_near_their_ends(first: int, end: int, step: int) -> None:
    """The step is counted by what the loop carries: the next number may wrap, or be large, and the loop ends as it did."""
    body = f"""
    %x = tt.load %p : {P}
    %y = tt.load %q : {P}
{FAR}
{MOVED}"""
    text = kernel(body, DOT, carried=WALK, arguments=", %end: i32", end="%end")
    before, after = both(text)
    assert taken(before, after) == 2
    steps = len(range(first, end, step))
    found = [run(module, 16 * steps, first, step, end=end) for module in (before, after)]
    np.testing.assert_array_equal(*found)


GATHER = f"""
    %ia0 = tt.splat %at : !tt.ptr<i32> -> tensor<16x16x!tt.ptr<i32>>
    %ia1 = tt.addptr %ia0, %ka : tensor<16x16x!tt.ptr<i32>>, {I}
    %index = tt.load %ia1, %in_a : tensor<16x16x!tt.ptr<i32>>
    %pg = tt.addptr %a2, %index : {P}, {I}
    %x = tt.load %pg, %in_a, %none : {P}
    %y = tt.load %pb, %in_b, %none : {P}"""

# fmt: off
BRANCH = kernel(
        PLACES, LOADS, f"    %t0 = tt.dot %x, %y, %s : {H} * {H} -> {F}\n    %more = arith.cmpi slt, %i, %K : i32",
        f"    %t = scf.if %more -> ({F}) {{\n      scf.yield %t0 : {F}\n    }} else {{\n      scf.yield %s : {F}\n    }}",
    )
# fmt: on

STAYS = {
    "a store": kernel(PLACES, LOADS, DOT, STORE.replace("%sum", "%t").replace("%o0", "%u0").replace("%o1", "%u1").replace("%o2", "%u2")),
    "an atomic sum": kernel(
        PLACES, LOADS, DOT,
        "    %yes = arith.constant true\n    %one = arith.constant 1.0 : f32\n"
        "    %old = tt.atomic_rmw fadd, acq_rel, gpu, %out, %one, %yes : (!tt.ptr<f32>, f32, i1) -> f32",
    ),
    "a volatile load": kernel(PLACES, LOADS.replace("%none :", "%none {isVolatile = true} :", 1), DOT),
    "no dot": kernel(PLACES, LOADS, f"    %w = arith.addf %x, %y : {H}\n    %u = arith.extf %w : {H} to {F}\n    %t = arith.addf %u, %s : {F}"),
    "pointers that the sums decide": kernel(
        PLACES, f"    %l = tt.splat %turn : i32 -> {I}\n    %pt = tt.addptr %pa, %l : {P}, {I}",
        f"    %x = tt.load %pt, %in_a, %none : {P}\n    %pu = tt.addptr %pb, %l : {P}, {I}\n    %y = tt.load %pu, %in_b, %none : {P}", DOT,
        f"    %top = \"tt.reduce\"(%t) <{{axis = 0 : i32}}> ({{\n    ^bb0(%m: f32, %n: f32):\n      %mn = arith.maximumf %m, %n : f32\n"
        f"      tt.reduce.return %mn : f32\n    }}) : ({F}) -> tensor<16xf32>",
        "    %most = \"tt.reduce\"(%top) <{axis = 0 : i32}> ({\n    ^bb1(%m1: f32, %n1: f32):\n      %mx = arith.maximumf %m1, %n1 : f32\n"
        "      tt.reduce.return %mx : f32\n    }) : (tensor<16xf32>) -> f32",
        "    %whole = arith.fptosi %most : f32 to i32\n    %next = arith.subi %whole, %whole : i32",
        carried=(("turn", "%zero", "%next", "i32"),),
    ).replace("  %c16 =", "  %zero = arith.constant 0 : i32\n  %c16 ="),
    "operands that wait for a reduction": kernel(
        PLACES, LOADS.replace("%x", "%x0").replace("%y", "%y0"),
        *(f"    %{v}1 = \"tt.reduce\"(%{v}0) <{{axis = 1 : i32}}> ({{\n    ^bb{n}(%m{v}: f16, %n{v}: f16):\n      %o{v} = arith.maximumf %m{v}, %n{v} : f16\n"
          f"      tt.reduce.return %o{v} : f16\n    }}) : ({H}) -> tensor<16xf16>\n    %{v}2 = tt.expand_dims %{v}1 {{axis = 1 : i32}} : tensor<16xf16> -> tensor<16x1xf16>\n"
          f"    %{v}3 = tt.broadcast %{v}2 : tensor<16x1xf16> -> {H}\n    %{v} = arith.subf %{v}0, %{v}3 : {H}" for n, v in enumerate("xy")), DOT,
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", STAYS)
def test_loops_that_stay_as_they_are(form: str) -> None:
    before = parse_ir(STAYS[form])
    split_addresses(before)
    after = before.clone()
    prefetch_loads(after, 4)
    assert str(after) == str(before)
    np.testing.assert_array_equal(run(after, 50, 0, 16), run(before, 50, 0, 16))


def test_a_branch_behind_the_dot_changes_nothing() -> None:
    before, after = both(BRANCH)
    assert taken(before, after) == 2
    for k in (0, 16, 50):
        np.testing.assert_array_equal(run(after, k, 0, 16), run(before, k, 0, 16))


def by_quotients(number: str) -> str:
    """The kernel with an address that has some number in it, less itself."""
    lines = "\n".join(f"    {line} : {I}" for line in (*number.splitlines(), "%z = arith.subi %v, %v"))
    return kernel(PLACES, lines, f"    %pv = tt.addptr %pa, %z : {P}, {I}", LOADS.replace("%pa", "%pv"), DOT)


@pytest.mark.parametrize("operation", ["divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi"])
def test_quotients_by_what_stays_the_same(operation: str) -> None:
    """K is 0 where the loop does not run: nothing is divided by it then."""
    before, after = both(by_quotients(f"%v = arith.{operation} %k0, %pitch"))
    assert taken(before, after) == 2
    for k in (0, 1, 50):
        np.testing.assert_array_equal(run(after, k, 0, 16), run(before, k, 0, 16))


SHIFT = "%one = arith.constant dense<1>\n%s0 = arith.shrsi %pitch, %one\n%s1 = arith.minsi %s0, %sixteen\n"


@pytest.mark.parametrize("operation", ["shli", "shrsi", "shrui"])
def test_shifts_by_what_stays_the_same(operation: str) -> None:
    before, after = both(by_quotients(f"{SHIFT}%v = arith.{operation} %k0, %s1"))
    assert taken(before, after) == 2
    for k, first in ((0, 0), (-200, 0), (50, 0)):
        np.testing.assert_array_equal(run(after, k, first, 16), run(before, k, first, 16))


@pytest.mark.parametrize(
    "number",
    [
        "%d = arith.subi %pitch, %k0\n%v = arith.divsi %k0, %d",
        "%d = arith.subi %pitch, %k0\n%v = arith.remui %k0, %d",
        "%d = arith.divsi %k0, %sixteen\n%v = arith.shrsi %k0, %d",
    ],
)
def test_quotients_that_need_not_exist_a_step_ahead_are_guarded(number: str) -> None:
    """A divisor is 0 at the loop's end, or a shift too large: nothing is computed of it there."""
    before, after = both(by_quotients(number))
    assert taken(before, after) == 2
    for k in (0, 16, 64, 70):
        np.testing.assert_array_equal(run(after, k, 0, 16), run(before, k, 0, 16))


def test_a_load_by_loaded_indices_stays() -> None:
    before, after = both(kernel(PLACES, GATHER, DOT, arguments=", %at: !tt.ptr<i32>"))
    assert taken(before, after) == 1, "b alone"
    for k in (0, 5, 16, 40):
        at = np.random.default_rng(k).permutation(max(k, 1)).astype(np.int32)
        np.testing.assert_array_equal(run(after, k, 0, 16, at=at), run(before, k, 0, 16, at=at))


def test_a_gather_by_carried_indices_is_ahead_when_the_indices_are() -> None:
    """The carried indices are loaded already: next pointers are known, though the indices after them are not."""
    body = f"""
    %x = tt.load %p, %in_a, %none : {P}
    %y = tt.load %pb, %in_b, %none : {P}
    %next_a = tt.addptr %p, %index : {P}, {I}
    %ia0 = tt.splat %at : !tt.ptr<i32> -> tensor<16x16x!tt.ptr<i32>>
    %ia1 = tt.addptr %ia0, %kb : tensor<16x16x!tt.ptr<i32>>, {I}
    %next_index = tt.load %ia1, %in_b, %sixteen : tensor<16x16x!tt.ptr<i32>>"""
    carried = (("p", "%a3", "%next_a", P), ("index", "%sixteen", "%next_index", I))
    before, after = both(kernel(PLACES, body, DOT, carried=carried, arguments=", %at: !tt.ptr<i32>"))
    assert taken(before, after) == 2
    for k in (0, 16, 48):
        at = np.full(max(k, 1), 16, np.int32)
        np.testing.assert_array_equal(run(after, k, 0, 16, at=at), run(before, k, 0, 16, at=at))


def test_the_inner_one_of_two_loops() -> None:
    text = kernel(PLACES, LOADS, DOT)
    head = "  %sum = scf.for %i"
    outer = (
        "  %o = arith.constant 0 : i32\n  %three = arith.constant 3 : i32\n  %one = arith.constant 1 : i32\n"
        f"  %sum = scf.for %j = %o to %three step %one iter_args(%begin = %zeros) -> ({F}) : i32 {{\n  %inner = scf.for %i"
    )
    text = text.replace(head, outer).replace("iter_args(%s = %zeros)", "iter_args(%s = %begin)")
    text = text.replace(STORE, f"\n  scf.yield %inner : {F}\n  }}{STORE}")
    before, after = both(text)
    assert taken(before, after) == 2
    for k in (0, 1, 40):
        np.testing.assert_array_equal(run(after, k, 0, 16), run(before, k, 0, 16))


@pytest.mark.parametrize(("warps", "count"), [(1, 2), (2, 2)])
def test_two_tiles_of_a_warp_fit(warps: int, count: int) -> None:
    before, after = both(kernel(PLACES, LOADS, DOT), warps)
    assert taken(before, after) == count


def test_what_does_not_fit_stays_altogether() -> None:
    text = kernel(PLACES, LOADS, DOT)
    for size in ("16x16", "16xi32", "16x1x", "1x16x", "end = 16 "):
        text = text.replace(size, size.replace("16", "64"))
    sums, operands = 64 * 64 * 4, 2 * 64 * 64 * 2
    assert KEPT_BYTES * 32 * 2 < sums + operands <= KEPT_BYTES * 32 * 4
    for warps, count in ((2, 0), (4, 2)):
        before = parse_ir(text)
        after = before.clone()
        prefetch_loads(after, warps)
        assert taken(before, after) == count


def test_refusals_name_the_load() -> None:
    text = kernel(PLACES, LOADS, DOT).replace(f"%in_b, %none : {P}", f'%in_b, %none : {P} loc("kernel.py":7:3)')
    module = read_ttir(text)
    prefetch_loads(module, 4)
    found = [source_location(op.location) for op in loads(module)]
    assert found.count("kernel.py:7:3") == 2
    hints = [op.result.name_hint for op in loads(module)]
    assert hints == ["x", "y", "x", "y"]


def test_before_and_after(golden: Golden) -> None:
    text, _ = TAKEN["carried pointers"]
    before, after = both(text)
    golden.check("prefetched/carried_pointers_before.mlir", str(before))
    golden.check("prefetched/carried_pointers_after.mlir", str(after))
    (dot,) = [op for op in after.walk() if isinstance(op, DotOp)]
    assert isinstance(dot.a, BlockArgument) and isinstance(dot.b, BlockArgument)
    assert len([op for op in after.walk() if isinstance(op, scf.ForOp)]) == 1


# --- kernels of Triton's, and random ones --------------------------------------------------------------------------
DENSE = ["dense_f16", "dense_f16_sum", "dense_bf16", "dense_tf32", "dense_e5m2", "dense_s8", "attention"]


@pytest.mark.parametrize("name", DENSE)
def test_kept_kernels(rng: np.random.Generator, name: str) -> None:
    arguments = RUNS[name](rng, name)
    # Operands of 8 bits go through shared memory where addresses are known to be multiples.
    before = split_dense(mark_arguments(read_copy(kept_tiles(name)), arguments.arguments))
    after = before.clone()
    prefetch_loads(after, 32)
    assert taken(before, after) == 2
    outputs: list[dict[str, np.ndarray]] = []
    for module in (before, after):
        given = {
            key: value.copy() if isinstance(value, np.ndarray) else value for key, value in arguments.arguments.items()
        }
        run_kernel(module, arguments.grid, given)
        outputs.append({key: given[key] for key in arguments.expected})
    for key in arguments.expected:
        np.testing.assert_array_equal(outputs[1][key], outputs[0][key])


@pytest.mark.sampled(7, every=4)
@pytest.mark.parametrize("seed", range(480))
def test_random_kernels(seed: int) -> None:
    """Sparse arguments are dense ones here: the interpreter does not multiply values and metadata."""
    kernel = random_kernel(seed)
    for name, value in kernel.arguments.items():
        if isinstance(value, SparseTensor):
            kernel.arguments[name] = value.dense()
    before = split_dense(read_ttir(kernel.text.replace(" {louver.sparse.NV24 = 1 : i32}", "")))
    after = before.clone()
    prefetch_loads(after, 4)
    assert taken(before, after) == (0 if kernel.choices["loop"] == "once" else len(loads_of_dots(before)))
    expected, found = (numbers(interpreted(module, kernel, kernel.grid)) for module in (before, after))
    np.testing.assert_array_equal(found, expected, err_msg=str(kernel.choices))


def loads_of_dots(module: ModuleOp) -> set[LoadOp]:
    """The loads that a random kernel multiplies, which are in its innermost loop."""
    (block,) = {op.parent_block() for op in module.walk() if isinstance(op, DotOp)}
    assert block is not None
    return {op for op in block.ops if isinstance(op, LoadOp)}
