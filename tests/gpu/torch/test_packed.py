"""Packed indices on a GPU: one form of the indices in memory, right products, and natural indices on demand."""

from __future__ import annotations

from typing import Any

import pytest

from support.torch_weights import close

WIDTH, ROWS = 1024, 512


@pytest.fixture
def layer(torch: Any) -> Any:
    from louver.torch.linear import SparseLinear

    torch.manual_seed(40)
    return SparseLinear(WIDTH, ROWS, dtype=torch.bfloat16, device="cuda").requires_grad_(False)


def expected(layer: Any, x: Any) -> Any:
    return x.double() @ layer.weight.dense().double().t() + layer.bias.double()


def forms(layer: Any) -> list[Any]:
    from louver.library.state import TensorState
    from louver.torch.core import cores

    (kept,) = cores().find(layer.weight.values, layer.weight.places)
    return kept.derived.of(TensorState).forms()


@pytest.mark.parametrize("kind", ["bf16", "e4m3"])
@pytest.mark.parametrize("n", [1, 16, 300])
def test_products_read_the_packed_indices_in_place(torch: Any, layer: Any, n: int, kind: str) -> None:
    import louver.torch

    model = torch.nn.Sequential(layer)
    layer.weight.pack_()
    if kind == "e4m3":
        louver.torch.quantize_(model, "e4m3")
    x = torch.randn(n, WIDTH, device="cuda").bfloat16()
    for _ in range(3):
        close(torch, model(x), expected(layer, x), 0.02 if kind == "bf16" else 0.06)
    metadata = [form for form in forms(layer) if not form.form.of_values]
    assert [form.address for form in metadata] == [layer.weight.places.data_ptr()]
    assert louver.torch.verify(model) == {}


def test_gradients_and_the_dense_weight(torch: Any, layer: Any) -> None:
    wanted = layer.weight.dense()
    layer.weight.pack_()
    assert torch.equal(layer.weight.dense(), wanted)
    x = torch.randn(64, WIDTH, device="cuda").bfloat16().requires_grad_()
    layer(x).sum().backward()
    close(torch, x.grad, torch.ones(64, ROWS, device="cuda").double() @ wanted.double(), 0.02)


def test_a_graph_goes_on_when_natural_indices_are_asked_for(torch: Any, layer: Any) -> None:
    import gc

    layer.weight.pack_()
    x = torch.randn(16, WIDTH, device="cuda").bfloat16()
    y = layer(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = layer(x)
    natural = layer.weight.indices
    assert natural.dtype == torch.uint8
    gc.collect()
    # Memory that was freed would be given out here.
    spoiled = [torch.full((ROWS * WIDTH // 8,), 255, dtype=torch.uint8, device="cuda") for _ in range(64)]
    y.zero_()
    graph.replay()
    close(torch, y, expected(layer, x), 0.02)
    close(torch, layer(x), expected(layer, x), 0.02)
    assert len(spoiled) == 64


def test_a_compressed_model_is_packed_and_moves_back(torch: Any) -> None:
    import louver.torch
    from louver.torch.columns import is_packed

    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, ROWS, bias=False)).bfloat16().cuda().requires_grad_(False)
    louver.torch.prune_(model)
    dense = model[0].weight.detach().clone()
    louver.torch.compress_(model, force=True)
    weight = model[0].weight
    assert is_packed(weight.places)
    state = model.state_dict()
    assert state["0.weight.indices"].dtype == torch.uint8
    assert torch.equal(torch.ops.louver.dense(state["0.weight.values"], state["0.weight.indices"], WIDTH), dense)
    other = model.to("cpu")[0].weight
    assert not is_packed(other.places)
    assert torch.equal(other.dense(), dense.cpu())


def test_generated_code_launches_and_is_right(torch: Any, layer: Any) -> None:
    layer.weight.pack_()
    compiled = torch.compile(layer, fullgraph=True)
    for n in (16, 16, 300):
        x = torch.randn(n, WIDTH, device="cuda").bfloat16()
        for _ in range(3):
            close(torch, compiled(x), expected(layer, x), 0.02)
