"""`SparseLinear`: a module as any other, whose products follow every change of its parameters."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import pytest

import louver
from support.torch_weights import PATTERNS, close

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

from louver.torch.linear import SparseLinear, SparseWeight  # noqa: E402

SIZE, ROWS = 48, 24


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(7)
    torch._dynamo.reset()


@pytest.fixture
def layer() -> Any:
    return SparseLinear(SIZE, ROWS, dtype=torch.bfloat16).requires_grad_(False)


def tokens(dtype: Any = None) -> Any:
    return torch.randn(2, 3, SIZE).to(dtype or torch.bfloat16)


def right(layer: Any, x: Any | None = None) -> Any:
    """The output, which is that of the present parameters."""
    x = tokens(layer.weight.dtype) if x is None else x
    y = layer(x)
    bias = None if layer.bias is None else layer.bias.float()
    close(torch, y, torch.nn.functional.linear(x.float(), layer.weight.dense().float(), bias))
    return y


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("pattern", "dtype"), PATTERNS)
def test_a_new_module_is_random_and_keeps_its_pattern(pattern: str, dtype: str, bias: bool) -> None:
    layer = SparseLinear(SIZE, ROWS, bias, pattern, dtype=getattr(torch, dtype))
    dense = layer.weight.dense()
    assert louver.check(dense.detach(), pattern, exact=True).ok
    assert dense.std() > 0.03
    right(layer)


@pytest.mark.parametrize(("pattern", "dtype"), PATTERNS)
def test_dense_layers_there_and_back_are_equal(pattern: str, dtype: str) -> None:
    dense = torch.nn.Linear(SIZE, ROWS).to(getattr(torch, dtype)).eval()
    dense.weight.data = SparseLinear.of(dense, pattern, prune=True).weight.dense()
    layer = SparseLinear.of(dense, pattern)
    back = layer.linear()
    assert torch.equal(back.weight, dense.weight) and back.bias is dense.bias is layer.bias
    assert not layer.training and not back.training
    assert layer.weight.values.requires_grad and back.weight.requires_grad


def test_a_dense_layer_that_keeps_no_pattern_is_refused() -> None:
    with pytest.raises(ValueError, match="2:4"):
        SparseLinear.of(torch.nn.Linear(SIZE, ROWS))


def test_state_dict_has_the_names_of_files(layer: Any, tmp_path: Path) -> None:
    assert list(layer.state_dict()) == ["bias", "weight.values", "weight.indices"]
    state = {name: x.clone() for name, x in layer.state_dict().items()}
    louver.save(tmp_path / "w.safetensors", {"weight": louver.compress(layer.weight.dense(), "2:4")})
    safetensors = pytest.importorskip("safetensors.torch")
    stored = safetensors.load_file(tmp_path / "w.safetensors")
    assert set(stored) == {"weight.values", "weight.indices"}
    assert all(torch.equal(stored[name], state[name]) for name in stored)


@pytest.mark.parametrize("assign", [True, False])
def test_products_follow_load_state_dict(layer: Any, assign: bool) -> None:
    before = right(layer, x := tokens())
    other = SparseLinear(SIZE, ROWS, dtype=torch.bfloat16)
    layer.load_state_dict(other.state_dict(), assign=assign)
    assert not torch.equal(right(layer, x), before)


def test_products_follow_copies_under_no_grad(layer: Any) -> None:
    x, other = tokens(), SparseLinear(SIZE, ROWS, dtype=torch.bfloat16)
    before = right(layer, x)
    layer.weight.copy_(other.weight)
    assert not torch.equal(right(layer, x), before)
    with torch.no_grad():
        layer.weight.values.copy_(torch.randn_like(layer.weight.values))
    right(layer, x)
    with pytest.raises(ValueError, match=r"\[24, 48\] 2:4, got \[24, 48\] 1:4"):
        layer.weight.copy_(SparseWeight(ROWS, SIZE, "1:4"))


@pytest.mark.parametrize("write", ["data", "dlpack"])
def test_products_follow_uncounted_writes_after_refresh(layer: Any, write: str) -> None:
    right(layer, x := tokens())
    if write == "data":
        layer.weight.values.data.mul_(-2)
    else:
        bits = layer.weight.values.detach().view(torch.int16)
        torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(bits)).bitwise_xor_(-(2**15))
    layer.weight.refresh_()
    right(layer, x)


def test_to_changes_type_and_device(layer: Any) -> None:
    right(layer)
    layer.half()
    assert (layer.weight.dtype, layer.weight.indices.dtype) == (torch.float16, torch.uint8)
    right(layer)
    layer.to(torch.float32)
    right(layer)
    assert layer.to("meta").weight.device.type == "meta"


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8"])
def test_the_type_of_a_quantized_weight_never_changes(dtype: str) -> None:
    weight = SparseWeight(ROWS, SIZE, dtype=getattr(torch, dtype))
    assert not weight.values.requires_grad
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), weight).half().to(torch.bfloat16)
    assert (model[0].weight.dtype, model[1].dtype) == (torch.bfloat16, getattr(torch, dtype))


def test_meta_then_materialized(layer: Any) -> None:
    x = tokens()
    with torch.device("meta"):
        made = SparseLinear(SIZE, ROWS, dtype=torch.bfloat16)
    assert made(x.to("meta")).shape == (2, 3, ROWS)
    made.load_state_dict(layer.state_dict(), assign=True)
    assert torch.equal(made(x), layer(x))
    with torch.device("meta"):
        empty = SparseLinear(SIZE, ROWS, dtype=torch.bfloat16)
    empty.to_empty(device="cpu").load_state_dict(layer.state_dict())
    assert torch.equal(empty(x), layer(x))


@pytest.mark.parametrize("again", ["deepcopy", "pickle", "save"])
def test_copies_are_modules_of_their_own(layer: Any, again: str) -> None:
    y = right(layer, x := tokens())
    if again == "deepcopy":
        other = copy.deepcopy(layer)
    elif again == "pickle":
        other = pickle.loads(pickle.dumps(layer))
    else:
        file = io.BytesIO()
        torch.save(layer.state_dict(), file)
        file.seek(0)
        other = SparseLinear(SIZE, ROWS, dtype=torch.bfloat16)
        other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(x), y)
    with torch.no_grad():
        other.weight.values.mul_(2)
    right(other, x)
    assert torch.equal(layer(x), y)


def test_two_modules_share_one_weight(layer: Any) -> None:
    other = SparseLinear(SIZE, ROWS, False, dtype=torch.bfloat16)
    other.weight = layer.weight
    right(layer, x := tokens())
    with torch.no_grad():
        layer.weight.values.mul_(2)
    right(other, x)
    right(layer, x)


def test_autocast_converts_as_a_dense_layer_does() -> None:
    layer, x = SparseLinear(SIZE, ROWS), torch.randn(2, SIZE)
    dense = layer.linear()
    with torch.autocast("cpu", torch.bfloat16):
        y, expected = layer(x), dense(x)
        assert y.dtype == expected.dtype == torch.bfloat16
        close(torch, y, expected)
    y.float().sum().backward()
    assert layer.weight.values.grad.dtype == torch.float32


def test_inference_mode(layer: Any) -> None:
    with torch.inference_mode():
        right(layer, x := tokens())
        layer.weight.values.mul_(2)
        right(layer, x)
        made = SparseLinear.of(layer.linear())
    assert not made.weight.values.is_inference()
    right(made, x.clone())


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_makes_one_graph(layer: Any, backend: str) -> None:
    model = torch.nn.Sequential(layer, torch.nn.SiLU(), SparseLinear(ROWS, SIZE, dtype=torch.bfloat16)).requires_grad_(
        False
    )
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    x = tokens()
    close(torch, compiled(x), model(x))
    with torch.no_grad():
        layer.weight.values.mul_(2)
    close(torch, compiled(x), model(x))


def test_compile_serves_equal_blocks_and_any_token_count_with_few_graphs() -> None:
    blocks = [SparseLinear(SIZE, SIZE, dtype=torch.bfloat16).requires_grad_(False) for _ in range(3)]
    graphs = []

    def count(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    for block in blocks:
        block.compile(backend=count, fullgraph=True)
    for n in (3, 5, 9, 17):
        x = torch.randn(n, SIZE).bfloat16()
        for block in blocks:
            close(torch, block(x), x.float() @ block.weight.dense().float().t() + block.bias.float())
    assert len(graphs) <= 2


def test_compiled_training_follows_the_optimizer() -> None:
    layer = SparseLinear(SIZE, ROWS)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.05, fused=False, foreach=True)
    x = torch.randn(5, SIZE)
    for _ in range(3):
        y = compiled(x)
        close(torch, y, x @ layer.weight.dense().t() + layer.bias, 1e-4)
        y.square().sum().backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def test_export(layer: Any) -> None:
    x = tokens()
    exported = torch.export.export(layer, (x,), dynamic_shapes=({1: torch.export.Dim("tokens", min=2, max=64)},))
    assert torch.equal(exported.module()(x), layer(x))
    assert torch.equal(exported.module()(x[:, :2]), layer(x[:, :2]))


def test_functional_call(layer: Any) -> None:
    x, other = tokens(), SparseLinear(SIZE, ROWS, dtype=torch.bfloat16)
    assert torch.equal(torch.func.functional_call(layer, dict(other.named_parameters()), (x,)), other(x))


def test_transforms_of_functions_are_refused() -> None:
    layer = SparseLinear(SIZE, ROWS)
    layer.weight.values.requires_grad_(False)
    layer.bias.requires_grad_(False)
    with pytest.raises(ValueError, match="call Louver outside the transform"):
        torch.func.vmap(layer)(torch.randn(4, 5, SIZE))
    with pytest.raises(RuntimeError, match="functorch"):
        torch.func.grad(lambda x: layer(x).sum())(torch.randn(5, SIZE))


def test_activation_checkpoints() -> None:
    layer, x = SparseLinear(SIZE, ROWS), torch.randn(3, SIZE).requires_grad_()
    torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).square().sum().backward()
    again = x.detach().clone().requires_grad_()
    layer(again).square().sum().backward()
    assert torch.equal(x.grad, again.grad)


def test_modes_see_the_operator(layer: Any) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = tokens()
    expected = layer(x)
    with Recorder():
        assert torch.equal(layer(x), expected)
    assert seen[0] == "louver.linear.default"
    traced = make_fx(layer)(x)
    assert "torch.ops.louver.linear.default" in traced.code and torch.equal(traced(2 * x), layer(2 * x))
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert layer(x).shape == (2, 3, ROWS)
