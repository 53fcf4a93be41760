"""Arguments that are tuples: named element by element, nested as Triton takes them, and read as one kernel's arguments."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from louver.cli.commands.compile_kernel import KernelArguments
from louver.frontend.triton import triton_to_tile_ir
from louver.frontend.tuples import arrange
from louver.ir.interpret import run_kernel
from louver.ir.tile import FuncOp
from support.triton.tuples import TUPLES, tuple_source


def test_elements_are_nested_by_number() -> None:
    types = {"t.1.0": "i32", "x": "*fp16", "t.1.1": "constexpr", "t.0": "fp32", "t.2": "()", "t.3.0": "u1"}
    found = arrange(("x", "t"), types)
    assert found.types == {"x": "*fp16", "t": ("fp32", ("i32", "constexpr"), (), ("u1",))}
    assert found.paths == {"x": (0,), "t.0": (1, 0), "t.1.0": (1, 1, 0), "t.1.1": (1, 1, 1), "t.3.0": (1, 3, 0)}
    assert found.passed == ["x", "t.0", "t.1.0", "t.3.0"]


def test_fields_stand_in_their_order() -> None:
    found = arrange(("size",), {"size.rows": "i32", "size.depth.inner": "constexpr", "size.columns": "i64"})
    size: Any = found.types["size"]
    assert size._fields == ("rows", "depth", "columns") and size.depth.inner == "constexpr"
    assert found.paths == {"size.rows": (0, 0), "size.depth.inner": (0, 1, 0), "size.columns": (0, 2)}
    assert found.passed == ["size.rows", "size.columns"]


def test_eleven_elements_are_in_the_order_of_numbers() -> None:
    assert arrange(("t",), {f"t.{n}": f"i{n}" for n in range(11)}).types["t"] == tuple(f"i{n}" for n in range(11))


@pytest.mark.parametrize(
    ("types", "message"),
    [
        (
            {"t": "i32", "t.0": "i32"},
            "an argument is one value or a tuple of values, got 't.0' and a value for the tuple itself",
        ),
        ({"t.0": "i32", "t": "i32"}, "an argument is one value or a tuple of values, got 't' and elements of it"),
        ({"t.0": "i32", "t.2": "i32"}, "a tuple's elements are numbered 0, 1 and so on, got t.0, t.2"),
        ({"t.1.1": "i32", "t.0": "i32"}, "a tuple's elements are numbered 0, 1 and so on, got t.1.1"),
        ({"t.0": "i32", "t.x": "i32"}, "all numbered, or all named as fields of a named tuple, got t.0, t.x"),
        ({"t.": "i32"}, "all numbered, or all named as fields of a named tuple, got t."),
    ],
)
def test_elements_that_make_no_tuple_are_refused(types: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        arrange(("t",), types)


@pytest.fixture
def kernel() -> Any:
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'louver[triton]'")
    return TUPLES.function()


def _arguments(module: Any) -> list[str]:
    (function,) = (op for op in module.body.ops if isinstance(op, FuncOp))
    return list(function.argument_names.values())


@pytest.mark.parametrize("version", ["3.6", "3.9"])
def test_arguments_have_the_names_of_elements(version: str) -> None:
    module = tuple_source(version).tile_ir(TUPLES.signature, TUPLES.constexprs, TUPLES.sparse, "sm_90a")
    assert _arguments(module) == list(TUPLES.signature)


def test_every_triton_takes_tuples(kernel: Any) -> None:
    module = triton_to_tile_ir(kernel, TUPLES.signature, TUPLES.constexprs, sparse=TUPLES.sparse)
    assert _arguments(module) == list(TUPLES.signature)
    assert "%operands.0: !tt.ptr<f16> {louver.sparse.NV24 = 1 : i32}" in str(module)
    # A field that is compiled in says with its type where it stands among the others.
    fields = {
        **{name: type_ for name, type_ in TUPLES.signature.items() if not name.startswith("sizes")},
        "sizes.rows": "i32",
        "sizes.columns": "constexpr",
        "sizes.depth": "i32",
    }
    module = triton_to_tile_ir(kernel, fields, {**TUPLES.constexprs, "sizes.columns": 64})
    assert "sizes.columns" not in _arguments(module) and "sizes.depth" in _arguments(module)


def test_constants_of_inner_tuples_last_behind_a_loop(kernel: Any) -> None:
    from support.triton.tuple_kernels import constants_behind_a_loop

    signature = {"d": "*fp32", "n": "i32", "flags.0": "constexpr", "flags.1.0": "constexpr", "flags.1.1": "fp32"}
    module = triton_to_tile_ir(constants_behind_a_loop, signature, {"flags.0": None, "flags.1.0": 7})
    out = np.full(4, np.nan, np.float32)
    run_kernel(module, (1,), {"d": out, "n": 3, "flags.1.1": 0.5})
    assert out.tolist() == [1.0, 1.0, 1.0, 7.5]


def test_the_command_line_names_elements(kernel: Any) -> None:
    texts = [f"{name}={type_}" for name, type_ in TUPLES.signature.items()]
    constants = [f"{name}={value}" for name, value in TUPLES.constexprs.items()]
    given = KernelArguments.parse(texts, constants, ["operands.0=2:4"])
    module = triton_to_tile_ir(kernel, given.signature, given.constexprs, sparse=given.sparse)
    assert _arguments(module) == list(TUPLES.signature)


@pytest.mark.parametrize(
    ("types", "constants", "message"),
    [
        ({"scale.0": ""}, {}, "each argument is in the signature or among the constexprs, got 'scale' in neither"),
        ({"scale.0": "constexpr"}, {}, "each argument is in the signature or among the constexprs, got 'scale.0' in neither"),
        ({}, {"scale.0": 2}, "each argument is in the signature or among the constexprs, got 'scale.0' in both"),
        ({"shape.0": "i32"}, {}, "the kernel's arguments are d, operands, sizes, strides, scale, BM, BN, BK, got 'shape.0'"),
    ],
)  # fmt: skip
def test_elements_that_are_not_the_kernels_are_refused(
    kernel: Any, types: dict[str, str], constants: dict[str, int], message: str
) -> None:
    signature = {name: type_ for name, type_ in {**TUPLES.signature, **types}.items() if type_}
    with pytest.raises(ValueError, match=re.escape(message)):
        triton_to_tile_ir(kernel, signature, {**TUPLES.constexprs, **constants})
