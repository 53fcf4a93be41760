"""A call's arguments: bound as Python binds them, with the types that Triton gives them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
import pytest

import louver
from louver.frontend.tuples import arrange
from louver.ir.conditions import Conditions, DenseView, Reach, SparseView
from louver.library.compiled import from_json, to_json
from louver.user.arguments import bind, canonical, classify
from louver.user.bind_tiles import check_tiles
from louver.user.checked_call import MultipleError
from louver.user.descriptor import TensorDescriptor
from louver.user.hints import Hints
from louver.user.source import Parameter
from support.sizes import size, sizes

X, Y, N = Parameter("x"), Parameter("y"), Parameter("n", constexpr=True)


def types(*values: Any, parameters: tuple[Parameter, ...] | None = None) -> list[str]:
    """Triton's types of arguments; those that are compiled in as their values."""
    parameters = parameters or tuple(Parameter(f"p{number}") for number in range(len(values)))
    given = {parameter.name: value for parameter, value in zip(parameters, values, strict=True)}
    kind = classify(parameters, given).kind
    found = {**{name: repr(value) for name, value in kind.constexprs}, **dict(kind.signature)}
    return [found[name] for name in given]


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (np.zeros(3, np.float16), "*fp16"),
        (np.zeros((2, 3), np.int8), "*i8"),
        (np.zeros(3, "i4"), "*i32"),
        (0, "i32"),
        (2**31 - 1, "i32"),
        (2**31, "i64"),
        (-(2**63), "i64"),
        (2**63, "u64"),
        (np.int64(7), "i32"),
        (0.0, "fp32"),
        (1.0, "fp32"),
        (np.float32(2), "fp32"),
        (True, "u1"),
        (1, "1"),
        (np.int32(1), "1"),
        (None, "None"),
    ],
    ids=repr,
)
def test_types_are_triton_s(value: Any, type_: str) -> None:
    assert types(value) == [type_]


def test_annotated_numbers_have_the_type_that_is_written() -> None:
    assert types(1, parameters=(Parameter("x", type="i64"),)) == ["i64"]
    assert types(1, parameters=(Parameter("x", by_value=False),)) == ["i32"]


@pytest.mark.parametrize(
    ("parameter", "value", "ones"),
    [
        (Parameter("x", type="i64"), 1, ("x",)),
        (Parameter("x", type="i64"), 2, ()),
        (Parameter("x", type="i64", by_value=False), 1, ()),
        (Parameter("x", type="fp32"), 1, ()),
        (Parameter("x", type="u1"), True, ()),
    ],
)
def test_annotated_integers_that_are_1_are_compiled_in_with_their_type(
    parameter: Parameter, value: Any, ones: tuple[str, ...]
) -> None:
    kind = classify((parameter,), {"x": value}).kind
    assert kind.ones == kind.typed_ones == ones and not kind.constexprs and kind.signature == (("x", parameter.type),)
    assert not ones or (kind.without_one("x").signature == kind.signature and not kind.without_one("x").ones)


ANNOTATED = [("i32", 2**31), ("i32", -(2**31) - 1), ("i64", 2**63), ("u32", -1), ("i32", 2.5), ("i32", 2.0), ("u1", 2)]


@pytest.mark.parametrize(("type_", "value"), ANNOTATED)
def test_numbers_that_their_annotation_does_not_hold_are_refused(type_: str, value: Any) -> None:
    with pytest.raises(
        ValueError, match=f"the argument 'x': it is annotated as {type_}, an integer from .*got {value}"
    ):
        classify((Parameter("x", type=type_),), {"x": value})


@pytest.mark.parametrize(
    ("type_", "value"), [("i32", 2**31 - 1), ("i32", True), ("u1", True), ("u64", 2**64 - 1), ("fp32", 3)]
)
def test_numbers_that_their_annotation_holds(type_: str, value: Any) -> None:
    assert types(value, parameters=(Parameter("x", type=type_),)) == [type_]


class Pair(NamedTuple):
    """Two numbers."""

    rows: Any
    columns: Any


def test_tuples_are_their_elements(rng: np.random.Generator) -> None:
    s = louver.compress(louver.prune(rng.standard_normal((8, 16)).astype(np.float16), "2:4"), "2:4")
    array = np.zeros((4, 8), np.float32)
    constant = type("constexpr", (), {"value": "text"})()
    value = (s, (array, 1, 7), Pair(2**31, True), None, 1.0, (), TensorDescriptor.from_tensor(s, [8, 16]), constant)
    call = classify((X, Y), {"x": value, "y": ()})
    assert call.kind.signature == (
        ("x.0", "*fp16"),
        ("x.1.0", "*fp32"),
        ("x.1.1", "constexpr"),
        ("x.1.2", "i32"),
        ("x.2.rows", "i64"),
        ("x.2.columns", "u1"),
        ("x.3", "constexpr"),
        ("x.4", "fp32"),
        ("x.5", "()"),
        ("x.6", "tensordesc<fp16[8,16]>"),
        ("x.7", "constexpr"),
        ("y", "()"),
    )
    assert call.kind.constexprs == (("x.1.1", 1), ("x.3", None), ("x.7", "text"))
    assert call.kind.sparse == (("x.0", "2:4"), ("x.6", "2:4")) and call.kind.ones == ("x.1.1",)
    assert call.sparse == {"x.0": s, "x.6": s} and list(call.arrays) == ["x.1.0"]
    numbers = {"x.1.1": 1, "x.1.2": 7, "x.2.rows": 2**31, "x.2.columns": True, "x.4": 1.0}
    assert call.numbers == numbers | {"x.6.shape.0": 8, "x.6.shape.1": 16, "x.6.stride.0": 16, "x.6.stride.1": 1}
    assert call.given["x"] is value and call.held == {"x"}
    arranged = arrange(("x", "y"), dict(call.kind.signature))
    assert arranged.paths["x.2.columns"] == (0, 2, 1) and "x.1.1" not in arranged.passed
    freed = call.kind.without_one("x.1.1")
    assert freed.signature[2] == ("x.1.1", "i32") and freed.constexprs == call.kind.constexprs[1:] and not freed.ones


def test_tuples_of_different_fields_are_different_kernels() -> None:
    class Other(NamedTuple):
        columns: int
        rows: int

    kinds = [classify((X,), {"x": value}).kind.to_json() for value in ((2, 3), Pair(2, 3), Other(2, 3))]
    assert kinds[0] != kinds[1] != kinds[2] != kinds[0]


def test_tuples_of_parameters_that_take_none() -> None:
    assert types((2, (3, 1)), parameters=(Parameter("x", constexpr=True),)) == ["(2, (3, 1))"]
    assert classify((Parameter("x", by_value=False),), {"x": (1, 2)}).kind.signature == (("x.0", "i32"), ("x.1", "i32"))
    with pytest.raises(TypeError, match="the argument 'x': it is annotated as i64, a number, got a tuple"):
        classify((Parameter("x", type="i64"),), {"x": (1, 2)})


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ([2, 3], TypeError, "the argument 'x': several values must be passed as a tuple, got a list"),
        ((2, [3]), TypeError, "the argument 'x.1': several values must be passed as a tuple, got a list"),
        (
            Pair(1, {"a": 3}),
            TypeError,
            "the argument 'x.columns': several values must be passed as a tuple, got a dict",
        ),
        ((1, "text"), TypeError, "the argument 'x.1': expected an array"),
        (((2**64,),), ValueError, "the argument 'x.0.0': an integer has at most 64 bits, got 18446744073709551616"),
    ],
    ids=repr,
)
def test_elements_that_are_no_arguments_are_refused(value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        classify((X,), {"x": value})


def test_sparse_tensors_are_pointers_of_their_type_with_their_pattern(rng: np.random.Generator) -> None:
    s = louver.compress(louver.prune(rng.standard_normal((8, 16)).astype(np.float16), "2:4"), "2:4")
    call = classify((X, Y), {"x": s, "y": TensorDescriptor.from_tensor(s, [8, 16])})
    assert dict(call.kind.signature) == {"x": "*fp16", "y": "tensordesc<fp16[8,16]>"}
    assert dict(call.kind.sparse) == {"x": "2:4", "y": "2:4"}
    assert call.numbers == {"y.shape.0": 8, "y.shape.1": 16, "y.stride.0": 16, "y.stride.1": 1}


def test_a_tensor_that_is_sparse_along_another_axis_is_refused(rng: np.random.Generator) -> None:
    s = louver.compress(louver.prune(rng.standard_normal((16, 8, 8)).astype(np.float16), "2:4", axis=0), "2:4", axis=0)
    with pytest.raises(
        ValueError, match="the argument 'x': .* sparse along its last axis or the one before it, got axis 0"
    ):
        classify((X,), {"x": s})


def test_a_tensor_that_is_sparse_along_its_last_axis_but_one_brings_its_length(rng: np.random.Generator) -> None:
    s = louver.compress(louver.prune(rng.standard_normal((8, 16)).astype(np.float16), "2:4"), "2:4")
    call = classify((X,), {"x": s.T})
    assert dict(call.kind.sparse) == {"x": "2:4.T"} and call.numbers == {"x.K": 16}


def test_constants_of_different_types_are_different_kernels() -> None:
    values = [1, True, 1.0, "1", 0, -0.0, 0.0, False, None, (1,), (True,)]
    assert len({repr(canonical(value)) for value in values}) == len(values)


def test_what_is_no_constant_is_refused() -> None:
    with pytest.raises(TypeError, match="a constexpr is a number, .* got ndarray"):
        classify((N,), {"n": np.zeros(3)})


def test_what_is_no_array_is_refused_with_its_name() -> None:
    with pytest.raises(TypeError, match="the argument 'x': expected an array"):
        classify((X,), {"x": "text"})
    with pytest.raises(ValueError, match="the argument 'x': an integer has at most 64 bits"):
        classify((X,), {"x": 2**64})


BINDINGS = [
    ((1,), {"y": 2, "n": 3}, {"x": 1, "y": 2, "n": 3}),
    ((1, 2, 3), {}, {"x": 1, "y": 2, "n": 3}),
    ((), {"n": 3, "x": 1, "y": 2}, {"x": 1, "y": 2, "n": 3}),
    ((1, 2), {}, {"x": 1, "y": 2, "n": 64}),
]


@pytest.mark.parametrize(("args", "kwargs", "expected"), BINDINGS)
def test_arguments_are_bound_as_python_binds_them(args: Any, kwargs: Any, expected: dict[str, Any]) -> None:
    parameters = (X, Y, Parameter("n", constexpr=True, has_default=True, default=64))
    given, hints = bind("kernel", parameters, args, {**kwargs, "num_warps": 8})
    assert given == expected and list(given) == ["x", "y", "n"] and hints == {"num_warps": 8}


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((1, 2, 3, 4), {}, "kernel takes 3 arguments, got 4"),
        ((1, 2), {"x": 1}, "two values for the argument 'x'"),
        ((1,), {}, "kernel is missing y, n"),
    ],
)
def test_arguments_that_do_not_fit(args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        bind("kernel", (X, Y, N), args, kwargs)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stage": 4}, "hints are consumers, stages, .*num_warps, num_stages, .*family, got 'stage'"),
        ({"family": "product"}, "family is 'register tiles', got 'product': leave it out for Louver's choice"),
        ({"tile_m": 64}, "got 'tile_m'"),
        ({"num_warps": 3}, "num_warps is a power of 2, got 3"),
        ({"num_warps": 0}, "num_warps is a positive integer, got 0"),
        ({"num_stages": True}, "num_stages is a positive integer, got True"),
        ({"maxnreg": 0}, "maxnreg is a positive integer, got 0"),
        ({"ir_override": "kernel.ttir"}, "ir_override is None: .*own text, got 'kernel.ttir'"),
        ({"debug": True}, "debug is False: .*no asserts, got True: leave it out"),
        (
            {"launch_cooperative_grid": True},
            "launch_cooperative_grid is False: .*wait for each other, got True: leave it out",
        ),
    ],
)
def test_hints_that_there_are_not(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Hints.of(given)


def test_a_call_s_hints_come_before_the_kernel_s() -> None:
    hints = Hints.of({"stages": 4, "num_warps": 8}).updated({"stages": 3, "cluster": 2})
    assert dict(hints.schedule) == {"stages": 3, "cluster": 2} and hints.warps == 8


@pytest.mark.parametrize(
    ("shape", "strides", "block", "message"),
    [
        ((8, 16), (16,), (8, 16), "a size, a stride and a block size for each dimension"),
        ((), (), (), "a size, a stride and a block size"),
        ((8, 0), (16, 1), (8, 16), "sizes are positive"),
        ((8, 16), (1, 8), (8, 16), "last stride is 1, got 8"),
    ],
)
def test_descriptors_that_describe_nothing(shape: Any, strides: Any, block: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TensorDescriptor(np.zeros((8, 16), np.float16), shape, strides, block)


def test_descriptors_of_other_libraries_are_checked_too() -> None:
    class Foreign:
        base = np.zeros((8, 16), np.float16)
        shape, strides, block_shape, padding = [8, 16], [16, 1], [8, 16], "nan"

    with pytest.raises(ValueError, match="the argument 'x': .* got padding 'nan'"):
        classify((X,), {"x": Foreign()})
    Foreign.padding, Foreign.strides = "zero", [16, 2]
    with pytest.raises(ValueError, match="the argument 'x': .* last stride is 1, got 2"):
        classify((X,), {"x": Foreign()})


def view_of(columns: str, sizes: tuple[str | None, ...], strides: tuple[str, ...]) -> SparseView:
    return from_json(SparseView, {"argument": "x", "columns": columns, "sizes": sizes, "strides": strides})


def check_view(s: louver.SparseTensor, view: SparseView, **numbers: int) -> None:
    """Check a call of register tiles that describe the sparse argument x so."""
    call = classify((X, *map(Parameter, numbers)), {"x": s, **numbers})
    check_tiles("k", Conditions(views=(view,)), ["x"], call, (1,))


def sparse(rng: np.random.Generator, *shape: int) -> louver.SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal(shape).astype(np.float16), "2:4"), "2:4")


@pytest.mark.parametrize(
    ("pitch", "text"), [(32, "stride"), (8, "stride"), (16, "24"), (16, "2*stride"), (16, "stride/2")]
)
def test_register_tiles_take_rows_of_sparse_tensors_without_gaps(
    pitch: int, text: str, rng: np.random.Generator
) -> None:
    s = sparse(rng, 8, 16)
    with pytest.raises(ValueError, match="for 'x': rows are 16 elements apart, got a stride of"):
        check_view(s, view_of("16", (None,), (text,)), stride=pitch)
    check_view(s, view_of("16", (None,), ("16",)))
    check_view(s, view_of("16", (None,), ("2*stride",)), stride=8)


def test_the_stride_of_a_single_row_counts_where_it_is_its_length(rng: np.random.Generator) -> None:
    s = sparse(rng, 1, 16)
    check_view(s, view_of("16", (None,), ("stride",)), stride=8)
    with pytest.raises(ValueError, match="for 'x': rows are 16 elements apart, got a stride of 8"):
        check_view(s, view_of("stride", (None,), ("stride",)), stride=8)


@pytest.mark.parametrize("columns", [14, 20, 32])
def test_register_tiles_read_whole_groups_of_a_row(columns: int, rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match=f"reads rows of 'x', 16 elements, or whole groups of 4 .* got {columns}"):
        check_view(sparse(rng, 8, 16), view_of("n", (None,), ("16",)), n=columns)
    check_view(sparse(rng, 8, 16), view_of("n", (None,), ("16",)), n=12)


BATCHES = [
    ((None, "rows"), ("80", "16"), {"rows": 6}, "sizes of 'x', matrices of 5 rows at most, got 6"),
    ((None, "5"), ("step", "16"), {"step": 96}, "matrices are 80 elements apart, got a stride of 96"),
    ((None, "5"), ("80", "step"), {"step": 24}, "rows are 16 elements apart, got a stride of 24"),
    ((None,), ("16",), {}, "rows are then a multiple of 16 each, got 5: describe it in three dimensions"),
    ((None, "5", "5"), ("80", "80", "16"), {}, r"matrices of a batch, in 4 dimensions, got \[3, 5, 16\]"),
]


@pytest.mark.parametrize(("sizes", "strides", "numbers", "message"), BATCHES)
def test_register_tiles_find_the_matrices_of_a_sparse_batch(
    sizes: tuple[str | None, ...],
    strides: tuple[str, ...],
    numbers: dict[str, int],
    message: str,
    rng: np.random.Generator,
) -> None:
    with pytest.raises(ValueError, match=message):
        check_view(sparse(rng, 3, 5, 16), view_of("16", sizes, strides), **numbers)
    check_view(sparse(rng, 3, 5, 16), view_of("16", ("3", "5"), ("5*16", "16")))
    check_view(sparse(rng, 3, 32, 16), view_of("16", (None,), ("16",)))
    check_view(sparse(rng, 3, 5, 16), view_of("16", (None, "4"), ("80", "16")))


def test_strides_say_how_many_rows_a_matrix_of_a_sparse_batch_has(rng: np.random.Generator) -> None:
    s = sparse(rng, 3, 1, 16)
    check_view(s, view_of("16", (None, "1"), ("16", "16")))
    with pytest.raises(ValueError, match="for 'x': rows are 16 elements apart, got a stride of 1"):
        check_view(s, view_of("16", (None, "1"), ("16", "1")))


def reach_of(*counts: tuple[str, str]) -> Reach:
    """64 elements, and by step and number more for each count."""
    end = sum((size(step) * (size(count) - 1) for step, count in counts), size(64))
    return Reach("x", "columns", end, tuple(size(count) for _, count in counts))


def check_signature(s: louver.SparseTensor, grid: tuple[int, ...], reach: Reach | None, **numbers: int) -> None:
    call = classify((X, *map(Parameter, numbers)), {"x": s, **numbers})
    reaches = () if reach is None else (reach,)
    check_tiles("k", Conditions(reaches=reaches, multiples=(("first", 64),)), ["x"], call, grid)


@pytest.mark.parametrize(
    ("counts", "grid", "end"),
    [
        ((), (1,), 64),
        ((("64", "(K + 63)/64"),), (1,), 192),
        ((("64", "(K - 1)/64"),), (1,), 128),
        ((("64", "programs x"), ("128", "(K + 127)/128")), (2, 1), 256),
        ((("half", "programs y"),), (7, 3), 240),
        ((("64", "K/100"),), (1,), 64),
    ],
)
def test_what_nothing_masks_is_inside_of_a_row(
    counts: tuple[tuple[str, str], ...], grid: tuple[int, ...], end: int, rng: np.random.Generator
) -> None:
    numbers = {"K": 192, "half": 88, "first": 128}
    check_signature(sparse(rng, 4, end), grid, reach_of(*counts), **numbers)
    with pytest.raises(ValueError, match=rf"reads {end} elements of each row of 'x', which has {end - 4}: mask them"):
        check_signature(sparse(rng, 4, end - 4), grid, reach_of(*counts), **numbers)


def test_a_loop_without_an_iteration_reads_nothing(rng: np.random.Generator) -> None:
    reach = reach_of(("64", "K/200"), ("64", "programs x"))
    check_signature(sparse(rng, 4, 16), (9,), reach, K=192, first=64)


def test_arguments_where_sparse_tiles_begin_are_multiples(rng: np.random.Generator) -> None:
    check_signature(sparse(rng, 4, 16), (1,), None, first=64)
    with pytest.raises(ValueError, match="takes first in multiples of 64, got 32: .* sparse tiles begin with"):
        check_signature(sparse(rng, 4, 16), (1,), None, first=32)


def test_sizes_at_which_rows_wrap_are_whole_tiles(rng: np.random.Generator) -> None:
    def check(rows: int) -> None:
        call = classify((X, Parameter("N")), {"x": sparse(rng, abs(rows), 16), "N": rows})
        check_tiles("k", Conditions(whole_rows=((size("N/2"), 16),)), ["x"], call, (1,))

    check(64)
    with pytest.raises(
        MultipleError, match=r"k reads 16 rows .* wrap \(%\) at N/2, .* a multiple of 16, got 15"
    ) as error:
        check(30)
    with pytest.raises(MultipleError, match="a multiple of 16, got -32"):
        check(-64)
    # The kernel that computes addresses may run it.
    assert error.value.described


def test_matrices_below_each_other_are_a_batch(rng: np.random.Generator) -> None:
    check_view(sparse(rng, 96, 16), view_of("16", (None, "N"), ("N*16", "16")), N=48)
    check_view(sparse(rng, 96, 16), view_of("16", (None, "20"), ("N*16", "16")), N=48)
    with pytest.raises(ValueError, match="a multiple of 16 and divides 96, each of 16 elements, got a stride of 384"):
        check_view(sparse(rng, 96, 16), view_of("16", (None, "N"), ("N*16", "16")), N=24)
    with pytest.raises(ValueError, match=r"matrices of a batch, in 4 dimensions, got \[3, 5, 16\]"):
        check_view(sparse(rng, 3, 5, 16), view_of("16", (None, "N", "N"), ("N*N*16", "N*16", "16")), N=24)
    check_view(sparse(rng, 3, 5, 16), view_of("16", (None, "step/16"), ("step", "16")), step=80)
    with pytest.raises(ValueError, match="sizes of 'x', matrices of 5 rows at most, got 6"):
        check_view(sparse(rng, 3, 5, 16), view_of("16", (None, "other/16"), ("80", "16")), other=96)


def test_a_batch_of_one_matrix_has_any_stride(rng: np.random.Generator) -> None:
    view = view_of("16", ("E", "N"), ("apart", "16"))
    check_view(sparse(rng, 20, 16), view, E=1, N=20, apart=16)
    with pytest.raises(ValueError, match="each of 16 elements, got a stride of 16"):
        check_view(sparse(rng, 20, 16), view, E=2, N=10, apart=16)
    with pytest.raises(ValueError, match="sizes of 'x', matrices of 20 rows at most, got 21"):
        check_view(sparse(rng, 20, 16), view, E=1, N=21, apart=16)


def test_conditions_are_what_their_json_says() -> None:
    reach = reach_of(("64", "(K + 63)/64"), ("64", "programs z"))
    view = view_of("K", (None, "M"), ("M*K", "K"))
    dense = DenseView("d", sizes("M", "N"), sizes("N", "1"))
    taken = Conditions(multiples=(("first", 64),), reaches=(reach,), views=(view,), dense_views=(dense,))
    assert from_json(Conditions, json.loads(json.dumps(to_json(taken)))) == taken


def test_options_for_triton_alone() -> None:
    """They are kept for the dense kernel, which Triton compiles, and change nothing else."""
    given = {
        "num_ctas": 2,
        "maxnreg": 168,
        "launch_pdl": True,
        "launch_cooperative_grid": False,
        "enable_fp_fusion": True,
    }
    hints = Hints.of({**given, "maxnreg": None}).updated(given)
    assert dict(hints.triton) == given
    assert (hints.schedule, hints.own, hints.warps) == ((), (), None)
