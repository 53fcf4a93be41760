"""Machines without a GPU of NVIDIA: their devices are refused by name, and Louver's modules import."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import louver.torch

torch: Any = pytest.importorskip("torch")

from louver.formats.pattern import Pattern  # noqa: E402
from louver.torch.core import core_of  # noqa: E402
from louver.torch.layers import dense_layers  # noqa: E402
from louver.torch.linear import SparseLinear  # noqa: E402
from louver.torch.swap import misfit  # noqa: E402

DEVICES = ("mps:0", "xpu:0", "hpu:0")


class Elsewhere(torch.Tensor):
    """A tensor on a device that this machine does not have."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is torch.ops.aten.detach.default, func
        return on(str(args[0].device), *args[0].shape, dtype=args[0].dtype)


def on(device: str, *shape: int, dtype: Any = torch.float32) -> Any:
    return torch.Tensor._make_wrapper_subclass(Elsewhere, shape, dtype=dtype, device=device)


def refused(reason: str | None) -> None:
    raise ValueError(f"0: {reason}")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "call",
    [
        louver.torch.compress_,
        lambda model: louver.torch.compress_(model, force=True),
        # As `prune_` asks; it refuses the subclass before.
        lambda model: refused(misfit(dense_layers(model)[0], Pattern.parse("2:4"))),
    ],
)
def test_weights_elsewhere_are_refused(call: Callable[[Any], Any], device: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(48, 24, device="meta"))
    model[0].weight = torch.nn.Parameter(on(device, 24, 48))
    with pytest.raises(ValueError, match=f"0: it is on {device}: sparse weights are on the CPU or on a GPU of NVIDIA"):
        call(model)


@pytest.mark.parametrize("device", DEVICES)
def test_products_elsewhere_are_refused(device: str) -> None:
    layer = SparseLinear(48, 24)
    values, indices = (on(device, *each.shape, dtype=each.dtype) for each in layer.weight.parameters())
    with pytest.raises(ValueError, match=f"run on the CPU and on GPUs of NVIDIA, got a weight on {device}: move it"):
        core_of(values, indices, "2:4", 48)


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_everything_imports_without_the_packages_of_linux(platform: str) -> None:
    code = f"""
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("cuda", "nvidia", "triton", "fcntl", "resource", "pwd"):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import torch
sys.platform = {platform!r}
import louver, louver.torch

model = torch.nn.Sequential(torch.nn.Linear(48, 24))
louver.torch.prune_(model)
expected = model(torch.ones(3, 48))
louver.torch.compress_(model, force=True)
assert type(model[0]) is louver.torch.SparseLinear
torch.testing.assert_close(model(torch.ones(3, 48)), expected)
louver.torch.quantize_(model, "e4m3")
assert model(torch.ones(3, 48)).shape == (3, 24) and louver.torch.verify(model) == {{}}
for name in (*louver.__all__, *louver.torch.__all__):
    getattr(louver.torch if name in louver.torch.__all__ else louver, name)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=200)
