"""`quantize_`: row and token scales, types that stay, pairs, gradients of x, errors that change nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import louver.torch
from support.torch_weights import close

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

from louver.torch.blocks import JoinedBlock, separate_  # noqa: E402
from louver.torch.linear import SparseLinear  # noqa: E402
from louver.torch.tokens import quantized_tokens  # noqa: E402

nn = torch.nn
TYPES = {"e4m3": torch.float8_e4m3fn, "int8": torch.int8}
ERROR = {"e4m3": 0.08, "int8": 0.04}


class Mlp(nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(64, 96, bias), nn.Linear(64, 96, bias)
        self.down, self.act = nn.Linear(96, 64, bias), nn.SiLU()

    def forward(self, x: Any) -> Any:
        return self.down(self.act(self.gate(x)) * self.up(x))


@pytest.fixture(params=[False, True], ids=["plain", "bias"])
def model(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(31)
    made = nn.Sequential(nn.Linear(48, 64), Mlp(request.param), nn.Linear(64, 40)).bfloat16().eval()
    with torch.no_grad():
        for layer in (made[1].gate, made[1].up):
            layer.weight *= torch.linspace(0.1, 3, 96)[torch.randperm(96), None]
    louver.torch.prune_(made, skip=("2",))
    louver.torch.compress_(made, force=True)
    return made


def relative(y: Any, expected: Any) -> float:
    """The greatest difference of a token's outputs, relative to their norm."""
    difference = (y - expected).float().norm(dim=-1) / expected.float().norm(dim=-1)
    return float(difference.detach().max())


def tokens() -> Any:
    x = torch.randn(2, 5, 48, generator=torch.Generator().manual_seed(4)).bfloat16()
    x[1, 2] *= 1000
    x[0, 0] = 0
    return x


@pytest.mark.parametrize("to", TYPES)
def test_products_of_quantized_weights(model: Any, to: str) -> None:
    assert isinstance(model[1], JoinedBlock)
    x = tokens()
    with torch.no_grad():
        expected = model(x)
        weights = {name: model[1].get_submodule(name).weight.dense() for name in ("gate", "up", "down")}
        report = louver.torch.quantize_(model, to)
        assert [row.name for row in report.changed] == ["0", "1.gate", "1.up", "1.down"]
        assert {row.done for row in report} == {"quantized"}
        assert report["1.up"].reason == f"{to}, with a scale for each row and token"
        assert report["1.up"].bytes == (96 * (64 + 8), 96 * (32 + 8 + 4))
        y = model(x)
    assert y.dtype == torch.bfloat16
    assert relative(y, expected) < 2 * ERROR[to]
    for name, dense in weights.items():
        weight = model[1].get_submodule(name).weight
        assert weight.dtype == TYPES[to] and weight.dense().dtype == torch.bfloat16
        close(torch, weight.dense(), dense, ERROR[to])
        assert torch.equal(weight.dense() == 0, dense == 0) or to == "int8"
    assert type(model[2]) is nn.Linear
    louver.torch.decompress_(model)
    assert model[0].weight.dtype == torch.bfloat16
    assert relative(model(x), expected) < 2 * ERROR[to]


@pytest.mark.parametrize("to", TYPES)
def test_one_product_is_that_of_the_rounded_operands(model: Any, to: str) -> None:
    louver.torch.quantize_(model, to)
    layer, x = model[0], tokens()
    q, scale = quantized_tokens(x, TYPES[to])
    weight = layer.weight
    values = torch.ops.louver.dense(weight.values, weight.indices, 48).float() * weight.scale[:, None]
    with torch.no_grad():
        y = layer(x)
    for token in ((0, 0), (0, 1), (1, 2)):
        wanted = (q[token].float() * scale[token]) @ values.t() + layer.bias.float()
        close(torch, y[token].float(), wanted, 0.01)


@pytest.mark.parametrize("to", TYPES)
def test_a_pair_is_quantized_as_two_weights_are(model: Any, to: str) -> None:
    apart, x = copy.deepcopy(model), tokens()
    separate_(apart)
    alone = apart[1].up(model[0](x))
    for each in (model, apart):
        louver.torch.quantize_(each, to)
    assert model.state_dict().keys() == apart.state_dict().keys()
    with torch.no_grad():
        assert all(torch.equal(each, apart.state_dict()[name]) for name, each in model.state_dict().items())
        assert relative(model[1](model[0](x)), apart[1](apart[0](x))) < 0.05
        assert relative(model[1].up(model[0](x)), alone) < 2 * ERROR[to]
    separate_(model)
    assert torch.equal(model(x), apart(x))


def test_scales_are_those_of_rows_and_tokens() -> None:
    x = tokens()
    for dtype, largest in ((torch.float8_e4m3fn, 448), (torch.int8, 127)):
        q, scale = quantized_tokens(x, dtype)
        assert (q.dtype, q.shape, scale.dtype, scale.shape) == (dtype, x.shape, torch.float32, (2, 5))
        assert float(scale[0, 1]) == pytest.approx(float(x[0, 1].float().abs().max()) / largest) and float(
            scale[0, 0]
        ) == pytest.approx(1e-12)
        close(torch, q.float() * scale[..., None], x, ERROR["e4m3" if largest == 448 else "int8"])
        assert float(q.float().abs().max()) == largest
        assert quantized_tokens(x[0, 1], dtype)[1].shape == (1,)
    x[0, 1, 3] = float("nan")
    for dtype in TYPES.values():
        scale = quantized_tokens(x, dtype)[1]
        assert bool(scale[0, 1].isnan()) and int(scale.isnan().sum()) == 1


def test_a_row_without_leading_axes_and_strides(model: Any) -> None:
    louver.torch.quantize_(model)
    with torch.no_grad():
        x = tokens()
        assert torch.equal(model(x[0, 1]), model(x[:1, 1:2])[0, 0])
        assert torch.equal(model(x.transpose(0, 1)), model(x).transpose(0, 1))


def test_the_type_of_a_quantized_weight_stays(model: Any) -> None:
    louver.torch.quantize_(model)
    model.half()
    for weight in (model[0].weight, model[1].up.weight):
        assert (weight.dtype, weight.scale.dtype) == (torch.float8_e4m3fn, torch.float32)
    with torch.no_grad():
        assert model(tokens().half()).dtype == torch.float16
    assert copy.deepcopy(model).to("meta")[1].gate.weight.dtype == torch.float8_e4m3fn


def test_a_state_dict_has_scales(model: Any) -> None:
    other = copy.deepcopy(model)
    louver.torch.quantize_(model)
    with torch.no_grad():
        for each in other.parameters():
            if each.is_floating_point():
                each.mul_(-0.5)
        louver.torch.quantize_(other)
        assert model.state_dict()["1.up.weight.scale"].shape == (96,)
        other.load_state_dict(model.state_dict())
        assert torch.equal(other(tokens()), model(tokens()))


def test_gradients_of_x_pass_through(model: Any) -> None:
    plain = copy.deepcopy(model)
    louver.torch.quantize_(model)
    grads = []
    for each in (model, plain):
        x = tokens()
        x[1, 2] /= 1000
        x.requires_grad_()
        each(x).float().square().sum().backward()
        grads.append(x.grad)
    close(torch, *grads, 0.25)
    assert model[0].weight.values.grad is None and model[0].bias.grad is not None


def test_compiled_in_one_graph(model: Any) -> None:
    louver.torch.quantize_(model)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert torch.equal(compiled(tokens()), model(tokens()))
    close(torch, compiled(tokens()), model(tokens()), 1e-2)


def test_the_operator_is_sound(model: Any) -> None:
    # PyTorch's check cannot change elements of e4m3.
    louver.torch.quantize_(model, "int8")
    weight, pair = model[0].weight, model[1].louver_joined_0
    x = torch.randn(3, 48).bfloat16().requires_grad_()
    h = torch.randn(3, 64).bfloat16()
    args = (x, weight.values, weight.indices, weight.scale, model[0].bias)
    torch.library.opcheck(torch.ops.louver.scaled, args)
    torch.library.opcheck(
        torch.ops.louver.scaled, (h, pair.values, pair.indices, pair.scale, None, "2:4", "silu", True)
    )


def test_bad_input_changes_nothing(model: Any) -> None:
    with pytest.raises(ValueError, match='a weight is quantized to "e4m3" or "int8", got \'fp4\''):
        louver.torch.quantize_(model, "fp4")
    with pytest.raises(ValueError, match="got Linear without one: call prune_ and compress_ first"):
        louver.torch.quantize_(nn.Linear(8, 8))
    with torch.no_grad():
        model[1].down.weight.values[3, 4] = float("inf")
    with pytest.raises(ValueError, match=r"a weight to quantize is finite, got NaN or infinity in 1.down"):
        louver.torch.quantize_(model)
    assert model[0].weight.dtype == torch.bfloat16
    with torch.no_grad():
        model[1].down.weight.values[3, 4] = 0
    louver.torch.quantize_(model)
    with pytest.raises(ValueError, match=r"(?s)no sparse layer is left to quantize, got.*0: it has 8 bits already"):
        louver.torch.quantize_(model)
    layer = SparseLinear.of(nn.Linear(64, 16), "1:2", prune=True)
    with pytest.raises(ValueError, match=r"(?s)no sparse layer is left.*GPUs have products of 1:2 for f32"):
        louver.torch.quantize_(nn.Sequential(layer))
    with pytest.raises(ValueError, match=r"2:4 with scales, got \[64, 48\] 2:4"):
        model[0].weight.copy_(SparseLinear.of(nn.Linear(48, 64).bfloat16(), prune=True).weight)
