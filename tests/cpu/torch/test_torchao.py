"""torchao's `quantize_` with Louver's configuration: by torchao itself, and by a stub of its interface."""

from __future__ import annotations

import importlib
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import louver.torch
from support.torch_weights import close

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

from louver.torch.linear import SparseLinear  # noqa: E402

nn = torch.nn
OURS = "louver.torch.torchao"


def stub() -> dict[str, Any]:
    """Modules with what Louver uses of torchao."""
    config, handlers, api = (
        types.ModuleType(f"torchao.{name}") for name in ("core.config", "transform", "quantization")
    )
    known: dict[type, Callable[..., Any]] = {}

    def quantize_(model: Any, config: Any) -> None:
        for name, child in list(model.named_children()):
            if isinstance(child, nn.Linear):
                setattr(model, name, known[type(config)](child, config))
            else:
                quantize_(child, config)

    config.AOBaseConfig = type("AOBaseConfig", (), {})  # type: ignore[attr-defined]
    handlers.register_quantize_module_handler = lambda kind: lambda f: known.setdefault(kind, f)  # type: ignore[attr-defined]
    api.quantize_ = quantize_  # type: ignore[attr-defined]
    return {
        "torchao": types.ModuleType("torchao"),
        "torchao.core": types.ModuleType("torchao.core"),
        "torchao.core.config": config,
        "torchao.quantization": api,
        "torchao.quantization.transform_module": handlers,
    }


@pytest.fixture(params=["torchao", "stub"])
def torchao(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """`quantize_` of torchao, and `SparseConfig`."""
    if request.param == "torchao":
        with warnings.catch_warnings():
            # Parts of torchao that are not used here are deprecated, or were built for another PyTorch.
            warnings.simplefilter("ignore")
            pytest.importorskip("torchao")
    else:
        for name, module in stub().items():
            monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, OURS, raising=False)
    ours = importlib.import_module(OURS)
    yield importlib.import_module("torchao.quantization").quantize_, ours.SparseConfig
    sys.modules.pop(OURS, None)


def model() -> Any:
    torch.manual_seed(8)
    made = nn.Sequential(nn.Linear(48, 72), nn.GELU(), nn.Sequential(nn.Linear(72, 40, bias=False), nn.LayerNorm(40)))
    made = made.bfloat16().requires_grad_(False)
    louver.torch.prune_(made)
    return made


def test_layers_are_swapped(torchao: tuple[Any, Any]) -> None:
    quantize_, config = torchao
    made, x = model(), torch.randn(3, 48).bfloat16()
    expected, dense = made(x), made[0].weight.clone()
    quantize_(made, config())
    assert [type(each) for each in (made[0], made[2][0])] == [SparseLinear, SparseLinear]
    assert torch.equal(made[0].weight.dense(), dense)
    close(torch, made(x), expected, 0.02)


@pytest.mark.parametrize(("kind", "dtype"), [("e4m3", torch.float8_e4m3fn), ("int8", torch.int8)])
def test_weights_in_8_bits_are_those_of_quantize_(torchao: tuple[Any, Any], kind: str, dtype: Any) -> None:
    quantize_, config = torchao
    made, other, x = model(), model(), torch.randn(3, 48).bfloat16()
    quantize_(made, config(to=kind))
    louver.torch.compress_(other, force=True)
    louver.torch.quantize_(other, kind)
    assert made[0].weight.dtype == dtype
    assert torch.equal(made(x), other(x))


def test_layers_without_the_pattern_stay_and_are_named(torchao: tuple[Any, Any]) -> None:
    quantize_, config = torchao
    made = model()
    made[0] = nn.Linear(48, 72).bfloat16()
    before = made[0]
    said = r"Linear\(in_features=48, .* stays dense: .* groups have more non-zeros than 2:4 keeps"
    with pytest.warns(UserWarning, match=said):
        quantize_(made, config())
    assert made[0] is before and type(made[2][0]) is SparseLinear


def test_a_module_that_is_no_layer_stays(torchao: tuple[Any, Any]) -> None:
    quantize_, config = torchao
    if quantize_.__module__ == __name__:
        pytest.skip("the stub gives linear layers alone")
    made = model()
    with pytest.warns(UserWarning, match="LayerNorm.* stays as it is: it is no linear layer"):
        quantize_(made, config(), filter_fn=lambda module, _: isinstance(module, nn.LayerNorm))
    # A module of several layers is swapped as a whole.
    quantize_(made, config(), filter_fn=lambda module, name: name == "2")
    assert type(made[0]) is nn.Linear and type(made[2][0]) is SparseLinear


def test_bad_arguments(torchao: tuple[Any, Any]) -> None:
    _, config = torchao
    with pytest.raises(ValueError, match='a weight is quantized to "e4m3" or "int8", got \'fp4\''):
        config(to="fp4")
    with pytest.raises(ValueError, match="pattern"):
        config(pattern="many")


@pytest.mark.parametrize("missing", ["torchao", "torchao.quantization.transform_module"])
def test_another_interface_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    for name, module in stub().items():
        monkeypatch.setitem(sys.modules, name, None if name.startswith(missing) else module)
    monkeypatch.delitem(sys.modules, OURS, raising=False)
    with pytest.raises(
        ImportError, match=r"louver.torch.torchao needs torchao\.\S+, which torchao 0.9 to 0.18 have, got"
    ):
        importlib.import_module(OURS)


def test_a_missing_name_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = stub()
    del found["torchao.quantization.transform_module"].register_quantize_module_handler
    for name, module in found.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, OURS, raising=False)
    with pytest.raises(
        ImportError, match=r"needs torchao.quantization.transform_module.register_quantize_module_handler"
    ):
        importlib.import_module(OURS)
