"""Products in code that PyTorch's compiler generates: one call of Python each, without the dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("torch._inductor")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

from torch._inductor.utils import run_and_get_code  # noqa: E402

from louver.torch.linear import SparseLinear  # noqa: E402
from louver.torch.operators import OPS  # noqa: E402


@pytest.fixture(autouse=True)
def no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of earlier runs is not read."""
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    torch._dynamo.reset()


def layer(bias: bool = True) -> Any:
    return SparseLinear(48, 32, bias, dtype=torch.float32).requires_grad_(False)


def generated(call: Callable[..., Any], *given: Any, **options: Any) -> tuple[Any, str]:
    compiled = torch.compile(call, fullgraph=True, **options)
    y, codes = run_and_get_code(compiled, *given)
    return y, "\n".join(codes)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(5, 48), (2, 3, 48), (48,)])
def test_generated_code_launches_products(bias: bool, shape: tuple[int, ...]) -> None:
    made, x = layer(bias), torch.randn(shape)
    y, code = generated(made, x)
    assert code.count("torch.ops.louver.linear.default.launch(") == 1
    torch.testing.assert_close(y, made(x))


def test_operands_may_have_any_strides_and_packed_indices() -> None:
    made = layer().to(torch.bfloat16)
    made.weight.pack_()
    x = torch.randn(48, 6).bfloat16()

    def call(x: Any) -> Any:
        return made(x.t() * 2)

    y, code = generated(call, x)
    assert "linear.default.launch(" in code
    torch.testing.assert_close(y, call(x))


@pytest.mark.parametrize("activation", ["silu", None])
def test_gated_products_are_launched(activation: str | None) -> None:
    weight = layer().weight
    x = torch.randn(5, 48)

    def call(x: Any) -> Any:
        return OPS.gated(
            x, weight._parameters["values"], weight._parameters["indices"], None, None, None, "2:4", activation
        )

    y, code = generated(call, x)
    assert "gated.default.launch(" in code
    assert y.shape == (5, 16)
    torch.testing.assert_close(y, call(x))


def test_products_with_scales_or_another_type_are_operators() -> None:
    weight, scale, x = layer().weight, torch.rand(32), torch.randn(5, 48)

    def call(x: Any) -> Any:
        arrays = weight._parameters
        return OPS.linear(x, arrays["values"], arrays["indices"], None, scale, None, "2:4", None, torch.bfloat16)

    y, code = generated(call, x)
    assert ".launch(" not in code
    torch.testing.assert_close(y, call(x))


def test_one_graph_for_any_number_of_tokens() -> None:
    made = layer()
    compiled = torch.compile(made, fullgraph=True, dynamic=True)
    for tokens in (3, 7, 12):
        x = torch.randn(tokens, 48)
        torch.testing.assert_close(compiled(x), made(x))


def test_compiled_training_has_gradients() -> None:
    made = SparseLinear(48, 32, dtype=torch.float32)
    x = torch.randn(5, 48, requires_grad=True)
    wanted = torch.autograd.grad(made(x).square().sum(), (x, made.weight.values, made.bias))
    got = torch.autograd.grad(torch.compile(made, fullgraph=True)(x).square().sum(), (x, made.weight.values, made.bias))
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_a_write_to_values_is_seen() -> None:
    made, x = layer(), torch.randn(5, 48)
    compiled = torch.compile(made, fullgraph=True)
    compiled(x)
    with torch.no_grad():
        made.weight.values.mul_(2)
    torch.testing.assert_close(compiled(x), made(x))
