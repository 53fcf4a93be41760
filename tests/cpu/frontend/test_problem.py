from __future__ import annotations

import pytest

from louver.frontend.problem import Problem, Tile


def test_a_problem_is_a_value() -> None:
    assert Problem(a="bf16", b="bf16") == Problem("matmul", "bf16", "bf16")
    assert len({Problem(), Problem(), Problem(bias="row")}) == 2


def test_layout_and_bias_follow() -> None:
    assert Problem("matmul").out_layout == "row_major"
    assert Problem("linear").out_layout == "transposed"
    assert Problem("linear", "bf16", "bf16", "f32", bias="row").bias_element == "bf16"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "conv"}, "kind must be one of 'matmul', 'linear', got 'conv'"),
        ({"pattern": "3:4"}, "pattern must be one of '2:4', got '3:4'"),
        ({"accumulate": "f16"}, "accumulate must be one of 'f32', got 'f16'"),
        ({"b_layout": "m_major"}, "b_layout must be one of 'k_major', 'n_major', got 'm_major'"),
        ({"bias": "column"}, "bias must be one of None, 'row', got 'column'"),
        ({"out": "s8"}, "out must be one of 'f16', 'bf16', 'f32', got 's8'"),
        ({"b": "bf16"}, "one of f16×f16, bf16×bf16, got f16×bf16: convert one operand"),
        ({"kind": "linear", "b_layout": "n_major"}, "linear takes tokens as [N, K] with K contiguous"),
    ],
)
def test_what_is_not_offered_is_refused(fields: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        Problem(**fields)  # pyright: ignore[reportArgumentType]
    assert message in str(caught.value)


@pytest.mark.parametrize("sizes", [(0, 8, 8), (8, -1, 8), (8, 8, 0)])
def test_tile_sizes_are_positive(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="tile sizes are at least 1"):
        Tile(*sizes)
