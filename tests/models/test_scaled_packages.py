"""Dequantized weights against those of compressed-tensors and transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from louver.models import scaled
from louver.models.roles import Scale
from louver.models.scaled import Factors

torch: Any = pytest.importorskip("torch")


def numbers(weight: Any, scale: Any, block: tuple[int, ...]) -> Any:
    """Louver's numbers of a quantized torch weight."""
    kind = {torch.float8_e4m3fn: "float8_e4m3fn", torch.float8_e5m2: "float8_e5m2", torch.int8: "int8"}[weight.dtype]
    import ml_dtypes

    stored = weight.view(torch.uint8).numpy().view(np.dtype(getattr(ml_dtypes, kind, kind)))
    scales = scale.view(torch.uint8).numpy() if scale.dtype == torch.float8_e8m0fnu else scale.float().numpy()
    factors = Factors.of(scales, Scale("weight_scale", block), tuple(weight.shape))
    rows = stored.reshape(-1, stored.shape[-1])
    out = scaled.numbers(rows, factors.at(range(len(rows)), range(rows.shape[1])))
    return torch.from_numpy(out).reshape(weight.shape)


@pytest.mark.parametrize("strategy", ["tensor", "channel", "block", "group"])
@pytest.mark.parametrize("kind", ["float", "int"])
def test_compressed_tensors(kind: str, strategy: str) -> None:
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    generator = torch.Generator().manual_seed(7)
    shape, block, counts = {
        "tensor": ((12, 32), (12, 32), (1,)),
        "channel": ((12, 32), (1, 32), (12, 1)),
        "block": ((12, 32), (4, 8), (3, 4)),
        "group": ((12, 32), (1, 8), (12, 4)),
    }[strategy]
    weight = (torch.randn(shape, generator=generator) * 30).to(torch.float8_e4m3fn if kind == "float" else torch.int8)
    scale = torch.rand(counts, generator=generator) + 0.01
    more = {"block": {"block_structure": [4, 8]}, "group": {"group_size": 8}}.get(strategy, {})
    args = QuantizationArgs(num_bits=8, type=kind, strategy=strategy, symmetric=True, **more)
    theirs = dequantize(weight, scale, args=args)
    assert torch.equal(numbers(weight, scale, block), theirs)


@pytest.mark.parametrize("exponents", [False, True])
@pytest.mark.parametrize("shape", [(256, 128), (3, 128, 256)])
def test_fine_grained_fp8_of_transformers(shape: tuple[int, ...], exponents: bool) -> None:
    """`weight_scale_inv` is a multiplier: the inverse of what the quantizer multiplied by."""
    pytest.importorskip("transformers")
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    generator = torch.Generator().manual_seed(11)
    weight = (torch.randn(shape, generator=generator) * 30).to(torch.float8_e4m3fn)
    counts = (*shape[:-2], shape[-2] // 128, shape[-1] // 128)
    scale = torch.rand(counts, generator=generator) + 0.01
    if exponents:
        scale = torch.randint(110, 140, counts, generator=generator, dtype=torch.uint8)
    theirs = Fp8Dequantize(None)._dequantize_one(weight, scale, output_dtype=torch.float32)
    ours = numbers(
        weight, scale.view(torch.float8_e8m0fnu) if exponents else scale, (*[1] * (len(shape) - 2), 128, 128)
    )
    assert torch.equal(ours, theirs)


def test_cut_blocks_of_transformers() -> None:
    pytest.importorskip("transformers")
    from transformers.integrations.finegrained_fp8 import _dequantize_fp8_weight

    generator = torch.Generator().manual_seed(13)
    weight = (torch.randn((150, 200), generator=generator) * 30).to(torch.float8_e4m3fn)
    scale = torch.rand((2, 2), generator=generator) + 0.01
    theirs = _dequantize_fp8_weight(weight, scale, [128, 128], torch.float32)
    assert torch.equal(numbers(weight, scale, (128, 128)), theirs)
