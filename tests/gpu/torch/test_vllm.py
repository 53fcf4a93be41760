"""Layers of a stand-in for vLLM on a GPU: timed, captured at sizes that were prepared, and reloaded under their graphs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import louver

torch: Any = pytest.importorskip("torch")
pytest.importorskip("transformers")

from louver.torch.vllm import register  # noqa: E402
from support import vllm_stub  # noqa: E402

K, ROWS = 1024, [512, 256, 256]
SIZES = [1, 8, 24]


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    for modules in vllm_stub.installed(monkeypatch):
        register()
        modules["vllm.config"].current.compilation_config.cudagraph_capture_sizes = SIZES
        yield modules


def pruned(rows: int, seed: int) -> Any:
    generator = torch.Generator("cuda").manual_seed(seed)
    return louver.prune(torch.randn(rows, K, generator=generator, device="cuda").bfloat16() / 8, "2:4")


def tokens(count: int) -> Any:
    return torch.randn(count, K, device="cuda").bfloat16()


def layer(stub: dict[str, Any], seed: int, **options: Any) -> tuple[Any, Any, Any]:
    """A merged layer, its dense weight, and its configuration."""
    kind = stub["vllm.model_executor.layers.quantization"].registered["louver"]
    config = kind.from_config({"quant_method": "louver", **options})
    config.packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}
    parts = [pruned(rows, seed + at) for at, rows in enumerate(ROWS)]
    with torch.device("cuda"):
        made = stub["vllm.model_executor.layers.linear"].LinearBase(K, ROWS, config, "a.qkv_proj", bias=True)
    return made.load(*parts).process(), torch.cat(parts), config


def captured(made: Any, x: Any) -> tuple[Any, Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        y, _ = made(x)
    return graph, y


def close(y: Any, exact: Any, to: str | None) -> None:
    error = (y.float() - exact).norm() / exact.norm()
    assert error < (0.006 if to is None else 0.08), error


@pytest.mark.parametrize("to", [None, "e4m3"])
def test_graphs_of_prepared_sizes_follow_a_reload(stub: dict[str, Any], to: str | None) -> None:
    """No call runs before the captures, so they would raise if anything was left to compile or to derive."""
    made, dense, _ = layer(stub, 0, force=True, to=to)
    inputs = [tokens(n) for n in SIZES]
    runs = [captured(made, x) for x in inputs]
    new = [pruned(rows, 50 + at) for at, rows in enumerate(ROWS)]
    for weight in (dense, torch.cat(new)):
        for x, (graph, y) in zip(inputs, runs, strict=True):
            graph.replay()
            exact = torch.nn.functional.linear(x.float(), weight.float(), made.bias.float())
            close(y, exact, to)
            with torch.inference_mode():
                assert torch.equal(made(x)[0], y)
        with torch.device("cuda"):
            made.reload(*new)
    assert made.weight.numel() == 0


class Block(torch.nn.Module):
    """Gate and up as vLLM merges them, and its activation."""

    def __init__(self, stub: dict[str, Any], config: Any) -> None:
        super().__init__()
        with torch.device("cuda"):
            self.pair = stub["vllm.model_executor.layers.linear"].LinearBase(K, [512, 512], config, "mlp.gate_up_proj")
        self.act = Act()

    def forward(self, x: Any) -> Any:
        return self.act(self.pair(x)[0])


class Act(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        gate, up = x.chunk(2, -1)
        return torch.nn.functional.silu(gate) * up


@pytest.mark.parametrize("to", [None, "e4m3"])
def test_graphs_of_a_joined_block_follow_a_reload(stub: dict[str, Any], to: str | None) -> None:
    kind = stub["vllm.model_executor.layers.quantization"].registered["louver"]
    config = kind.from_config({"quant_method": "louver", "force": True, "to": to})
    block = Block(stub, config)
    old, new = ([pruned(512, seed), pruned(512, seed + 1)] for seed in (20, 30))
    block.pair.load(*old).process()
    assert block.pair.louver.gated.activation == "silu"
    inputs = [tokens(n) for n in SIZES]
    runs = [captured(lambda x: (block(x), None), x) for x in inputs]
    for gate, up in (old, new):
        for x, (graph, y) in zip(inputs, runs, strict=True):
            graph.replay()
            first, second = (torch.nn.functional.linear(x.float(), w.float()) for w in (gate, up))
            close(y, torch.nn.functional.silu(first) * second, to)
        with torch.device("cuda"):
            block.pair.reload(*new)


def test_a_layer_that_would_be_slower_stays_vllms(stub: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from louver.torch.gain import Gain

    made, dense, config = layer(stub, 3)
    row = config.report["a.qkv_proj"]
    assert sorted(row.dense_us) == sorted(row.sparse_us) == [1, 16, 2048]
    faster = sum(row.sparse_us[n] / row.dense_us[n] for n in row.dense_us) < 3
    assert (row.done == "sparse") == faster and "of the dense time at 1, 16, 2048 tokens" in row.reason
    monkeypatch.setattr("louver.torch.swap.measure", lambda *_: Gain({1: 1.0}, {1: 1.1}))
    made, dense, config = layer(stub, 3, tokens=[1])
    assert config.report["a.qkv_proj"].reason == "takes 1.10 of the dense time at 1 tokens"
    x = tokens(4)
    assert torch.equal(made(x)[0], torch.nn.functional.linear(x, dense, made.bias))


@pytest.mark.parametrize("to", [None, "e4m3"])
def test_a_compiled_layer(stub: dict[str, Any], to: str | None) -> None:
    made, dense, _ = layer(stub, 7, force=True, to=to)
    x = tokens(24)
    with torch.inference_mode():
        y, _ = torch.compile(made, fullgraph=True)(x)
    exact = torch.nn.functional.linear(x.float(), dense.float(), made.bias.float())
    close(y, exact, to)


def test_the_dense_weight_is_freed(stub: dict[str, Any]) -> None:
    before = torch.cuda.memory_allocated()
    made, dense, _ = layer(stub, 9, force=True)
    del dense
    torch.cuda.synchronize()
    held = made.louver.weight
    sparse = held.values.nbytes + held.indices.nbytes
    # The generators' own blocks are small.
    assert torch.cuda.memory_allocated() - before < sparse + 2**19 < K * sum(ROWS) * 2
