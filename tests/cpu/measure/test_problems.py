from __future__ import annotations

import pytest

from louver.cli.commands.bench import problems
from louver.measure.host import problems as host_problems
from louver.measure.problems import PUBLISHED, SUITES, SUSTAINED, GemmProblem, parse_dtypes, parse_shapes


def test_the_compressed_weight_is_nine_sixteenths_of_a_dense_one() -> None:
    assert GemmProblem(64, 16, 128, "f16").compressed_bytes * 16 == 64 * 128 * 2 * 9


@pytest.mark.parametrize("dtype", ["e4m3", "s8"])
def test_a_compressed_8_bit_weight_has_five_bits_an_element(dtype: str) -> None:
    assert GemmProblem(64, 16, 96, dtype).compressed_bytes * 8 == 64 * 96 * 5


def test_a_compressed_f32_weight_has_a_code_for_two_elements() -> None:
    assert GemmProblem(64, 16, 96, "f32").compressed_bytes * 8 == 64 * 96 * (16 + 2)


@pytest.mark.parametrize(
    ("sizes", "dtype", "rule"),
    [
        ((0, 16, 16), "f16", "at least 1"),
        ((16, 16, 8), "f16", "multiples of 16"),
        ((16, 16, 16), "f64", "f16, bf16, e4m3, s8, f32"),
        ((16, 16, 12), "f32", "M and K are multiples of 8 for f32"),
        ((64, 16, 48), "e4m3", "M and K are multiples of 32 for e4m3"),
        ((48, 16, 64), "s8", "M and K are multiples of 32 for s8"),
    ],
)
def test_refuses_what_cannot_be_compared(sizes: tuple[int, int, int], dtype: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        GemmProblem(*sizes, dtype)


def test_results_have_a_type_that_libraries_write() -> None:
    assert [GemmProblem(32, 16, 32, dtype).out for dtype in ("f16", "bf16", "e4m3", "s8")] == [
        "f16",
        "bf16",
        "f16",
        "f16",
    ]
    assert str(GemmProblem(32, 16, 64, "s8", "s32")) == "32×16×64 s8→s32"
    for dtype, out in (("f16", "f32"), ("e4m3", "s32"), ("bf16", "f16")):
        with pytest.raises(ValueError, match=f"results of {dtype} are measured as .* got '{out}'"):
            GemmProblem(32, 16, 64, dtype, out)


def test_reads_lists() -> None:
    assert parse_shapes("16x32x64, 128x16x256") == ((16, 32, 64), (128, 16, 256))
    assert parse_dtypes("bf16, f16") == ("bf16", "f16")
    assert parse_dtypes("int8,e4m3, s8") == ("s8", "e4m3", "s8")


@pytest.mark.parametrize("text", ["", "16x32", "16x32x64x1", "16xax64", "16x-32x64", "16×32×64"])
def test_refuses_what_is_no_shape(text: str) -> None:
    with pytest.raises(ValueError, match="a shape is MxNxK"):
        parse_shapes(text)


def test_refuses_unknown_types() -> None:
    with pytest.raises(ValueError, match="got 'f64'"):
        parse_dtypes("f16,f64")


def test_integers_are_measured_with_either_result() -> None:
    found = [str(problem) for problem in problems("e4m3,int8", "32x16x64")]
    assert found == ["32×16×64 e4m3→f16", "32×16×64 s8→f16", "32×16×64 s8→s32"]
    assert [(p.dtype, p.out) for p in host_problems(("f16", "s8"))] == [("f16", "f16"), ("s8", "f16"), ("s8", "s32")]


def test_options_choose_problems() -> None:
    everything = problems("f16,bf16", None)
    assert [problem.shape for problem in everything] == [*PUBLISHED, *PUBLISHED]
    assert [str(problem) for problem in problems("bf16", "32x16x64")] == ["32×16×64 bf16"]
    assert tuple(problem.shape for problem in problems("f16", None, "quick")) == SUITES["quick"]
    assert set(SUSTAINED) <= set(PUBLISHED)
    with pytest.raises(ValueError, match="not both"):
        problems("f16", "32x16x64", "quick")


def test_tokens_are_counted_in_bytes_and_padded_for_those_who_ask() -> None:
    problem = GemmProblem(64, 3, 128, "e4m3")
    assert (problem.n, problem.padded_n) == (3, 16)
    assert problem.moved_bytes == problem.compressed_bytes + 3 * 128 + 3 * 64 * 2


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("dtype", ["f16", "e4m3", "int8", "f32"])
def test_every_shape_of_a_suite_is_measured(name: str, dtype: str) -> None:
    found = problems(dtype, None, name)
    assert {problem.shape for problem in found} == set(SUITES[name])


def test_a_suite_has_a_name() -> None:
    with pytest.raises(ValueError, match="suites are published, quick, models, tokens, uneven, got 'all'"):
        problems("f16", None, "all")
