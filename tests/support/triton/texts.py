"""Kept texts with parts replaced: kernels that users might have written otherwise."""

from __future__ import annotations

import re

from xdsl.dialects.builtin import ModuleOp

from louver.compile.canonical.canonicalize import canonicalize
from louver.compile.plan.nest import read_nest
from louver.ir.product import ProductNest
from support.compiled import read_copy, remembered
from support.triton.cases import kept

ADDEND = (
    (
        r"%result = arith.truncf %total_39",
        "%c_first = tt.splat %d : !tt.ptr<f16> -> tensor<128x64x!tt.ptr<f16>>\n"
        "    %c_rows = arith.muli %c_stride, %c_row : tensor<128x1xi32>\n"
        "    %c_rows_all = tt.broadcast %c_rows : tensor<128x1xi32> -> tensor<128x64xi32>\n"
        "    %c_column = tt.expand_dims %n_read_17 {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>\n"
        "    %c_columns = tt.broadcast %c_column : tensor<1x64xi32> -> tensor<128x64xi32>\n"
        "    %c_at = arith.addi %c_rows_all, %c_columns : tensor<128x64xi32>\n"
        "    %c_ptrs = tt.addptr %c_first, %c_at : tensor<128x64x!tt.ptr<f16>>, tensor<128x64xi32>\n"
        "    %c_tile = tt.load %c_ptrs : tensor<128x64x!tt.ptr<f16>>\n"
        "    %c_wide = arith.extf %c_tile : tensor<128x64xf16> to tensor<128x64xf32>\n"
        "    %total_40 = arith.addf %total_39, %c_wide : tensor<128x64xf32>\n"
        "    %result = arith.truncf %total_40",
    ),
    (
        r"(    %total_37 = )",
        "    %c_row = tt.expand_dims %m_read_12 {axis = 1 : i32} : tensor<128xi32> -> tensor<128x1xi32>\n"
        "    %c_stride = tt.splat %stride_dm : i32 -> tensor<128x1xi32>\n" + r"\1",
    ),
)
"""Changes to `grouped_pointers` by which it adds what its output held before."""


def changed_text(name: str, *changes: tuple[str, str]) -> str:
    """The kept text of a case, after each first pattern (a regular expression that matches once) is replaced.

    New lines need no location: they get one of their own, kernel.py:1:0.
    """
    text = kept(name)
    for old, new in changes:
        assert len(re.findall(old, text)) == 1, (old, re.findall(old, text))
        text = re.sub(old, new, text)
    return text


def changed(name: str, *changes: tuple[str, str]) -> ModuleOp:
    """The kept text of a case, changed and read."""
    return read_copy(changed_text(name, *changes))


@remembered
def nest(name: str, *changes: tuple[str, str]) -> ProductNest:
    """The nest of the changed kernel."""
    return read_nest(canonicalize(changed(name, *changes)))
