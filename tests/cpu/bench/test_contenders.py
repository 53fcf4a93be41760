from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from louver.bench import gemm
from louver.bench.contenders import Contender, CuSparseLt, cusparselt_candidates
from louver.bench.operands import Operands
from louver.bench.problems import GemmProblem
from louver.bench.protocol import Protocol
from louver.kernels.numerics import Agreement

RIGHT, WRONG = Agreement(True, 0.5, (0, 0), 0), Agreement(False, 7.0, (0, 0), 3)


class Library:
    """cuSPARSELt as far as PyTorch shows it: `known` algorithms, a search that picks one."""

    def __init__(self, known: int, pick: int) -> None:
        self.known = known
        self.pick = pick
        self.calls: list[tuple[Any, int, bool]] = []
        self.cuda = SimpleNamespace(synchronize=lambda: None)

    def _cslt_compress(self, weight: Any) -> Any:
        return weight

    def _cslt_sparse_mm(self, weight: Any, b: Any, *, alg_id: int, transpose_result: bool) -> Any:
        if alg_id >= self.known:
            raise RuntimeError("algorithm out of range")
        self.calls.append((weight, alg_id, transpose_result))
        return np.full((2, 3) if transpose_result else (3, 2), alg_id)

    def _cslt_sparse_mm_search(self, weight: Any, b: Any) -> int:
        return self.pick


def operands(weights: Sequence[Any] = ("w0", "w1", "w2")) -> Operands:
    array = SimpleNamespace(t=lambda: "b", fill_=lambda _: None)
    return Operands(GemmProblem(48, 32, 64, "f16"), array, array, tuple(weights), ())


def test_algorithms_end_where_one_is_refused() -> None:
    assert list(CuSparseLt(Library(5, 0), operands()).algorithms()) == [0, 1, 2, 3, 4]
    assert list(CuSparseLt(Library(5, 0), operands()).algorithms(most=3)) == [0, 1, 2]


def test_a_contender_walks_through_the_weights() -> None:
    torch = Library(9, 0)
    contender = CuSparseLt(torch, operands()).contender(4, transposed=True)
    for index in range(4):
        contender.call(index)
    assert torch.calls == [("w0", 4, True), ("w1", 4, True), ("w2", 4, True), ("w0", 4, True)]


@pytest.mark.parametrize("transposed", [True, False])
def test_results_come_as_tokens_by_outputs(transposed: bool) -> None:
    library = Library(9, 0)
    contender = CuSparseLt(library, operands()).contender(1, transposed=transposed)
    rows = contender.call(0)
    contender = Contender(contender.name, lambda _: SimpleNamespace(t=lambda: "turned"), contender.order, {})
    assert rows.shape == ((2, 3) if transposed else (3, 2))
    assert (contender.result(0) == "turned") is not transposed


def test_candidates_are_the_fastest_the_pick_and_the_default() -> None:
    speed = {0: 9.0, 1: 3.0, 2: 5.0, 3: 1.0, 4: 8.0}
    library = CuSparseLt(Library(5, pick=4), operands())
    found, known = cusparselt_candidates(
        library, lambda contender: speed[contender.details["algorithm"]], Protocol(algorithms=2)
    )
    assert known == 5
    assert [(c.details["algorithm"], c.details["transposed"]) for c in found] == [
        (algorithm, transposed) for algorithm in (3, 1, 4, 0) for transposed in (True, False)
    ]
    assert len({contender.name for contender in found}) == 8


def test_a_wrong_result_of_ours_ends_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([RIGHT, WRONG])
    monkeypatch.setattr(gemm, "ours", lambda _: Contender("ours", lambda _: None, "tokens", {}))
    monkeypatch.setattr(gemm, "verify", lambda *_: next(answers))
    with pytest.raises(ArithmeticError, match=r"wrong for 48×32×64 f16, weight 1: 3 sampled .* the worst 7 times"):
        gemm._own(None, operands(), {})


def test_a_wrong_library_is_left_out_and_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["cublas", "cusparselt 0", "cusparselt 1"]
    contenders = [Contender(name, lambda _: None, "tokens", {}) for name in names]
    answers = iter([RIGHT, WRONG, RIGHT])
    monkeypatch.setattr(gemm, "verify", lambda *_: next(answers))
    notes: dict[str, dict[str, Any]] = {}
    assert list(gemm._right(None, operands(), contenders, notes)) == ["cublas", "cusparselt 1"]
    assert notes == {"cusparselt": {"wrong: cusparselt 0": 7.0}}


def test_a_library_that_fails_is_left_out_and_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(weight: Any) -> Any:
        raise RuntimeError("cuSPARSELt not supported\non your machine")

    monkeypatch.setattr(gemm, "cublas", lambda *_: Contender("cublas", lambda _: None, "tokens", {}))
    monkeypatch.setattr(gemm, "verify", lambda *_: RIGHT)
    notes: dict[str, dict[str, Any]] = {}
    found = gemm._vendors(SimpleNamespace(_cslt_compress=refuse), operands(), Protocol(), notes)
    assert list(found) == ["cublas"]
    assert notes == {"cusparselt": {"failed": "cuSPARSELt not supported"}}
