"""Dense tensors of PyTorch are pruned, checked and compressed wherever they are, whether NumPy knows their type or not."""

from __future__ import annotations

import numpy as np
import pytest

import louver
from louver.runtime.arrays import view

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8"])
def test_tensors_of_any_device(dtype: str, device: str) -> None:
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randint(0, 100, (48, 96), generator=generator).to(getattr(torch, dtype)).to(device)
    pruned = louver.prune(drawn, "2:4")
    assert isinstance(pruned, torch.Tensor) and pruned.device.type == device
    dense = louver.compress(pruned, "2:4").dense()
    kept = view(pruned).to_numpy()
    bits = drawn.cpu().view(torch.uint8).numpy().view(kept.dtype)
    np.testing.assert_array_equal(view(dense).to_numpy(), kept)
    assert ((kept == bits) | (kept.astype(np.float32) == 0)).all() and (kept != bits).any()


def test_types_that_are_not_sparse_are_refused() -> None:
    with pytest.raises(ValueError, match="an element type is one of"):
        louver.compress(torch.ones(4, 4, dtype=torch.complex64, device="cuda"), "2:4")
    with pytest.raises(ValueError, match="at least one dimension, got a scalar"):
        louver.compress(torch.tensor(1.0, device="cuda").half(), "2:4")
