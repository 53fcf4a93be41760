"""The table of kernels against what refuses and compiles: each of its cells, and each empty one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.choose.configure import choose
from louver.compile.pipeline import compile_product
from louver.formats.dtypes import element_type
from louver.formats.pattern import KERNELS, Operation, Pattern, has_kernels, kind_of, table, without_kernels
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import Problem
from louver.isa.targets import SM_90A

PATTERNS = {"2:4": "2:4", "1:2": "1:2", "N:M": "3:8", "N:M@L": "2:4@64", "V:N:M": "2:8@V64"}
"""A pattern of each kind."""

TYPES = KERNELS["prune and compress"]["2:4"]

CELLS = [(kind, element) for kind in PATTERNS for element in TYPES]


def problem(operation: Operation, pattern: str, element: str) -> Problem:
    epilogue = Epilogue(gated=True, activation="silu") if operation == "gated products" else Epilogue()
    layout: Any = "k_major" if pattern in ("2:4", "1:2") else "n_major"
    return Problem("linear", element, element, "f16", pattern=pattern, b_layout=layout, epilogue=epilogue)


def test_kinds() -> None:
    assert {kind: kind_of(Pattern.parse(pattern)) for kind, pattern in PATTERNS.items()} == {
        kind: kind for kind in PATTERNS
    }


@pytest.mark.parametrize("operation", ["products", "gated products"])
@pytest.mark.parametrize(("kind", "element"), CELLS)
def test_products_exist_where_the_table_says(operation: Operation, kind: str, element: str) -> None:
    pattern = PATTERNS[kind]
    if has_kernels(operation, pattern, element):
        given = problem(operation, pattern, element)
        assert compile_product(given, choose(given, 512, 64, SM_90A, 132, k=512)).ptx
    else:
        with pytest.raises(ValueError, match=rf"GPUs have {operation} of {kind} for .*, got {pattern} {element}"):
            problem(operation, pattern, element)


def test_the_rule_names_what_there_is() -> None:
    assert without_kernels("products", "2:8@V64", "f32") == (
        "GPUs have products of V:N:M for f16, bf16, e4m3, e5m2, s8, u8; and of f32 for 1:2, N:M, N:M@L, got 2:8@V64 f32"
    )
    assert without_kernels("register tiles", "3:8", "s8") == (
        "GPUs have register tiles of N:M for no type; and of s8 for 2:4, got 3:8 s8"
    )


@pytest.mark.parametrize(
    ("kind", "element"), [(kind, element) for kind, element in CELLS if element not in KERNELS["products"][kind]]
)
def test_the_host_computes_the_others_with_one_warning(rng: np.random.Generator, kind: str, element: str) -> None:
    pattern = PATTERNS[kind]
    w = rng.integers(0, 4, (64, 48)).astype(element_type(element).numpy)
    s, x = louver.compress(w, pattern, method="magnitude"), rng.integers(0, 4, (5, 48)).astype(w.dtype)
    with pytest.warns(louver.NoKernelWarning) as seen:
        y = louver.linear(x, s, out_dtype="f32")
        louver.linear(x, s, out_dtype="f32")
    (notice,) = seen
    assert f"by the reference path on the CPU: {without_kernels('products', pattern, element)}" == str(
        notice.message
    ).removeprefix("louver computes ")
    assert notice.filename == __file__
    np.testing.assert_array_equal(y, x.astype(np.float64) @ np.asarray(s.dense()).T.astype(np.float64))


def test_the_table_has_a_line_for_each_kind() -> None:
    first, *lines = table().splitlines()
    assert first.split("  ")[0] == "pattern" and [line.split()[0] for line in lines] == list(PATTERNS)
