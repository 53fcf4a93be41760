"""A sparse tile that anything but a dot takes is no operand of a product: refused at that operation; other kernels stay as they are."""

from __future__ import annotations

import pytest

from louver.compile.canonical.propagate_sparsity import propagate_sparsity, require_multiplied
from louver.ir.refusal import UnsupportedKernelError
from support.pass_golden import before
from support.triton.texts import changed

DOT = r"(%total_37 = tt.dot )%left_\d+"


def test_products_stay_as_they_are() -> None:
    module = before("require-multiplied", "grouped_pointers")
    text = str(module)
    require_multiplied(module)
    assert str(module) == text


def test_a_sparse_tile_that_is_computed_with_is_refused() -> None:
    module = changed(
        "whole_blocks",
        (r"    (%\w+) = tt.dot (%\w+)", r"    %twice = arith.addf \2, \2 : tensor<128x64xf16>\n    \1 = tt.dot %twice"),
    )
    propagate_sparsity(module)
    with pytest.raises(
        UnsupportedKernelError,
        match="a product may only multiply its sparse tile, as it was loaded, got",
    ) as caught:
        require_multiplied(module)
    assert caught.value.always
