"""`verify` names the weights whose products would be old ones."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

from louver.torch.linear import SparseLinear  # noqa: E402
from louver.torch.stale import verify  # noqa: E402


@pytest.fixture
def model() -> Any:
    torch.manual_seed(8)
    return torch.nn.Sequential(SparseLinear(48, 24), torch.nn.ReLU(), SparseLinear(24, 8)).requires_grad_(False)


def test_a_model_is_right_before_and_after_its_products(model: Any) -> None:
    assert verify(model) == {}
    model(torch.randn(3, 48))
    assert verify(model) == {}


@pytest.mark.parametrize("part", ["values", "indices"])
def test_an_uncounted_write_is_found_until_refresh(model: Any, part: str) -> None:
    model(torch.randn(3, 48))
    weight, other = model[2].weight, SparseLinear(24, 8).weight
    getattr(weight, part).data.copy_(getattr(other, part))
    assert verify(model) == {
        "2.weight": f"products read other {part} than the parameter's: call refresh_() on the weight"
    }
    weight.refresh_()
    assert verify(model) == {}


def test_illegal_indices_are_named(model: Any) -> None:
    model[0].weight.indices.data.zero_()
    assert "a code of 2:4 is one of" in verify(model)["0.weight"]


def test_weights_without_data_have_nothing_to_compare() -> None:
    assert verify(SparseLinear(48, 24, device="meta")) == {}


def test_the_room_imports_no_torch_until_a_name_is_used() -> None:
    code = "import sys, louver.torch; assert 'torch' not in sys.modules; louver.torch.verify; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
