"""Every option of a public function is obeyed or refused on the reference path. A new option needs a decision here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import louver
from louver.compile.plan.schedule import FIELDS
from louver.formats.tensor import SparseTensor
from louver.library.prepare import preparation
from louver.runtime.device import NoDeviceError
from louver.user.hints import GIVEN, TRITON, Hints
from support.jit import kept_kernel
from support.triton.cases import CASES

pytestmark = pytest.mark.filterwarnings("ignore:louver computes")

M, N, K = 24, 8, 32

OPERAND = "an operand"
SPEED = "decides about speed only"
"""Decisions that need no value."""


def vector(size: int, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


# Each value changes the result, and the check recomputes it: (option, expected of the plain float64 result [N, M]).
PRODUCT: Mapping[str, Any] = {
    "bias": (vector(M, 1), lambda y: y + vector(M, 1)),
    "dense_bias": (vector(N, 2), lambda y: y + vector(N, 2)[:, None]),
    "scale": (vector(M, 3), lambda y: y * vector(M, 3)),
    "dense_scale": (vector(N, 4), lambda y: y * vector(N, 4)[:, None]),
    "c": (vector(N * M, 5).reshape(N, M), lambda y: y + vector(N * M, 5).reshape(N, M)),
    "out_scale": (0.25, lambda y: y * 0.25),
    "alpha": (-3.0, lambda y: y * -3.0),
    "activation": ("relu", lambda y: np.maximum(y, 0)),
    "out_dtype": ("f16", lambda y: y.astype(np.float16)),
}
ELSEWHERE = {
    "beta": "test_beta_is_the_factor_of_c",
    "out": "test_out_is_written",
    "accumulate": "test_accumulate_is_obeyed_or_refused",
    "batch_invariant": "test_batch_invariant_results_do_not_depend_on_n",
}


@pytest.fixture
def s(rng: np.random.Generator) -> SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float32), "2:8"), "2:8")


@pytest.fixture
def x(rng: np.random.Generator) -> Any:
    return rng.standard_normal((N, K)).astype(np.float32)


def linear(x: Any, s: SparseTensor, **options: Any) -> Any:
    return louver.linear(x, s, **options)


def matmul_right(x: Any, s: SparseTensor, **options: Any) -> Any:
    return louver.matmul(x, s.T, **options)


def matmul_left(x: Any, s: SparseTensor, **options: Any) -> Any:
    if "c" in options:
        options["c"] = np.ascontiguousarray(options["c"].T)
    return louver.matmul(s, np.ascontiguousarray(x.T), **options).T


def planned(x: Any, s: SparseTensor, **options: Any) -> Any:
    if "c" in options:
        options["c"] = np.ascontiguousarray(options["c"].T)
    return louver.plan("matmul", s, n=N, **options)(np.ascontiguousarray(x.T)).T


def plan_call(x: Any, s: SparseTensor, **options: Any) -> Any:
    """Options of a plan that its calls replace."""
    if "c" in options:
        options["c"] = np.ascontiguousarray(options["c"].T)
    other = {name: -np.ones_like(value) if isinstance(value, np.ndarray) else 0.5 for name, value in options.items()}
    return louver.plan("matmul", s, n=N, **other)(np.ascontiguousarray(x.T), **options).T


ENTRIES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "linear": (linear, louver.linear),
    "matmul right": (matmul_right, louver.matmul),
    "matmul left": (matmul_left, louver.matmul),
    "plan": (planned, louver.plan),
    "plan's call": (plan_call, louver.Plan.__call__),
}
OPERANDS = {"x", "s", "a", "b", "self"}
OF_PLANS = {
    "kind": "test_plans_obey_or_refuse_their_own_options",
    "n": "test_plans_obey_or_refuse_their_own_options",
    "like": "test_plans_obey_or_refuse_their_own_options",
    "layout": "test_plans_obey_or_refuse_their_own_options",
    "batch": "test_plans_obey_or_refuse_their_own_options",
    "dependent": SPEED,
    "target": SPEED,
}


def options_of(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters) - OPERANDS


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_option_of_a_product_has_a_decision(entry: str) -> None:
    decided = PRODUCT.keys() | ELSEWHERE.keys() | (OF_PLANS.keys() if entry == "plan" else set())
    undecided = options_of(ENTRIES[entry][1]) - decided
    assert not undecided, f"{undecided}: obey or refuse them on the reference path too, and say how here"
    for name in (*ELSEWHERE.values(), *OF_PLANS.values()):
        assert name == SPEED or callable(globals()[name])


CASES_OF_OPTIONS = [(entry, name) for entry in ENTRIES for name in PRODUCT if name in options_of(ENTRIES[entry][1])]


@pytest.mark.parametrize(("entry", "name"), CASES_OF_OPTIONS)
def test_an_option_changes_the_result_as_it_says(s: SparseTensor, x: Any, entry: str, name: str) -> None:
    call, (value, expected) = ENTRIES[entry][0], PRODUCT[name]
    plain = x.astype(np.float64) @ np.asarray(s).astype(np.float64).T
    got = np.asarray(call(x, s, **{name: value}))
    assert not np.allclose(np.asarray(call(x, s)) if entry != "plan's call" else plain, got) or name == "out_dtype"
    np.testing.assert_allclose(got.astype(np.float64), expected(plain), rtol=2e-3, atol=2e-3)
    assert got.dtype == (np.float16 if name == "out_dtype" else np.float32)


@pytest.mark.parametrize("entry", ["linear", "matmul right", "matmul left", "plan", "plan's call"])
def test_beta_is_the_factor_of_c(s: SparseTensor, x: Any, entry: str) -> None:
    c = vector(N * M, 6).reshape(N, M)
    got = ENTRIES[entry][0](x, s, c=c, beta=-2.0)
    np.testing.assert_allclose(got, x @ np.asarray(s).T - 2 * c, rtol=1e-4, atol=1e-4)


def test_out_is_written(s: SparseTensor, x: Any) -> None:
    for shape, call in (
        ((N, M), lambda out: louver.linear(x, s, out=out)),
        ((N, M), lambda out: louver.matmul(x, s.T, out=out)),
        ((M, N), lambda out: louver.matmul(s, x.T, out=out)),
        ((M, N), lambda out: louver.plan("matmul", s, n=N)(np.ascontiguousarray(x.T), out=out)),
    ):
        out = np.full(shape, np.nan, np.float32)
        assert call(out) is out
        expected = x @ np.asarray(s).T
        np.testing.assert_allclose(out, expected if shape == (N, M) else expected.T, rtol=1e-4, atol=1e-4)


def test_accumulate_is_obeyed_or_refused(rng: np.random.Generator) -> None:
    """A sum in f16 that overflows shows the mode."""
    w = louver.compress(np.tile(np.array([200, 200, 0, 0], np.float16), (8, 16)), "2:4")
    large = np.full((4, 64), 200, np.float16)
    for call in (
        lambda **o: louver.linear(large, w, out_dtype="f32", **o),
        lambda **o: louver.plan("linear", w, n=4, out_dtype="f32", **o)(large),
    ):
        assert np.isinf(call(accumulate="f16")).all()
        assert np.isfinite(call()).all() and np.isfinite(call(accumulate="f32")).all()
        for mode in ("promoted", "fast", "s32", "f64", 3):
            with pytest.raises(ValueError, match="accumulate must be .* for f16, got"):
                call(accumulate=mode)


@pytest.mark.parametrize("dtype", ["f16", "f32", "s8"])
@pytest.mark.parametrize("accumulate", ["auto", "f16"])
def test_batch_invariant_results_do_not_depend_on_n(rng: np.random.Generator, dtype: str, accumulate: str) -> None:
    """Bit for bit, for every call of the same tokens among others, with every option that has a value per token."""
    if accumulate == "f16" and dtype != "f16":
        pytest.skip("f16 sums are of f16")
    m, n, k = 40, 67, 515
    made = {"f16": np.float16, "f32": np.float32, "s8": np.int8}[dtype]
    pattern = "2:8" if dtype == "f32" else "2:4"
    w = louver.compress((9 * rng.standard_normal((m, k))).astype(made), pattern, method="magnitude")
    tokens = (9 * rng.standard_normal((n, k))).astype(made)
    given: dict[str, Any] = {"accumulate": accumulate, "out_dtype": "f32", "batch_invariant": True, "alpha": 0.3}
    scale, addend, c = vector(n, 7), vector(n, 8), vector(n * m, 9).reshape(n, m)

    def rows(first: int, last: int) -> Any:
        part = slice(first, last)
        own = {"dense_scale": scale[part], "dense_bias": addend[part], "c": c[part]}
        return louver.linear(tokens[part], w, **own, **given)

    whole = rows(0, n)
    for first, last in ((0, 1), (5, 6), (3, 20), (30, 62), (66, 67)):
        np.testing.assert_array_equal(rows(first, last), whole[first:last])
    usual = louver.linear(tokens, w, dense_scale=scale, dense_bias=addend, c=c, **{**given, "batch_invariant": False})
    np.testing.assert_allclose(whole, usual, rtol=1e-2 if accumulate == "f16" else 1e-4, atol=0.5)
    p = louver.plan("matmul", w, n=n, out_dtype="f32", batch_invariant=True, layout=None)
    if dtype == "f32":
        wide = np.zeros((k, 68), made)
        wide[:, :n] = tokens.T
        np.testing.assert_array_equal(p(wide)[:, :n].T, louver.linear(tokens, w, out_dtype="f32", batch_invariant=True))


def test_batches_are_invariant_too(rng: np.random.Generator) -> None:
    w = louver.compress(rng.standard_normal((3, 16, 260)).astype(np.float32), "2:8", method="magnitude")
    b = rng.standard_normal((3, 260, 33)).astype(np.float32)
    bias = rng.standard_normal(16).astype(np.float32)
    whole = louver.matmul(w, b, bias=bias, batch_invariant=True)
    np.testing.assert_array_equal(louver.matmul(w, b[..., 7:8], bias=bias, batch_invariant=True), whole[..., 7:8])
    np.testing.assert_allclose(whole, louver.matmul(w, b, bias=bias), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", [1, None, "yes", np.True_])
def test_switches_are_true_or_false(s: SparseTensor, x: Any, value: Any) -> None:
    for call in (
        lambda: louver.linear(x, s, batch_invariant=value),
        lambda: louver.matmul(s, x.T, batch_invariant=value),
        lambda: louver.plan("matmul", s, n=N, dependent=value),
        lambda: louver.plan("matmul", s, n=N, batch_invariant=value),
        lambda: louver.prepare(s, n=N, kind="matmul", batch_invariant=value),
        lambda: louver.prepare(s, n=N, kind="matmul", bias=value),
        lambda: louver.prepare(s, n=N, kind="matmul", tune=value),
        lambda: louver.prune(x, "2:4", transposable=value),
        lambda: louver.check(x, "2:4", exact=value),
    ):
        with pytest.raises(TypeError, match="is True or False, got"):
            call()


def test_plans_obey_or_refuse_their_own_options(s: SparseTensor, x: Any) -> None:
    b = np.ascontiguousarray(x.T)
    expected = np.asarray(s) @ b
    p = louver.plan("matmul", s, n=N, dependent=True, like=b)
    np.testing.assert_allclose(p(b), expected, rtol=1e-4, atol=1e-4)
    assert (p.n, p.layout, p.dependent, p.batch) == (N, "n_major", True, 1)
    with pytest.raises(ValueError, match="a plan reads its dense operand in place, n_major"):
        p(np.asfortranarray(b))
    with pytest.raises(ValueError, match="the plan is for single products, got a batch"):
        p(np.stack((b, b)))
    two = louver.plan("matmul", s, n=N, batch=2)(np.stack((b, -b)))
    np.testing.assert_allclose(two, np.stack((expected, -expected)), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="gather rows of"):
        louver.plan("linear", s, n=N)
    with pytest.raises(ValueError, match="kind is 'linear' or 'matmul'"):
        louver.plan("conv", s, n=N)  # type: ignore[arg-type]


def test_prepare_is_refused_without_a_gpu(s: SparseTensor) -> None:
    """Its options are those of plans, and `tune`."""
    assert set(inspect.signature(louver.prepare).parameters) == {"s", "n", "tune", "options"}
    assert options_of(preparation) == {
        *("n", "kind", "bias", "out_dtype", "layout", "device", "epilogue", "accumulate", "batch", "batch_invariant")
    }
    for tune in (False, True):
        with pytest.raises(NoDeviceError):
            louver.prepare(s, n=N, kind="matmul", tune=tune)


DENSE: dict[str, dict[str, Any]] = {
    "prune": {"pattern": "1:4", "axis": 0, "norm": "l1", "transposable": True, "method": "other"},
    "compress": {"pattern": "3:8", "axis": 0, "method": None},
    "check": {"pattern": "1:4", "axis": 0, "exact": True, "listed": 1},
    "compress_both": {},
    "from_indices": {"pattern": "1:4", "axis": 0},
}
"""Another value for each option of functions of dense arrays. It changes the result, or is refused."""

REFUSED = {
    ("prune", "transposable"): "transposable masks are 2:4, got 2:4@4",
    ("prune", "method"): 'prune has the method "magnitude", got',
    ("compress", "method"): "2:4 allows 2 non-zeros",
    ("from_indices", "pattern"): "indices of 1:4 for shape",
}


@pytest.mark.parametrize("name", DENSE)
def test_options_of_dense_functions_change_it_or_are_refused(name: str) -> None:
    rng = np.random.default_rng(3)
    w = rng.standard_normal((16, 16)).astype(np.float32)
    base: dict[str, Any] = {"pattern": "2:4@4" if name == "prune" else "2:4"}
    if name == "compress":
        base["method"] = "magnitude"
    function = getattr(louver, name)
    s = louver.compress(w, "2:4", method="magnitude")
    first = (s.values, s.unpacked_indices()) if name == "from_indices" else (w,)
    rest = {"shape": (16, 16)} if name == "from_indices" else {}
    parameters = set(inspect.signature(function).parameters) - {"w", "values", "indices", "shape"}
    assert parameters == set(DENSE[name]), "each option needs a decision here"

    def result(**options: Any) -> Any:
        made = function(*first, **rest, **options)
        return str(made) + str(np.asarray(made)) if isinstance(made, SparseTensor) else str(made)

    if not parameters:
        return
    usual = result(**base)
    for option, value in DENSE[name].items():
        message = REFUSED.get((name, option))
        if message is None:
            assert result(**{**base, option: value}) != usual, f"{name} ignores {option}"
        else:
            with pytest.raises(ValueError, match=message):
                result(**{**base, option: value})


def test_hints_of_users_kernels_are_known_by_name_on_every_path(s: SparseTensor, rng: np.random.Generator) -> None:
    """Hints decide about speed, so the interpreter needs none of them. An unknown one is refused on each path."""
    assert set(GIVEN) == {name for name in FIELDS if not name.startswith("tile_")} - {"work", "dependent"}
    assert {*GIVEN, *TRITON, "family"} >= set(inspect.signature(Hints).parameters) - {"schedule", "triton"}
    w = louver.compress(rng.standard_normal((128, 64)).astype(np.float16), "2:4", method="magnitude")
    sizes = {"M": 128, "N": 64, "K": 64, "stride_a": 64, "stride_b": 64, "stride_d": 64}
    b = rng.standard_normal((64, 64)).astype(np.float16)
    kernel = kept_kernel("made_descriptors")
    results: list[Any] = []
    for launch in (kernel[(1, 1)], kernel.emulate[(1, 1)]):
        for hints in ({}, {"family": "register tiles", "num_warps": 4}, {"stages": 2}):
            d = np.zeros((128, 64), np.float16)
            launch(d=d, a=w, b=b, **sizes, **CASES["made_descriptors"].constexprs, **hints)
            results.append(d)
        for bad in ({"speed": 3}, {"num_warps": 3}, {"num_warps": 0}, {"debug": True}, {"family": "product"}):
            with pytest.raises(ValueError, match=r"hints are|num_warps is|debug is|family is"):
                launch(d=d, a=w, b=b, **sizes, **CASES["made_descriptors"].constexprs, **bad)
    for each in results:
        np.testing.assert_allclose(
            each, np.asarray(w).astype(np.float32) @ b.T.astype(np.float32), rtol=0.01, atol=0.05
        )
