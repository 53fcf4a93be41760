from __future__ import annotations

import pytest

from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import Problem, Tile


def test_a_problem_is_a_value() -> None:
    assert Problem(a="bf16", b="bf16") == Problem("matmul", "bf16", "bf16")
    assert len({Problem(), Problem(), Problem(bias="row")}) == 2


def test_layout_and_bias_follow() -> None:
    assert Problem("matmul").out_layout == "row_major"
    assert Problem("linear").out_layout == "transposed"


@pytest.mark.parametrize(
    ("a", "b", "out", "accumulate", "bias_element"),
    [
        ("bf16", "bf16", "f32", "f32", "bf16"),
        ("e4m3", "e5m2", "f16", "f32", "f16"),
        ("e5m2", "e4m3", "e4m3", "f32", "f32"),
        ("s8", "u8", "bf16", "s32", "s32"),
    ],
)
def test_what_is_left_out_follows_from_the_operands(
    a: str, b: str, out: str, accumulate: str, bias_element: str
) -> None:
    problem = Problem("linear", a, b, out, bias="row")
    assert (problem.accumulate, problem.bias_element) == (accumulate, bias_element)
    assert problem == Problem("linear", a, b, out, bias="row", accumulate=accumulate, bias_element=bias_element)


def test_a_bias_may_be_wider_than_the_operands() -> None:
    assert Problem("linear", bias="row", bias_element="f32").bias_element == "f32"
    assert Problem("linear", "e4m3", "e4m3", "f32", bias="row", bias_element="bf16").bias_element == "bf16"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "conv"}, "kind must be one of 'matmul', 'linear', got 'conv'"),
        ({"pattern": "5:4"}, "keeps 1 to M elements of a group, got 5:4"),
        ({"accumulate": "promoted"}, "accumulate must be one of 'auto', 'f32', 'f16', got 'promoted'"),
        ({"a": "bf16", "b": "bf16", "accumulate": "f16"}, "accumulate must be one of 'auto', 'f32', got 'f16'"),
        (
            {"a": "e4m3", "b": "e4m3", "accumulate": "s32"},
            "accumulate must be one of 'auto', 'f32', 'f16', 'fast', 'promoted', got 's32'",
        ),
        ({"b_layout": "m_major"}, "b_layout must be one of 'k_major', 'n_major', got 'm_major'"),
        ({"bias": "column"}, "bias must be one of None, 'row', got 'column'"),
        ({"out": "u8"}, "out must be one of 'f16', 'bf16', 'f32', 'e4m3', 'e5m2', 's8', got 'u8'"),
        ({"b": "bf16"}, "u4x2×u4x2, got f16×bf16: convert one operand"),
        ({"a": "e4m3", "b": "s8"}, "got e4m3×s8: convert one operand"),
        (
            {"a": "s8", "b": "s8", "out": "u8"},
            "out must be one of 's32', 'f16', 'bf16', 'f32', 'e4m3', 'e5m2', 's8', got 'u8'",
        ),
        ({"a": "s8", "b": "s8", "out": "s32", "epilogue": Epilogue(alpha=True)}, "cannot store s32"),
        (
            {"a": "s8", "b": "s8", "bias_element": "s32", "epilogue": Epilogue(alpha=True)},
            "'auto', 'f16', 'bf16', 'f32'",
        ),
        ({"a": "s8", "b": "s8", "accumulate": "f32"}, "accumulate must be one of 'auto', 's32', got 'f32'"),
        ({"a": "u8", "b": "s8", "bias_element": "f32"}, "bias_element must be one of 'auto', 's32', got 'f32'"),
        ({"a": "e4m3", "b": "e4m3", "bias_element": "e4m3"}, "'auto', 'f16', 'bf16', 'f32', got 'e4m3'"),
        ({"a": "e4m3", "b": "e5m2", "b_layout": "n_major"}, "N-major dense operand is f16 or bf16, got e5m2"),
    ],
)
def test_what_is_not_offered_is_refused(fields: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        Problem(**fields)  # pyright: ignore[reportArgumentType]
    assert message in str(caught.value)


def test_fast_is_another_name_for_what_hardware_makes_of_f32() -> None:
    fast, usual, promoted = (
        Problem("linear", "e4m3", "e4m3", accumulate=mode) for mode in ("fast", "auto", "promoted")
    )
    assert fast == usual and fast.accumulate == "f32"
    assert promoted != usual and (promoted.accumulator, promoted.sum) == ("f32", "f32")
    half = Problem("linear", accumulate="f16", bias="row")
    assert (half.accumulator, half.sum, half.bias_element) == ("f16", "f32", "f16")


@pytest.mark.parametrize("sizes", [(0, 8, 8), (8, -1, 8), (8, 8, 0)])
def test_tile_sizes_are_positive(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="tile sizes are at least 1"):
        Tile(*sizes)


def test_integer_sums_become_floats_where_steps_follow() -> None:
    plain, scaled = (
        Problem("linear", "s8", "s8", "f16", "2:4", bias="row", epilogue=e) for e in (Epilogue(), Epilogue(alpha=True))
    )
    assert (plain.sum, plain.bias_element) == ("s32", "s32")
    assert (scaled.sum, scaled.bias_element, scaled.accumulate) == ("f32", "f16", "s32")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scale": "column"}, "scale must be one of None, 'tensor', 'row', 'blocks', got 'column'"),
        ({"dense_scale": "row"}, "dense_scale must be one of None, 'tensor', 'column', 'blocks', got 'row'"),
        ({"dense_bias": "s32"}, "dense_bias must be one of None, 'f16', 'bf16', 'f32', got 's32'"),
        ({"c": "e4m3"}, "c must be one of None, 'f16', 'bf16', 'f32', got 'e4m3'"),
        ({"activation": "swish"}, "activation must be one of None, 'relu', 'gelu', 'gelu_tanh', 'silu', got 'swish'"),
        ({"out_scale": "row"}, "out_scale must be one of None, 'number', 'tensor', got 'row'"),
        ({"gated": True, "c": "f16"}, "a gated product takes no c"),
    ],
)
def test_what_an_epilogue_does_not_do_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        Epilogue(**fields)  # pyright: ignore[reportArgumentType]
    assert message in str(caught.value)
