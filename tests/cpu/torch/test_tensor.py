"""`louver.torch.SparseTensor` as a PyTorch tensor."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest

from support.torch_weights import PATTERNS, close

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

from louver.torch.tensor import SparseTensor  # noqa: E402

F, Parameter = torch.nn.functional, torch.nn.Parameter
ROWS, SIZE = 32, 48


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(10)
    torch._dynamo.reset()


def made(pattern: str = "2:4", dtype: str = "bfloat16", rows: int = ROWS, size: int = SIZE) -> Any:
    return SparseTensor.of(torch.randn(rows, size).to(getattr(torch, dtype)), pattern, prune=True)


@pytest.mark.parametrize(("pattern", "dtype"), PATTERNS)
def test_products_of_a_parameter(pattern: str, dtype: str) -> None:
    s = Parameter(made(pattern, dtype, size=50), requires_grad=False)
    assert isinstance(s, SparseTensor) and isinstance(s, Parameter) and s.shape == (ROWS, 50)
    w, kind = s.to_dense(), s.dtype
    x, bias = torch.randn(2, 3, 50).to(kind), torch.randn(ROWS).to(kind)
    close(torch, F.linear(x, s, bias), F.linear(x, w, bias))
    close(torch, x @ s.t(), x @ w.t())
    close(torch, x[0] @ s.T, x[0] @ w.T)
    close(torch, torch.mm(x[0], s.t()), x[0] @ w.t())
    close(torch, torch.addmm(bias, x[0], s.t()), torch.addmm(bias, x[0], w.t()))
    close(torch, torch.addmm(bias, x[0], s.t(), alpha=2, beta=3), torch.addmm(bias, x[0], w.t(), alpha=2, beta=3))
    close(torch, s @ x.mT, w @ x.mT)
    close(torch, s @ x[0, 0], w @ x[0, 0])


def test_in_a_linear_layer() -> None:
    layer = torch.nn.Linear(SIZE, ROWS).bfloat16()
    layer.weight = Parameter(made(), requires_grad=False)
    x = torch.randn(3, SIZE).bfloat16()
    expected = F.linear(x, layer.weight.to_dense(), layer.bias)
    close(torch, layer(x), expected)
    again = copy.deepcopy(layer)
    close(torch, again(x), expected)
    layer.half()
    assert layer.weight.dtype == torch.float16 and isinstance(layer.weight, SparseTensor)
    close(torch, layer(x.half()), expected)
    assert layer.to("meta").weight.device.type == "meta"


def test_gradients_of_x_and_bias() -> None:
    s = made()
    x, bias = torch.randn(3, SIZE).bfloat16().requires_grad_(), torch.randn(ROWS).bfloat16().requires_grad_()
    F.linear(x, s, bias).float().square().sum().backward()
    dense = [each.detach().clone().requires_grad_() for each in (x, bias)]
    F.linear(dense[0], s.to_dense(), dense[1]).float().square().sum().backward()
    close(torch, x.grad, dense[0].grad)
    close(torch, bias.grad, dense[1].grad)


def test_a_gradient_of_values_names_the_module() -> None:
    s = made()
    for call in (lambda: Parameter(s), s.requires_grad_, lambda: setattr(s, "requires_grad", True)):
        with pytest.raises(RuntimeError, match="has no gradient of its values.* train a louver.torch.SparseLinear"):
            call()
    s.requires_grad = False
    assert not s.requires_grad and not s.requires_grad_(False).requires_grad


@pytest.mark.parametrize(("pattern", "dtype"), PATTERNS)
def test_saved_and_loaded_with_weights_only(pattern: str, dtype: str) -> None:
    s, file = made(pattern, dtype), io.BytesIO()
    torch.save({"s": s, "turned": s.t()}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert isinstance(loaded["s"], SparseTensor) and loaded["s"].pattern == pattern
    assert torch.equal(loaded["s"], s) and torch.equal(loaded["turned"], s.t())


def test_copies() -> None:
    s = made()
    other = s.clone()
    other.values_.mul_(2)
    assert not torch.equal(other, s) and torch.equal(other.to_dense(), 2 * s.to_dense())
    s.copy_(other)
    assert torch.equal(s, other)
    assert s.to(torch.float32).dtype == torch.float32 and s.float().indices_.dtype == torch.uint8
    assert torch.equal(s.detach(), s) and s.to("meta").shape == s.shape
    with pytest.raises(ValueError, match="copied from one of its shape and pattern"):
        s.copy_(made("1:4"))


@pytest.mark.parametrize(("pattern", "dtype"), PATTERNS)
@pytest.mark.parametrize("cut", [slice(0, 16), slice(16, None), slice(-16, 48), slice(None)])
def test_rows_share_memory(pattern: str, dtype: str, cut: slice) -> None:
    s = made(pattern, dtype)
    part = s[cut]
    assert torch.equal(part.to_dense(), s.to_dense()[cut])
    first = cut.indices(ROWS)[0]
    assert part.values_.data_ptr() == s.values_[first].data_ptr()
    assert torch.equal(s.t()[:, cut].to_dense(), s.to_dense().t()[:, cut])


@pytest.mark.parametrize(("pattern", "dtype"), PATTERNS)
def test_columns_and_pieces_are_compressed_anew(pattern: str, dtype: str) -> None:
    s = made(pattern, dtype)
    w = s.to_dense()
    for part, expected in (
        (s[:, 16:48], w[:, 16:48]),
        (s.narrow(1, 16, 16), w[:, 16:32]),
        (s.narrow(0, 0, 16), w[:16]),
    ):
        assert isinstance(part, SparseTensor) and torch.equal(part.to_dense(), expected)
    assert torch.equal(torch.cat([s[:16], s[16:]]).to_dense(), w)
    assert torch.equal(torch.cat([s[:, :16], s[:, 16:]], 1).to_dense(), w)
    assert torch.equal(torch.cat([s.t()[:16], s.t()[16:]]).to_dense(), w.t())


def test_windows_cannot_be_cut() -> None:
    s = made("2:8@V16")
    with pytest.raises(ValueError, match="2:8@V16"):
        torch.cat([s[:7], made("2:8@V16")])


def test_tensors_of_two_patterns_are_not_joined() -> None:
    with pytest.raises(ValueError, match="sparse tensors of one pattern are joined"):
        torch.cat([made(), made("1:4")])


def test_compile_and_export() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(SIZE, ROWS), torch.nn.SiLU()).bfloat16()
    model[0].weight = Parameter(made(), requires_grad=False)
    x = torch.randn(3, SIZE).bfloat16()
    with torch.no_grad():
        expected = model(x)
        close(torch, torch.compile(model, fullgraph=True, backend="aot_eager")(x), expected)
        # The export of PyTorch 2.6 writes down no subclass.
        if hasattr(torch.compiler, "is_exporting"):
            close(torch, torch.export.export(model, (x,)).module()(x), expected)
    with torch.inference_mode():
        close(torch, model(x), expected)


def test_autocast() -> None:
    s, x = made("2:4", "float32"), torch.randn(3, SIZE)
    with torch.autocast("cpu", torch.bfloat16):
        y = F.linear(x, s)
    assert y.dtype == torch.bfloat16
    close(torch, y, x @ s.to_dense().t())


def test_semi_structured_tensors_are_read_by_their_dense_form() -> None:
    class Foreign:
        def to_dense(self) -> Any:
            return w

    w = made().to_dense()
    assert torch.equal(SparseTensor.of(Foreign()).to_dense(), w)
    with pytest.raises(
        ValueError, match="semi-structured tensors of 2:4 along the last axis, got louver.torch.SparseTensor"
    ):
        made("1:4").to_sparse_semi_structured()


def test_other_operations_name_to_dense() -> None:
    s = made()
    with pytest.raises(RuntimeError, match=r"aten.add.Tensor takes no sparse tensor: call to_dense\(\) on it first"):
        s + 1
    for product in (lambda: torch.randn(3, ROWS) @ s, lambda: s.t() @ s, lambda: F.linear(s, torch.randn(3, SIZE))):
        with pytest.raises(RuntimeError, match=r"products of a sparse matrix s \[out, in\] are"):
            product()
    with pytest.raises(ValueError, match="2:4 of 48 columns keeps 24 values"):
        SparseTensor(s.values_[:, :20], s.indices_, "2:4", SIZE)
    assert repr(s) == "louver.torch.SparseTensor(2:4, torch.bfloat16, [32, 48], cpu)"
