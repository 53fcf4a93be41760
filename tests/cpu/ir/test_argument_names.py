"""Names of a function's arguments: exact, through printing, parsing and copying, whatever xDSL makes of a hint."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.utils.exceptions import VerifyException

from louver.compile.canonical.canonicalize import canonicalize
from louver.compile.canonical.propagate_sparsity import propagate_sparsity
from louver.compile.plan.nest import read_nest
from louver.frontend.ttir import read_ttir
from louver.ir.context import parse_ir
from louver.ir.tile import FuncOp, ReturnOp
from louver.ir.tile.multiples import DIVISIBILITY, mark_multiples, multiples_of
from support.triton.cases import kept

NAMES = [
    ("alpha", "alpha_1", "alpha_2"),
    ("alpha_1", "alpha", "alpha_1_1"),
    ("x_0_1", "x_0", "x"),
    ("_1", "_1_2", "_"),
    ("π", "ñ", "π1"),
    ("a·b", "a_b", "é_1"),
    ("shape.0", "shape_0", "shape"),
]


def function_of(module: ModuleOp) -> FuncOp:
    (function,) = (op for op in module.body.ops if isinstance(op, FuncOp))
    return function


def names_of(module: ModuleOp) -> tuple[str, ...]:
    return tuple(function_of(module).argument_names.values())


@pytest.mark.parametrize("names", NAMES, ids=str)
def test_names_survive_copies_and_text(names: tuple[str, ...]) -> None:
    function = FuncOp.kernel("k", dict.fromkeys(names, f32))
    function.body.block.add_op(ReturnOp())
    module = ModuleOp([function])
    module.verify()
    for _ in range(3):
        assert names_of(module) == names
        module = parse_ir(str(module.clone().clone()))
    mark_multiples(function_of(module), {names[1]: 16})
    assert multiples_of(function_of(module)) == [1, 16, 1]


def test_text_says_a_name_only_where_its_value_is_called_otherwise() -> None:
    text = "tt.func public @k(%alpha: f32, %beta: f32, %alpha_1: f32 {tt.divisibility = 16 : i32}) {\ntt.return\n}"
    module = parse_ir(text)
    assert names_of(module) == ("alpha", "beta", "alpha_1")
    assert str(module).count("louver.name") == 1 and 'louver.name = "alpha_1"' in str(module)
    assert DIVISIBILITY in function_of(module).argument_attributes[2]


def test_values_without_names_are_numbered() -> None:
    module = parse_ir("tt.func public @k(%0: f32, %x: f32, %1: f32) {\ntt.return\n}")
    assert names_of(module) == ("arg0", "x", "arg2")


def test_two_arguments_of_one_name_are_refused() -> None:
    module = parse_ir("tt.func public @k(%0: f32, %x: f32) {\ntt.return\n}")
    function_of(module).name_arguments({0: "x"})
    with pytest.raises(VerifyException, match="arguments have one name each, got x, x"):
        module.verify()


def test_declarations_have_no_names() -> None:
    text = "tt.func private @f(f32, i32) -> f32\ntt.func private @g(%x: f32) -> (f32, f32) {\ntt.return %x, %x : f32, f32\n}"
    module = parse_ir(text)
    assert str(parse_ir(str(module))) == str(module) and "f(f32, i32) -> f32" in str(module)


def test_sparse_arguments_are_marked_by_their_exact_names() -> None:
    text = "tt.func public @k(%a: !tt.ptr<f16>, %a_1: !tt.ptr<f16>, %a_1_1: !tt.ptr<f16>) {\ntt.return\n}"
    module = read_ttir(text, sparse={"a_1": "2:4"})
    propagate_sparsity(module)
    assert ["sparse" in str(each) for each in function_of(module).body.block.arg_types] == [False, True, False]
    with pytest.raises(ValueError, match="a sparse argument is one of a, a_1, a_1_1, got 'a_2'"):
        read_ttir(text, sparse={"a_2": "2:4"})


def test_what_passes_add_takes_no_name_of_the_user_s() -> None:
    text = kept("gated_layer").replace("%stride_w", "%gate_up").replace('"stride_w"', '"gate_up"')
    nest = read_nest(canonicalize(read_ttir(text)))
    assert nest.a.argument == "gate_up'" and nest.a.gated == ("gate", "up") and str(nest.a.stride) == "gate_up"
