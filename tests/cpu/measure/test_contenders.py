from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from louver.library.numerics import Agreement
from louver.measure import contenders, gemm
from louver.measure.contenders import SPLITS, Contender, CuSparseLt, cublas, cusparselt_candidates, dependent
from louver.measure.operands import Operands
from louver.measure.problems import GemmProblem
from louver.measure.protocol import Protocol

RIGHT, WRONG = Agreement(True, 0.5, (0, 0), 0), Agreement(False, 7.0, (0, 0), 3)


class Library:
    """cuSPARSELt as far as PyTorch shows it: `known` algorithms."""

    def __init__(self, known: int) -> None:
        self.known = known
        self.calls: list[tuple[Any, int, bool]] = []
        self.options: list[dict[str, Any]] = []
        self.cuda = SimpleNamespace(synchronize=lambda: None)

    def _cslt_compress(self, weight: Any) -> Any:
        return weight

    def _cslt_sparse_mm(self, weight: Any, b: Any, *, alg_id: int, transpose_result: bool, **options: Any) -> Any:
        if alg_id >= self.known:
            raise RuntimeError("algorithm out of range")
        self.options.append(options)
        self.calls.append((weight, alg_id, transpose_result))
        return np.full((2, 3) if transpose_result else (3, 2), alg_id)


def operands(weights: Sequence[Any] = ("w0", "w1", "w2"), dtype: str = "f16", out: str = "auto") -> Operands:
    array = SimpleNamespace(t=lambda: "b", fill_=lambda _: None, dtype="y's")
    return Operands(GemmProblem(64, 32, 64, dtype, out), array, array, array, tuple(weights), ())


class Dense:
    """PyTorch's dense products: what each was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, Any, dict[str, Any]]] = []

    def ones(self, shape: tuple[int, ...], device: str) -> str:
        return f"1 {shape} {device}"

    def mm(self, x: Any, w: Any, **options: Any) -> None:
        self.calls.append(("torch.mm", x, w, options))

    def _scaled_mm(self, x: Any, w: Any, **options: Any) -> None:
        self.calls.append(("torch._scaled_mm", x, w, options))

    def _int_mm(self, x: Any, w: Any, **options: Any) -> None:
        self.calls.append(("torch._int_mm", x, w, options))


@pytest.mark.parametrize(
    ("dtype", "out", "name"),
    [
        ("f16", "f16", "torch.mm"),
        ("bf16", "bf16", "torch.mm"),
        ("e4m3", "f16", "torch._scaled_mm"),
        ("s8", "s32", "torch._int_mm"),
        ("f32", "f32", "torch.mm"),
    ],
)
def test_the_dense_product_is_the_one_of_its_types(dtype: str, out: str, name: str) -> None:
    weights = [SimpleNamespace(t=lambda index=index: f"w{index}.T") for index in range(2)]
    torch, given = Dense(), operands(weights, dtype, out)
    contender = cublas(torch, given)
    contender.call(0)
    contender.call(3)
    assert contender.details == {"call": name}
    assert contender.order == "tokens"
    assert [(call, x, w) for call, x, w, _ in torch.calls] == [(name, given.x, "w0.T"), (name, given.x, "w1.T")]
    scale = "1 () cuda"
    expected = {
        "torch.mm": {"out": given.y},
        "torch._scaled_mm": {
            "scale_a": scale,
            "scale_b": scale,
            "out_dtype": "y's",
            "use_fast_accum": True,
            "out": given.y,
        },
        "torch._int_mm": {"out": given.y},
    }
    assert torch.calls[0][3] == expected[name]


def test_promoted_sums_are_compared_with_slow_ones() -> None:
    given = operands([SimpleNamespace(t=lambda: "w.T")], "e4m3", "f16")
    torch, promoted = Dense(), replace(given, problem=replace(given.problem, accumulate="promoted"))
    cublas(torch, promoted).call(0)
    assert torch.calls[0][3]["use_fast_accum"] is False


def test_no_dense_product_writes_halves_of_integers() -> None:
    with pytest.raises(ValueError, match="no dense product of s8 that writes f16"):
        cublas(Dense(), operands(dtype="s8", out="f16"))


@pytest.mark.parametrize(
    ("dtype", "out", "options"),
    [("f16", "f16", {}), ("e4m3", "f16", {"out_dtype": "y's"}), ("s8", "s32", {"out_dtype": "y's"})],
)
def test_the_sparse_library_is_told_of_another_output_type(dtype: str, out: str, options: dict[str, str]) -> None:
    torch = Library(3)
    library = CuSparseLt(torch, operands(dtype=dtype, out=out))
    library.contender(2).call(0)
    library.contender(2, split=(4, 1)).call(0)
    assert torch.options == [options, {**options, "split_k": 4, "split_k_mode": 1}]


@pytest.mark.parametrize(("dtype", "out"), [("f16", "f16"), ("e4m3", "f16"), ("s8", "f16"), ("s8", "s32")])
def test_poison_is_no_result(dtype: str, out: str) -> None:
    filled: list[float] = []
    y = SimpleNamespace(fill_=filled.append)
    Operands(GemmProblem(64, 32, 64, dtype, out), None, None, y, (), ()).poison()
    assert filled[0] == -(2**31) if out == "s32" else math.isnan(filled[0])


def test_algorithms_end_where_one_is_refused() -> None:
    assert list(CuSparseLt(Library(5), operands()).algorithms(most=64)) == [0, 1, 2, 3, 4]
    assert list(CuSparseLt(Library(5), operands()).algorithms(most=3)) == [0, 1, 2]


def test_a_contender_walks_through_the_weights() -> None:
    torch = Library(9)
    contender = CuSparseLt(torch, operands()).contender(4, transposed=True)
    for index in range(4):
        contender.call(index)
    assert torch.calls == [("w0", 4, True), ("w1", 4, True), ("w2", 4, True), ("w0", 4, True)]


@pytest.mark.parametrize("transposed", [True, False])
def test_results_come_as_tokens_by_outputs(transposed: bool) -> None:
    library = Library(9)
    contender = CuSparseLt(library, operands()).contender(1, transposed=transposed)
    rows = contender.call(0)
    contender = Contender(contender.name, lambda _: SimpleNamespace(t=lambda: "turned"), contender.order, {})
    assert rows.shape == ((2, 3) if transposed else (3, 2))
    assert (contender.result(0) == "turned") is not transposed


def test_candidates_are_the_fastest_and_the_default_and_the_fastest_with_k_split() -> None:
    speed = {0: 9.0, 1: 3.0, 2: 5.0, 3: 1.0, 4: 8.0}
    library = CuSparseLt(Library(5), operands())
    found, known = cusparselt_candidates(
        library, lambda contender: speed[contender.details["algorithm"]], Protocol(algorithms=2)
    )
    assert known == 5
    whole, split = found[:5], found[5:]
    assert [(c.details["algorithm"], c.details["transposed"]) for c in whole] == [
        (3, False), (1, False), (0, False), (3, True), (1, True),
    ]  # fmt: skip
    assert [(c.details["split_k"], c.details["split_k_mode"]) for c in split] == list(SPLITS)
    assert all((c.details["algorithm"], c.order) == (3, "rows") for c in split)
    assert len({contender.name for contender in found}) == 5 + len(SPLITS)


def test_without_algorithms_the_default_says_why() -> None:
    found, known = cusparselt_candidates(CuSparseLt(Library(0), operands()), lambda _: 1 / 0, Protocol())
    assert known == 0 and [c.details["algorithm"] for c in found] == [0]
    with pytest.raises(RuntimeError, match="out of range"):
        found[0].call(0)


def test_a_contender_that_no_graph_takes_is_noted_and_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def capture(_torch: Any, call: Any, _launches: int) -> Any:
        if call is refused:
            raise RuntimeError("not permitted\nwhile capturing")
        return SimpleNamespace(seconds=lambda _: 1e-3)

    refused = own("cusparselt 2", []).call
    wrong = own("cusparselt 4", [])
    some = [Contender("cusparselt 2", refused, "tokens", {}), own("cusparselt 3", []), wrong]
    answers = iter([RIGHT, RIGHT, WRONG])
    monkeypatch.setattr(gemm, "cusparselt_candidates", lambda *_: (some, 2))
    monkeypatch.setattr(gemm, "capture", capture)
    monkeypatch.setattr(gemm, "verify", lambda *_: next(answers))
    notes: dict[str, dict[str, Any]] = {}
    phases = gemm._Phases()
    found = gemm._cusparselt(Library(5), operands(), Protocol(pause_seconds=0), notes, phases)
    assert list(found) == ["cusparselt 3"]
    seconds = notes["cusparselt"].pop("ranking_seconds")
    assert notes == {
        "cusparselt": {"algorithms": 2, "failed: cusparselt 2": "not permitted", "wrong: cusparselt 4": 7.0}
    }
    assert list(seconds) == [
        "check cusparselt 2", "rank cusparselt 2", "check cusparselt 3", "rank cusparselt 3", "check cusparselt 4",
    ]  # fmt: skip
    assert 0 <= sum(seconds.values()) <= phases.seconds["ranking"] + 0.05
    assert list(phases.seconds) == ["algorithms", "ranking"]


@pytest.mark.parametrize(
    ("slower", "names"), [(1.2, ["cusparselt 2"]), (1.04, ["cusparselt 2 transposed", "cusparselt 2"])]
)
def test_the_other_order_is_ranked_where_a_launch_of_it_is_about_as_fast(
    monkeypatch: pytest.MonkeyPatch, slower: float, names: list[str]
) -> None:
    log: list[tuple[str, int]] = []

    def capture(_torch: Any, call: Any, launches: int) -> Any:
        log.append((call, launches))
        turned = "transposed" in call
        # The rotation over all weights decides, once the other order takes part.
        return SimpleNamespace(
            seconds=lambda _: (slower if turned else 1.0) if launches == 1 else (0.5 if turned else 1.0)
        )

    some = [Contender(name, name, "rows", {}) for name in ("cusparselt 2", "cusparselt 2 transposed")]
    monkeypatch.setattr(Contender, "result", lambda *_: None)
    monkeypatch.setattr(gemm, "cusparselt_candidates", lambda *_: (some, 1))
    monkeypatch.setattr(gemm, "capture", capture)
    monkeypatch.setattr(gemm, "verify", lambda *_: RIGHT)
    notes: dict[str, dict[str, Any]] = {}
    found = gemm._cusparselt(Library(1), operands(), Protocol(pause_seconds=0), notes, gemm._Phases())
    assert list(found) == names
    assert log[:3] == [("cusparselt 2", 3), ("cusparselt 2 transposed", 1), ("cusparselt 2", 1)]
    assert log[3:] == ([("cusparselt 2 transposed", 3)] if len(names) > 1 else [])
    told = notes["cusparselt"].get("slower: cusparselt 2 transposed")
    assert told == (None if len(names) > 1 else slower)


def test_without_a_choice_the_default_is_alone_and_k_is_whole() -> None:
    torch = Library(5)
    found, known = cusparselt_candidates(CuSparseLt(torch, operands()), lambda _: 1 / 0, Protocol(most_algorithms=1))
    assert (known, torch.options, torch.calls) == (1, [], [])
    assert [(c.details["algorithm"], c.details["transposed"]) for c in found] == [(0, True), (0, False)]


def test_a_wrong_result_of_ours_ends_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([RIGHT, WRONG])
    monkeypatch.setattr(gemm, "ours", lambda _: own("ours", []))
    monkeypatch.setattr(gemm, "dependent", lambda _: own("dependent", []))
    monkeypatch.setattr(gemm, "verify", lambda *_: next(answers))
    rule = r"ours\(\) is wrong for 64×32×64 f16, weight 1: 3 sampled .* the worst 7 times"
    with pytest.raises(ArithmeticError, match=rule):
        gemm._own(None, operands(), {})
    answers = iter([RIGHT, RIGHT, RIGHT, WRONG])
    with pytest.raises(ArithmeticError, match=r"dependent\(\) is wrong for 64×32×64 f16, weight 0: 3 sampled"):
        gemm._own(None, operands(), {})


def own(name: str, calls: list[int]) -> Contender:
    return Contender(name, calls.append, "tokens", {"call": f"{name}()"})


@pytest.mark.parametrize(("n", "names"), [(256, ["ours", "dependent"]), (257, ["ours"])])
def test_dependent_launches_are_measured_for_few_tokens_each_behind_another(
    monkeypatch: pytest.MonkeyPatch, n: int, names: list[str]
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(gemm, "ours", lambda _: own("ours", []))
    monkeypatch.setattr(gemm, "dependent", lambda _: own("dependent", calls))
    monkeypatch.setattr(gemm, "verify", lambda *_: RIGHT)
    notes: dict[str, dict[str, Any]] = {}
    given = operands()
    assert list(gemm._own(None, replace(given, problem=replace(given.problem, n=n)), notes)) == names
    assert notes == {name: {"error_over_bound": 0.5} for name in names}
    assert calls == ([1, 0, 2, 1, 3, 2] if len(names) > 1 else [])


def test_a_dependent_contender_has_a_plan_for_each_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, ...]] = []

    def plan(kind: str, s: str, n: int, **options: Any) -> Any:
        made.append((kind, s, n, options))
        return lambda x, out: (s, x, out)

    monkeypatch.setattr(contenders.louver, "plan", plan)
    given = replace(operands(dtype="e4m3"), sparse=("s0", "s1"))
    contender = dependent(given)
    assert [contender.call(index) for index in range(3)] == [(s, given.x, given.y) for s in ("s0", "s1", "s0")]
    options = {"like": given.x, "out_dtype": "f16", "accumulate": "auto", "dependent": True}
    assert made == [("linear", s, 32, options) for s in ("s0", "s1")]


def test_a_wrong_library_is_left_out_and_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["cublas", "cusparselt 0", "cusparselt 1"]
    some = [Contender(name, lambda _: None, "tokens", {}) for name in names]
    answers = iter([RIGHT, WRONG, RIGHT])
    monkeypatch.setattr(gemm, "verify", lambda *_: next(answers))
    notes: dict[str, dict[str, Any]] = {}
    assert list(gemm._right(None, operands(), some, notes)) == ["cublas", "cusparselt 1"]
    assert notes == {"cusparselt": {"wrong: cusparselt 0": 7.0}}


def test_a_contender_that_refuses_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> Any:
        raise RuntimeError("no such layout\nat line 3")

    some = [
        Contender("cusparselt 4 transposed", refuse, "tokens", {}),
        Contender("cusparselt 4", lambda _: None, "tokens", {}),
    ]
    monkeypatch.setattr(gemm, "verify", lambda *_: RIGHT)
    notes: dict[str, dict[str, Any]] = {}
    assert list(gemm._right(None, operands(), some, notes)) == ["cusparselt 4"]
    assert notes == {"cusparselt": {"failed: cusparselt 4 transposed": "no such layout"}}


def test_a_missing_dense_product_leaves_the_sparse_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm, "_cusparselt", lambda *_: {"cusparselt 0": "there"})
    notes: dict[str, dict[str, Any]] = {}
    found = gemm._vendors(Dense(), operands(dtype="s8", out="f16"), Protocol(), notes, gemm._Phases())
    assert found == {"cusparselt 0": "there"}
    assert notes == {"cublas": {"failed": "PyTorch has no dense product of s8 that writes f16"}}


def test_a_library_that_fails_is_left_out_and_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(weight: Any) -> Any:
        raise RuntimeError("cuSPARSELt not supported\non your machine")

    monkeypatch.setattr(gemm, "cublas", lambda *_: Contender("cublas", lambda _: None, "tokens", {}))
    monkeypatch.setattr(gemm, "verify", lambda *_: RIGHT)
    notes: dict[str, dict[str, Any]] = {}
    found = gemm._vendors(SimpleNamespace(_cslt_compress=refuse), operands(), Protocol(), notes, gemm._Phases())
    assert list(found) == ["cublas"]
    assert notes == {"cusparselt": {"failed": "cuSPARSELt not supported"}}
