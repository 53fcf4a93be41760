"""Comparisons and choices as steps of an epilogue: both ways through the table."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import f32
from xdsl.ir import Block

from louver.ir.comparisons import FLOAT_PREDICATES, CmpfOp, SelectOp
from louver.ir.elementwise import apply_step, choice_of
from louver.isa.elementwise import CHOICES

TRUTH = {
    "eq": np.equal, "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal, "ne": np.not_equal,
}  # fmt: skip


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_is_read_back(name: str) -> None:
    block = Block(arg_types=[f32] * 4)
    with ImplicitBuilder(block):
        select = apply_step(name, *block.args)
    assert isinstance(select, SelectOp) and isinstance(select.cond.owner, CmpfOp)
    assert choice_of(select.cond.owner, select) == (name, tuple(block.args))


@pytest.mark.parametrize(
    "predicate", [each for each in FLOAT_PREDICATES if each[1:] in TRUTH and each not in ("one", "ueq")]
)
def test_every_comparison_chooses_as_mlir_says(predicate: str) -> None:
    block = Block(arg_types=[f32] * 4)
    with ImplicitBuilder(block):
        comparison = CmpfOp(block.args[0], block.args[1], predicate)
        select = SelectOp(comparison.result, block.args[2], block.args[3])
    numbers = np.float32([-1.0, 0.0, 1.0, np.nan])
    a, b = (part.ravel() for part in np.meshgrid(numbers, numbers))
    x, y = np.full(a.shape, 1.0), np.full(a.shape, 2.0)
    either = np.isnan(a) | np.isnan(b)
    truth = np.where(either, predicate[0] == "u", TRUTH[predicate[1:]](a, b))
    found = choice_of(comparison, select)
    assert found is not None
    name, operands = found
    arrays = dict(zip(block.args, (a, b, x, y), strict=True))
    np.testing.assert_array_equal(
        CHOICES[name].meaning(*(arrays[operand] for operand in operands)), np.where(truth, x, y)
    )


@pytest.mark.parametrize("predicate", ["one", "ueq", "ord", "uno", "true", "false"])
def test_other_comparisons_are_no_choice(predicate: str) -> None:
    block = Block(arg_types=[f32] * 4)
    with ImplicitBuilder(block):
        comparison = CmpfOp(block.args[0], block.args[1], predicate)
        select = SelectOp(comparison.result, block.args[2], block.args[3])
    assert choice_of(comparison, select) is None
