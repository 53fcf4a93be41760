"""Indices that are their own number below a size: which are read, with which index and size."""

from __future__ import annotations

from typing import cast

import pytest

from louver.analysis.affine import Affine
from louver.analysis.atoms import Lane, Wrapped
from louver.ir.context import parse_ir
from louver.ir.polynomial import Polynomial
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile import FuncOp

KERNEL = """
tt.func public @kernel(%n: i32, %other: i32) {{
  %lane = tt.make_range {{end = 16 : i32, start = 0 : i32}} : tensor<16xi32>
  %block = arith.constant 16 : i32
  %one = arith.constant 1 : i32
  %zero = arith.constant dense<0> : tensor<16xi32>
  %least_size = arith.minsi %block, %n : i32
  %less = arith.subi {size}, %one : i32
  %size = tt.splat {size} : i32 -> tensor<16xi32>
  %last = tt.splat %less : i32 -> tensor<16xi32>
  %first = tt.splat %other : i32 -> tensor<16xi32>
  %moved = arith.addi %first, %lane : tensor<16xi32>
  {condition}
  %index = {index} : {type}
  tt.return
}}
"""

CHOICE = "tensor<16xi1>, tensor<16xi32>"


def read(index: str, condition: str = "", size: str = "%n", type_: str = "tensor<16xi32>") -> Polynomial:
    (function,) = parse_ir(KERNEL.format(index=index, condition=condition, size=size, type=type_)).body.ops
    (found,) = [
        op.results[0] for op in cast(FuncOp, function).body.walk() if op.results and op.results[0].name_hint == "index"
    ]
    return Affine().integer(found)


def wrapped(value: Polynomial) -> Wrapped:
    (atom,) = value.atoms
    assert isinstance(atom, Wrapped)
    return atom


def choice(predicate: str, one: str, other: str, *, of: str = "%lane, %last") -> Polynomial:
    compared = f"%true = arith.cmpi {predicate}, {one}, {other} : tensor<16xi32>"
    return read(f"arith.select %true, {of}", compared, type_=CHOICE)


FORMS = {
    "wraps": lambda: read("arith.remsi %lane, %size"),
    "least": lambda: read("arith.minsi %lane, %last"),
    "last": lambda: choice("slt", "%lane", "%size"),
    "zero": lambda: choice("slt", "%lane", "%size", of="%lane, %zero"),
    "at most": lambda: choice("sle", "%lane", "%last"),
    "above": lambda: choice("sgt", "%size", "%lane"),
    "at least": lambda: choice("sge", "%last", "%lane"),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_one_index_and_size(form: str) -> None:
    found = wrapped(FORMS[form]())
    assert found.index == Polynomial.atom(Lane(0))
    assert str(found.size).count("name_hint: n,") == 1 and len(found.size.terms) == 1


def test_a_minimum_that_the_shape_implies_is_no_size() -> None:
    found = wrapped(read("arith.remsi %lane, %size", size="%least_size"))
    assert "name_hint: n," in str(found.size)
    # The index may pass the tile's 16 rows.
    found = wrapped(read("arith.remsi %moved, %size", size="%least_size"))
    assert "minsi" in str(found.size)


@pytest.mark.parametrize(
    ("predicate", "one", "other", "of"),
    [
        ("slt", "%moved", "%size", "%lane, %last"),
        ("sgt", "%lane", "%size", "%lane, %last"),
        ("eq", "%lane", "%size", "%lane, %last"),
        ("slt", "%lane", "%size", "%last, %lane"),
        ("slt", "%lane", "%lane", "%lane, %last"),
    ],
)
def test_other_choices_are_no_indices(predicate: str, one: str, other: str, of: str) -> None:
    with pytest.raises(UnsupportedKernelError, match="offsets are ranges and scalars"):
        choice(predicate, one, other, of=of)
