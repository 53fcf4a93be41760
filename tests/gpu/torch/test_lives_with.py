"""Sparse layers on a GPU beside PEFT and accelerate, known calls, and gradients by transposable masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import louver
import louver.torch
from support.torch_weights import close

torch: Any = pytest.importorskip("torch")

from louver.torch.core import cores  # noqa: E402
from louver.torch.known import known_products  # noqa: E402
from louver.torch.linear import SparseLinear  # noqa: E402
from louver.torch.tensor import SparseTensor  # noqa: E402

nn, F = torch.nn, torch.nn.functional
SIZE, ROWS = 256, 384


def model() -> Any:
    torch.manual_seed(3)
    made = nn.Sequential(nn.Linear(SIZE, ROWS), nn.SiLU(), nn.Linear(ROWS, SIZE, bias=False)).cuda().bfloat16()
    louver.torch.prune_(made)
    louver.torch.compress_(made, force=True)
    return made


def tokens(count: int = 5) -> Any:
    return torch.randn(count, SIZE, device="cuda").bfloat16()


def test_adapters_train_beside_sparse_weights(tmp_path: Path) -> None:
    peft: Any = pytest.importorskip("peft")
    from louver.torch.peft import lora

    config = peft.LoraConfig(target_modules=["0", "2"], r=4, init_lora_weights=False)
    made, x = peft.get_peft_model(model(), lora(config)), tokens()
    expected = made(x)
    made(x).float().square().mean().backward()
    assert all(each.grad is not None for name, each in made.named_parameters() if "lora_" in name)
    made.save_pretrained(tmp_path)
    found = lora(peft.LoraConfig.from_pretrained(tmp_path))
    loaded = peft.PeftModel.from_pretrained(model(), tmp_path, config=found)
    close(torch, loaded(x), expected, 0.01)
    louver.torch.decompress_(made)
    close(torch, made.merge_and_unload()(x), expected, 0.03)


@pytest.mark.parametrize("kind", [None, "e4m3", "int8"])
def test_weights_offloaded_to_the_host_come_for_each_product(kind: Any, tmp_path: Path) -> None:
    accelerate: Any = pytest.importorskip("accelerate")
    made, expected, x = model(), model(), tokens()
    for each in (made, expected):
        if kind:
            louver.torch.quantize_(each, kind)
    wanted = expected(x)
    held = torch.cuda.memory_allocated()
    made = accelerate.cpu_offload(made, execution_device=torch.device("cuda", 0))
    assert torch.cuda.memory_allocated() < held
    for _ in range(3):
        close(torch, made(x), wanted, 1e-3)
    made = accelerate.dispatch_model(model(), {"0": 0, "1": 0, "2": "disk"}, offload_dir=str(tmp_path), main_device=0)
    close(torch, made(x), model()(x), 1e-3)


def test_known_calls_follow_what_changes() -> None:

    layer = model()[0]
    weight = layer.weight
    weight.values.requires_grad_(False)
    arrays = (weight.values, weight.indices)
    for count in (5, 1, 5, 64):
        x = tokens(count)
        with torch.no_grad():
            for _ in range(3):
                close(torch, layer(x), F.linear(x, weight.dense(), layer.bias), 0.02)
            assert known_products().launched(x, *arrays, None, "2:4", None, False) is None  # with a bias
            assert known_products().launched(x, *arrays, layer.bias, "2:4", None, False) is not None
    x = tokens()
    with torch.no_grad():
        weight.values.mul_(2)
        close(torch, layer(x), F.linear(x, weight.dense(), layer.bias), 0.02)
        weight.copy_(SparseLinear(SIZE, ROWS, device="cuda", dtype=torch.bfloat16).weight)
        close(torch, layer(x), F.linear(x, weight.dense(), layer.bias), 0.02)
        with torch.autocast("cuda", torch.float16):
            assert layer(x).dtype == torch.float16
        assert layer(x).dtype == torch.bfloat16
    x.requires_grad_()
    layer(x).sum().backward()
    assert x.grad is not None and layer.bias.grad is not None
    with torch.inference_mode():
        close(torch, layer(x), F.linear(x, weight.dense(), layer.bias), 0.02)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        close(torch, layer(x), F.linear(x, weight.dense(), layer.bias), 0.02)
    stream.synchronize()


def test_a_freed_tensor_leaves_no_known_call() -> None:
    s = nn.Parameter(SparseTensor.of(torch.randn(ROWS, SIZE, device="cuda").bfloat16(), prune=True), False)
    before = len(known_products())
    with torch.no_grad():
        F.linear(tokens(), s)
    assert len(known_products()) == before + 1
    count = len(cores())
    del s
    assert len(known_products()) == before and len(cores()) < count


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("frozen", [False, True])
def test_transposable_masks_have_sparse_gradients(dtype: str, frozen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from louver.torch import turned

    seen: list[Any] = []
    multiply = louver.linear

    def counted(x: Any, s: Any, *rest: Any, **options: Any) -> Any:
        seen.append(s.shape)
        return multiply(x, s, *rest, **options)

    monkeypatch.setattr(turned.louver, "linear", counted)
    kind = getattr(torch, dtype)
    dense = nn.Linear(SIZE, ROWS, device="cuda", dtype=kind)
    with torch.no_grad():
        dense.weight.copy_(louver.prune(dense.weight.detach(), "2:4", transposable=True))
    sparse = SparseLinear.of(dense)
    assert sparse.weight.is_transposable
    sparse.weight.values.requires_grad_(not frozen)
    for count in (1, 7, 300):
        grads: list[Any] = []
        start = torch.randn(count, SIZE, device="cuda").to(kind)
        for layer in (dense, sparse):
            x = start.clone().requires_grad_()
            layer(x).float().square().sum().backward()
            grads.append(x.grad)
        close(torch, grads[1], grads[0], 0.02)
    assert seen.count((SIZE, ROWS)) == 3


def test_a_captured_backward_pass() -> None:
    dense = nn.Linear(SIZE, ROWS, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        dense.weight.copy_(louver.prune(dense.weight.detach(), "2:4", transposable=True))
    sparse = SparseLinear.of(dense)
    sparse.weight.values.requires_grad_(False)
    x = tokens(64).requires_grad_()
    for _ in range(2):
        (eager,) = torch.autograd.grad(sparse(x).float().sum(), x)
    called = torch.cuda.make_graphed_callables(sparse, (x.detach().clone().requires_grad_(),))
    (graphed,) = torch.autograd.grad(called(x).float().sum(), x)
    close(torch, graphed, eager, 1e-3)
