"""Weights of vectors and their verification, with PyTorch on the CPU in the place of the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.measure import vectors as module
from louver.measure.nm import KINDS, contenders
from louver.measure.protocol import Protocol
from louver.measure.vectors import Drawn, drawn, microseconds
from support.torch_on_cpu import OnCpu


@pytest.fixture
def torch() -> Any:
    return OnCpu(pytest.importorskip("torch"))


def draw(torch: Any, m: int, k: int, pattern: str, dtype: str = "f32") -> Drawn:
    return drawn(torch, torch.Generator().manual_seed(0), m, k, Pattern.parse(pattern), dtype)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("pattern", ["4:32@32", "12:32@20", "3:5"])
def test_all_forms_are_one_weight(torch: Any, pattern: str, dtype: str) -> None:
    given = draw(torch, 72, 100, pattern, dtype)
    s = given.sparse()
    dense = module.on_host(torch, given.dense, dtype)
    assert s.dense().tobytes() == dense.tobytes() and dense.dtype == element_type(dtype).numpy
    assert np.count_nonzero(dense) == np.count_nonzero(given.values) > 0


@pytest.mark.filterwarnings("ignore:louver computes by the reference path")
def test_both_layouts_are_right_and_a_wrong_result_is_found(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "prepare", lambda *_: type("Load", (), {"burst": staticmethod(lambda: 2e-6)}))
    given = [draw(torch, 96, 128, pattern) for pattern in ("16:32@32", "4:32@32")]
    b = torch.randn(128, 40)
    found = contenders(torch, given, {each.pattern: each.sparse() for each in given}, b)
    protocol = Protocol(rounds=1, pause_seconds=0)
    us = microseconds(torch, found, b, "f32", "16:32@32", protocol)
    assert us == {f"{name} {kind}": 2.0 for name in ("cublas", "16:32@32", "4:32@32") for kind in KINDS}
    given[1].dense[:, 5] += 0.5
    with pytest.raises(
        ArithmeticError, match="4:32@32 matmul computes wrongly at 96×40×128, 16:32@32: .* are out of bounds"
    ):
        microseconds(torch, found, b, "f32", "16:32@32", protocol)
