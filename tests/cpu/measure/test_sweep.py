"""The cases that the sweep draws and expects; they run by the reference path where PyTorch is installed."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.pattern import Pattern, lifted_pattern
from louver.ir.product import unit_of
from random_products import operands
from random_products.cases import GATED_ROWS, GROUP, LENGTHS, PRODUCTS, WINDOWS, Case, Group, cases
from random_products.check import check, checked, described
from random_products.expected import Expected, limits, product
from random_products.options import (
    BY_NAME,
    OPTIONS,
    Draft,
    Setting,
    available,
    draw_options,
    has_views,
    is_rounding,
)
from random_products.pool import Sweep, counts
from support.drawn_products import Drawn, drawn, runs_on_numpy

SMALL = 2_000_000
"""Products of sizes that the reference path takes in no time."""


def plain(**changes: Any) -> Case:
    group = Group(Setting("linear", "f16", "f16", "f16", "2:4"), "k_major", 1, 64)
    case = Case(group, 37, 22, 100, 0, 0, 0, 0, 0, 0, windows="pruned", ordered=True, exact=False, wide="", seed=5)
    return replace(case, **changes)


def small(count: int) -> list[Case]:
    return [case for case in cases(count, 3) if case.m * case.n * case.k < SMALL]


def test_cases_repeat_and_differ_by_seed() -> None:
    found = [described(case) for case in cases(50, 1)]
    assert found == [described(case) for case in cases(50, 1)]
    assert found != [described(case) for case in cases(50, 2)]


def test_every_pair_of_types_product_and_layout_takes_part() -> None:
    groups = groups_of(list(cases(3000, 0)))
    assert len(groups) == 3000 // GROUP
    settings = {(group.setting.kind, group.setting.a, group.setting.b) for group in groups}
    assert settings == {(kind, *pair) for kind in ("linear", "matmul") for pair in PRODUCTS}
    assert {group.layout for group in groups} == {"k_major", "n_major", "strided"}
    for group in groups:
        assert group.setting.out in PRODUCTS[group.setting.a, group.setting.b]


def test_cases_stay_in_the_range_of_their_group() -> None:
    for case in cases(3000, 0):
        assert min(case.m, case.n, case.k) >= 1
        assert case.group.narrowest <= case.n <= max(case.group.widest, 8192)
        assert case.batch == 0 or (case.n % case.batch == 0 and case.group.setting.kind == "linear")
        if "gated" in case.group.forms:
            assert case.m % (2 * GATED_ROWS) == 0
        assert not (case.exact and is_rounding(case.group.forms))


def test_options_go_together(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random_products.options.available", lambda *_: True)
    seen: set[str] = set()
    for _ in range(2000):
        a, b = list(PRODUCTS)[int(rng.integers(len(PRODUCTS)))]
        setting = Setting("matmul", a, b, str(rng.choice(PRODUCTS[a, b])), lifted_pattern(a))
        forms = draw_options(rng, setting)
        seen |= set(forms)
        assert list(forms) == [option.name for option in OPTIONS if option.name in forms]
        for name, form in forms.items():
            assert form in BY_NAME[name].forms(setting)
            assert not set(BY_NAME[name].without) & set(forms)
        if setting.out == "s32":
            assert not any(BY_NAME[name].floating for name in forms)
        if "integer bias" in forms:
            assert a in ("s8", "u8") and not any(BY_NAME[name].floating for name in forms)
    assert seen == {option.name for option in OPTIONS}


def test_options_wait_for_the_library() -> None:
    assert available(BY_NAME["bias"], "linear")
    unknown = replace(BY_NAME["bias"], keywords=("no_such_keyword",))
    assert not available(unknown, "linear")
    assert not available(replace(BY_NAME["bias"], names=("no_such_name",)), "linear")


def groups_of(found: list[Case]) -> list[Group]:
    return [next(run).group for _, run in itertools.groupby(found, key=lambda case: id(case.group))]


@pytest.mark.parametrize("share", [0.0, 1 / 3, 1.0])
def test_a_share_of_the_groups_has_vectors(share: float) -> None:
    settings = [group.setting for group in groups_of(list(cases(6000, 4, share)))]
    vectors = [each for each in settings if each.pattern != lifted_pattern(each.a)]
    assert abs(len(vectors) / len(settings) - share) < 0.06
    patterns = [Pattern.parse(each.pattern) for each in vectors]
    if vectors:
        assert {(each.a, each.b) for each in vectors} == set(PRODUCTS)
        assert {pattern.length for pattern in patterns} == set(LENGTHS)
        assert {1, 256} <= {pattern.m for pattern in patterns}
        assert {pattern.n == pattern.m for pattern in patterns} == {True, False}
        assert {len(pattern.levels) for pattern in patterns} == {1, 2}


def test_cases_of_vectors_meet_every_corner() -> None:
    found = list(cases(6000, 4, 1.0))
    assert {(case.windows, case.ordered) for case in found} == {(name, on) for name in WINDOWS for on in (True, False)}
    assert any(case.k % Pattern.parse(case.group.setting.pattern).m for case in found)
    assert {case.wide for case in found if case.group.setting.a == "f32"} == {"", "sparse", "dense"}
    for case in found:
        if case.wide:
            assert case.exact and unit_of(case.group.setting.pattern, case.group.setting.a) == "fma"
        if "weights" in case.group.forms:
            assert case.weights and case.m % case.weights == 0
        if "gated" in case.group.forms:
            assert Pattern.parse(case.group.setting.pattern).length == 1


@pytest.mark.parametrize("pattern", ["2:4", "3:5@33", "3:7", "5:5@2", "2:9@V33"])
@pytest.mark.parametrize("name", WINDOWS)
def test_weights_are_what_their_tensor_says(name: str, pattern: str) -> None:
    """Their zeros and values are placed here by NumPy, so a tensor that is decoded wrongly differs."""
    for weights, ordered in ((0, True), (4, False)):
        group = Group(Setting("linear", "f32", "f32", "f32", pattern), "k_major", 1, 64)
        case = plain(
            group=group, m=148, k=101, weights=weights, windows=name, ordered=ordered, exact=True, wide="sparse"
        )
        a, s = operands.weight(np.random.default_rng(2), case)
        assert s.shape == ((4, 37, 101) if weights else (148, 101)) and str(s.pattern) == pattern
        np.testing.assert_array_equal(s.dense().reshape(148, 101), a)
        assert np.abs(a).max() > 2048 and (a.astype(np.int64) % 2).any()


def test_windows_are_alike_or_apart() -> None:
    pattern = Pattern(2, 8, 4)
    placed = {
        name: operands.windows(np.random.default_rng(1), plain(windows=name, ordered=False), pattern, 4, 3)
        for name in WINDOWS[1:]
    }
    assert all(found.shape == (4, 3, 2) for found in placed.values())
    assert (placed["alike"] == placed["alike"][0]).all()
    kept_together = np.moveaxis(placed["apart"], 0, 1).reshape(3, -1)
    assert all(set(kept) == set(range(8)) for kept in kept_together.tolist())
    ordered = operands.windows(np.random.default_rng(1), plain(windows="apart"), pattern, 4, 3)
    np.testing.assert_array_equal(ordered, np.sort(placed["apart"], axis=-1))


@pytest.mark.filterwarnings("ignore:louver computes by the reference path")
def test_drawn_vectors_are_right_without_torch() -> None:
    found = [case for case in cases(2000, 3, 1.0) if runs_on_numpy(case) and case.m * case.n * case.k < SMALL // 10]
    for case in found[:150]:
        given = drawn(case)
        assert given.faults(result_of(given, given.dense)) == 0, described(case)


@pytest.mark.filterwarnings("ignore:louver computes by the reference path")
@pytest.mark.parametrize("wide", ["sparse", "dense"])
def test_operands_that_are_read_as_tf32_are_seen(wide: str) -> None:
    group = Group(Setting("linear", "f32", "f32", "f32", "3:5@33"), "k_major", 1, 64)
    given = drawn(plain(group=group, exact=True, windows="random", wide=wide))
    assert given.faults(result_of(given, given.dense)) == 0
    if wide == "sparse":
        given.s.update_(cut(given.s.values))
    assert given.faults(result_of(given, cut(given.dense))) > 100


def cut(array: Any) -> Any:
    """As tensor cores read an f32."""
    return (array.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def result_of(given: Drawn, dense: Any) -> Any:
    setting = given.case.group.setting
    call = (dense, given.s) if setting.kind == "linear" else (given.s, dense)
    return getattr(louver, setting.kind)(*call, out_dtype=setting.out, **given.draft.arguments)


def activation(name: str, x: float) -> float:
    tanh = math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return {
        "relu": max(x, 0.0),
        "silu": x / (1 + math.exp(-x)),
        "gelu": x * math.erfc(-x * math.sqrt(0.5)) / 2,
        "gelu_tanh": x * (1 + tanh) / 2,
    }[name]


@pytest.mark.parametrize("name", ["relu", "silu", "gelu", "gelu_tanh"])
def test_activations_are_their_definitions_and_bound_what_f32_gives(name: str, rng: np.random.Generator) -> None:
    x = rng.normal(0, 3, (40, 50))
    expected = Expected(np, x.copy(), np.zeros_like(x))
    expected.activate(name)
    exact = np.vectorize(lambda value: activation(name, value))(x)
    assert np.allclose(expected.value, exact, rtol=1e-9, atol=1e-12)
    assert (expected.error <= 1e-4 * (1 + abs(x)) ** 3 * (abs(exact) + abs(x))).all()
    moved = np.vectorize(lambda value: activation(name, value))(x + 1e-3)
    around = Expected(np, x.copy(), np.full_like(x, 1e-3))
    around.activate(name)
    assert (abs(moved - around.value) <= around.error * 1.0001).all()


def test_a_chain_of_steps_bounds_f32_and_finds_a_wrong_factor(rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((30, 64), np.float32), rng.standard_normal((64, 20), np.float32)
    scale, bias = rng.standard_normal((30, 1), np.float32), rng.standard_normal((1, 20), np.float32)
    expected = product(np, a.astype(float), b.astype(float), "f16", "2:4", "auto")
    expected.multiply(scale.astype(float))
    expected.add(bias.astype(float))
    expected.multiply(0.7)
    got = (scale * (a @ b) + bias) * np.float32(0.7)
    assert expected.ratio(got.astype(float), "f32").max() <= 1
    assert expected.ratio(got * (1 + 1e-4), "f32").max() > 1
    assert expected.ratio(got.astype(np.float16).astype(float), "f16").max() <= 1
    got[3, 4] = np.nan
    assert expected.ratio(got, "f32").max() == np.inf


def test_a_gated_pair_is_the_product_of_its_halves() -> None:
    value = np.array([[1.0, -2.0], [0.5, 3.0], [4.0, 5.0], [-6.0, 7.0]])
    expected = Expected(np, value, np.zeros_like(value))
    expected.gate("relu")
    assert expected.value.tolist() == [[4.0, 0.0], [-3.0, 21.0]]


def test_results_beyond_the_range_may_be_its_end() -> None:
    big = Expected(np, np.array([[1e6, -1e6, 500.0, 0.6]]), np.zeros((1, 4)))
    assert big.ratio(np.array([[np.inf, -65504.0, 500.0, 0.6]]), "f16").max() <= 1
    assert big.ratio(np.array([[-np.inf, -65504.0, 500.0, 0.6]]), "f16").max() > 1
    assert big.ratio(np.array([[127.0, -128.0, 127.0, 1.0]]), "s8").max() <= 1
    assert big.ratio(np.array([[127.0, -128.0, 126.0, 1.0]]), "s8").max() > 1
    assert big.ratio(np.array([[127.0, -128.0, 127.0, 0.0]]), "s8").max() > 1
    assert limits("f32") == (-np.inf, np.inf)


def test_integers_reach_one_further_below_zero() -> None:
    low = Expected(np, np.array([[-128.0, -300.0, -128.0]]), np.zeros((1, 3)))
    assert low.ratio(np.array([[-128.0, -128.0, -128.0]]), "s8").max() <= 1
    assert low.ratio(np.array([[-128.0, -128.0, -127.0]]), "s8").max() > 1
    assert limits("s8") == (-128.0, 127.0)


def test_exact_sums_allow_no_error() -> None:
    sums = Expected(np, np.array([[3.0, 4.0]]), np.zeros((1, 2)))
    assert sums.ratio(np.array([[3.0, 4.0]]), "s32").max() == 0
    assert sums.ratio(np.array([[3.0, 5.0]]), "s32").max() == np.inf


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.filterwarnings("ignore:louver computes by the reference path")
def test_the_reference_path_is_right_in_every_case(torch: Any) -> None:
    found = [checked(torch, "cpu", case) for case in small(GROUP * 24)]
    assert len(found) > 100
    assert [(described(outcome.case), outcome.wrong) for outcome in found if outcome.wrong] == []
    assert 0 < max(outcome.worst for outcome in found) <= 1
    taken = counts(outcome.case for outcome in found)
    assert sum(taken["kind"].values()) == len(found)
    assert Sweep(tuple(found), 3, 1.5).to_json()["wrong"] == 0


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("value", "element"),
        ("unwritten", "element"),
        ("outside", "1 elements written outside"),
        ("refusal", "ValueError: no"),
    ],
)
def test_faults_are_found(torch: Any, monkeypatch: pytest.MonkeyPatch, fault: str, says: str, exact: bool) -> None:
    def faulty(x: Any, s: Any, out: Any, **_: Any) -> None:
        if fault == "refusal":
            raise ValueError("no")
        whole = torch.from_numpy(s.dense().astype(np.float64))
        before = out[3, 5].clone()
        out.copy_((x.double() @ whole.T).to(out.dtype))
        if fault == "value":
            out[3, 5] += 1
        if fault == "unwritten":
            out[3, 5] = before
        if fault == "outside":
            out.as_strided((1,), (1,), out.storage_offset() - 1).fill_(0)

    monkeypatch.setattr(louver, "linear", faulty)
    outcome = checked(torch, "cpu", plain(exact=exact))
    assert says in outcome.wrong
    monkeypatch.setattr(louver, "linear", lambda x, s, out, **_: fault_free(torch, x, s, out))
    assert check(torch, "cpu", plain(exact=exact)).wrong == ""


@pytest.mark.parametrize(("pattern", "refused"), [("1:2", True), ("2:4", False), ("2:4@8", False)])
def test_only_patterns_without_a_kernel_may_be_refused(
    torch: Any, monkeypatch: pytest.MonkeyPatch, pattern: str, refused: bool
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ValueError("GPUs multiply\n others")

    monkeypatch.setattr(louver, "linear", refuse)
    case = plain(group=Group(Setting("linear", "f16", "f16", "f16", pattern), "k_major", 1, 64))
    outcome = checked(torch, "cpu", case)
    assert (outcome.refused, bool(outcome.wrong)) == (("GPUs multiply others", False) if refused else ("", True))
    record = Sweep((outcome,), 0, 1.0).to_json()
    assert record["refused"] == ({outcome.refused: 1} if refused else {})


def fault_free(torch: Any, x: Any, s: Any, out: Any) -> None:
    out.copy_((x.double() @ torch.from_numpy(s.dense().astype(np.float64)).T).to(out.dtype))


def test_every_option_changes_the_call_and_the_expectation(rng: np.random.Generator) -> None:
    def place(array: Any, _: str) -> tuple[Any, Any]:
        return np.asarray(array), np.asarray(array, np.float64)

    for option in (option for option in OPTIONS if not option.views):
        setting = Setting("matmul", "s8" if option.name == "integer bias" else "f16", "f16", "f32", "2:4")
        for form in option.forms(setting):
            if form.endswith("in place"):
                continue
            value = rng.standard_normal((8, 6))
            draft = Draft(
                rng, setting, 4 if option.name == "gated" else 8, 6, False, place,
                Expected(np, value.copy(), np.zeros_like(value)), np.zeros((8, 6)),
            )  # fmt: skip
            option.apply(draft, form)
            assert draft.arguments, option.name
            changed = draft.expected.value.shape != value.shape or not np.array_equal(draft.expected.value, value)
            assert changed is (option.name != "accumulate")


class Axes:
    """The attributes that views ask of a PyTorch tensor, on NumPy."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def unflatten(self, axis: int, sizes: tuple[int, int]) -> Axes:
        shape = self.array.shape
        return Axes(self.array.reshape(*shape[:axis], *sizes, *shape[axis + 1 :]))

    def movedim(self, source: int, to: int) -> Axes:
        return Axes(np.moveaxis(self.array, source, to))


@pytest.mark.parametrize("kind", ["linear", "matmul"])
@pytest.mark.parametrize("name", ["batch", "weights"])
def test_views_divide_the_output_and_nothing_else(rng: np.random.Generator, kind: str, name: str) -> None:
    shape = (12, 30) if kind == "linear" else (30, 12)
    y = np.arange(360).reshape(shape)
    setting = Setting(kind, "f16", "f16", "f32", "2:4")
    weights = 3 if name == "weights" else 0
    draft = Draft(rng, setting, 30, 12, False, lambda a, _: (a, a), Expected(np, y, y), Axes(y), weights=weights)
    assert has_views({name: "entries"})
    BY_NAME[name].apply(draft, "entries")
    entries = draft.batch or draft.weights
    assert entries > 1 and not draft.arguments and (draft.batch == 0) == (name == "weights")
    m, n = (30, 12 // entries) if name == "batch" else (30 // entries, 12)
    got = draft.result.array
    assert got.shape == ((entries, n, m) if kind == "linear" else (entries, m, n))
    for entry in range(entries):
        if name == "weights":
            part = y[:, entry * m : (entry + 1) * m] if kind == "linear" else y[entry * m : (entry + 1) * m]
        else:
            part = y[entry::entries] if kind == "linear" else y[:, entry * n : (entry + 1) * n]
        np.testing.assert_array_equal(got[entry], part)
