"""The layers that `louver bench serve` times: all sides compute the same, and the rows of a run are those asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import louver.torch

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

from louver.cli.commands.model import bench_serve  # noqa: E402
from louver.library import prepare  # noqa: E402
from louver.measure.model import serve, sides  # noqa: E402
from louver.measure.model.stack import Shape, Stack  # noqa: E402
from louver.measure.protocol import Budget  # noqa: E402
from louver.measure.report.serve import CASES, LAYER, TOKENS  # noqa: E402
from louver.runtime.device import Device  # noqa: E402

SHAPE = Shape(width=64, inner=96, heads=4, key_heads=2, head=16, blocks=1, vocabulary=50)


@pytest.fixture(autouse=True)
def eager() -> Iterator[None]:
    # No compiler is needed here.
    with torch.compiler.set_stance("force_eager"):
        yield


def pruned(*_: Any, **__: Any) -> Any:
    torch.manual_seed(5)
    stack = Stack(SHAPE, 1, head=False).bfloat16().eval().requires_grad_(False)
    louver.torch.prune_(stack)
    return stack


def distance(found: Any, wanted: Any) -> float:
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


def whole(y: Any) -> Any:
    return y if isinstance(y, torch.Tensor) else torch.cat(list(y), -1)


@pytest.mark.parametrize("case", CASES)
def test_all_sides_compute_the_same(case: str) -> None:
    stack = pruned()
    plain, layer = serve.dense(stack, scaled=False), serve.sparse(stack)
    x = torch.randn(5, 96 if case == "down" else 64).bfloat16()
    with torch.no_grad():
        on = serve.call(case, x)
        wanted = whole(on(plain))
        assert wanted.shape == (5, {"qkv": 128, "gate_up": 96}.get(case, 64))
        assert distance(whole(on(layer)), wanted) < 0.02
        assert 0 < distance(whole(on(serve.rounded(layer))), wanted) < 0.2
        scaled = serve.dense(stack, scaled=True)
        assert 0 < distance(whole(on(scaled)), wanted) < 0.2


def test_the_layer_is_all_products_in_order() -> None:
    layer, x = serve.dense(pruned(), scaled=False), torch.randn(3, 64).bfloat16()
    with torch.no_grad():
        y = layer.o(x)
        assert torch.equal(serve.call(LAYER, x)(layer), layer.down(layer.gate_up(y)))


class Ending(Budget):
    """A budget that ends before its third part."""

    asked = 0

    def suffices(self) -> bool:
        self.asked += 1
        # Each number of tokens asks once, and each of its five cases.
        return self.asked <= 12


def test_rows_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[Callable[[], Any]] = []

    def captured(call: Callable[[], Any]) -> Callable[[], Any]:
        graphs.append(call)
        return call

    def in_turns(calls: Mapping[str, Callable[[], Any]], *, graphs: bool) -> dict[str, float]:
        assert graphs
        for call in calls.values():
            call()
        return {side: 0.8 if side.startswith("dense") else 0.4 for side in calls}

    def made(tokens: Any, budget: Any, say: Any) -> sides.Run:
        stack, run = pruned(), sides.Run("Llama 3 8B", SHAPE, budget, say, serve.OVER)
        run.sides = {"dense bf16": [serve.dense(stack, scaled=False)], "sparse bf16": [serve.sparse(stack)]}
        run.reasons["dense e4m3"] = "RuntimeError: none here"
        return run

    def given(run: sides.Run, case: str, n: int) -> Any:
        return torch.randn(n, SHAPE.inner if case == "down" else SHAPE.width).bfloat16()

    monkeypatch.setattr(sides, "captured", captured)
    monkeypatch.setattr(sides, "in_turns", in_turns)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(serve, "_made", made)
    monkeypatch.setattr(serve, "_input", given)
    kept: list[int] = []
    _, rows = serve.measure_serve((1, 3, 8), Budget(None), lambda _: None, lambda _, rows: kept.append(len(rows)))
    assert kept == [5, 10, 15] and len(graphs) == 30
    assert [row["tokens"] for row in rows[::5]] == [1, 8, 3]
    assert [row["case"] for row in rows[:5]] == list(CASES)
    assert rows[0]["ms"] == {"dense bf16": 0.1, "sparse bf16": 0.05}
    assert rows[0]["reasons"] == {"dense e4m3": "RuntimeError: none here"}
    facts, rows = serve.measure_serve((1, 3, 8), Ending(None), lambda _: None, lambda *_: None)
    assert facts["missing"] == [3] and len(rows) == 10


def test_a_run_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Device(0, "NVIDIA H100", (9, 0), 132, 232448, 50 << 20, 80 << 30, (13, 0))
    compiled: dict[Any, Any] = {}
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(prepare, "require_device", lambda: place)
    monkeypatch.setattr(serve, "device", lambda _: place)
    monkeypatch.setattr(serve, "compile_all", lambda kernels, target: compiled.update(kernels) or {})
    monkeypatch.setattr(serve, "pruned_stack", pruned)
    monkeypatch.setitem(serve.SHAPES, "Llama 3 8B", SHAPE)
    monkeypatch.setattr(serve, "_input", lambda run, case, n: torch.randn(n, 96 if case == "down" else 64).bfloat16())
    said: list[str] = []
    run = serve._made((1, 24, 512), Budget(None), said.append)
    assert not run.reasons and {len(layers) for layers in run.sides.values()} == {serve.LAYERS}
    # qkv, o, gate_up and down of two types; sizes of one type share kernels.
    problems = {problem for problem, _ in compiled}
    assert {problem.a for problem in problems} == {"bf16", "e4m3"} and any(each.epilogue.gated for each in problems)
    assert run.facts["kernels"] == len(compiled) > 6
    assert set(run.facts["difference"]) == {"sparse bf16", "dense e4m3", "sparse e4m3"}
    layers = run.sides["sparse e4m3"]
    pointers = {layer.down.weight.values.data_ptr() for layer in layers}
    assert len(pointers) == serve.LAYERS and layers[0].qkv.joint.dtype == torch.float8_e4m3fn


def test_tokens_are_the_captured_ones() -> None:
    assert TOKENS[:5] == (1, 2, 4, 8, 16) and TOKENS[-2:] == (496, 512) and len(TOKENS) == 51


def test_bad_text(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="numbers of sequences and tokens are whole, got 'x'"):
        bench_serve("x", tmp_path, budget=None)
    with pytest.raises(ValueError, match="numbers of tokens are positive, got 0"):
        bench_serve("8,0", tmp_path, budget=None)
