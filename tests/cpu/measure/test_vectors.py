"""Weights of vectors and their verification, with PyTorch on the CPU in the place of the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.measure import vectors as module
from louver.measure.contenders import copies_of
from louver.measure.nm import KINDS, contenders
from louver.measure.operands import converted
from louver.measure.protocol import Protocol
from louver.measure.vectors import Drawn, Multiplied, drawn, microseconds
from support.torch_on_cpu import OnCpu


@pytest.fixture
def torch() -> Any:
    return OnCpu(pytest.importorskip("torch"))


def draw(torch: Any, m: int, k: int, pattern: str, dtype: str = "f32") -> Drawn:
    return drawn(torch, torch.Generator().manual_seed(0), m, k, Pattern.parse(pattern), dtype)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "e4m3", "s8"])
@pytest.mark.parametrize("pattern", ["4:32@32", "12:32@20", "3:5"])
def test_all_forms_are_one_weight(torch: Any, pattern: str, dtype: str) -> None:
    given = draw(torch, 72, 100, pattern, dtype)
    s = given.sparse
    dense = module.on_host(torch, given.dense, dtype)
    assert s.dense().tobytes() == dense.tobytes() and dense.dtype == element_type(dtype).numpy
    assert np.count_nonzero(dense) == np.count_nonzero(s.values) > 0


@pytest.mark.parametrize(("dtype", "out"), [("e4m3", "bfloat16"), ("s8", "int32")])
def test_contenders_of_8_bits_are_checked(torch: Any, monkeypatch: pytest.MonkeyPatch, dtype: str, out: str) -> None:
    monkeypatch.setattr(module, "prepare", lambda *_: type("Load", (), {"burst": staticmethod(lambda: 2e-6)}))
    given = draw(torch, 96, 128, "4:32@32", dtype)
    b = converted(torch, torch.randn(128, 40), dtype)
    y = torch.empty(96, 40, dtype=getattr(torch, out))
    exact = given.dense.double() @ b.double()
    found = {"right": Multiplied(given.dense, lambda _: y.copy_(exact), y)}
    assert microseconds(torch, found, b, dtype, "4:32@32", Protocol(rounds=1, pause_seconds=0)) == {"right": 2.0}
    found = {"idle": Multiplied(given.dense, lambda _: None, y)}
    with pytest.raises(ArithmeticError, match="idle computes wrongly at 96×40×128, 4:32@32"):
        microseconds(torch, found, b, dtype, "4:32@32", Protocol(rounds=1, pause_seconds=0))


@pytest.mark.filterwarnings("ignore:louver computes by the reference path")
def test_both_layouts_are_right_and_a_wrong_result_is_found(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "prepare", lambda *_: type("Load", (), {"burst": staticmethod(lambda: 2e-6)}))
    given = [draw(torch, 96, 128, pattern) for pattern in ("16:32@32", "4:32@32")]
    b = torch.randn(128, 40)
    protocol = Protocol(rounds=1, pause_seconds=0, rotation_bytes=20_000)
    found = contenders(torch, given, b, protocol.sets)
    assert {name: each.sets for name, each in found.items()} == {
        f"{name} {kind}": sets for name, sets in (("cublas", 2), ("16:32@32", 2), ("4:32@32", 4)) for kind in KINDS
    }
    copies = {"copy": copies_of(torch, 1000, 2)}
    us = microseconds(torch, found, b, "f32", "16:32@32", protocol, copies)
    assert us == {"copy": 2.0} | {f"{name} {kind}": 2.0 for name in ("cublas", "16:32@32", "4:32@32") for kind in KINDS}
    given[1].dense[:, 5] += 0.5
    with pytest.raises(
        ArithmeticError, match="4:32@32 matmul computes wrongly at 96×40×128, 16:32@32: .* are out of bounds"
    ):
        microseconds(torch, found, b, "f32", "16:32@32", protocol)
