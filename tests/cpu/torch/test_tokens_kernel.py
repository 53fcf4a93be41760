"""The Triton kernel of token scales without a GPU: it compiles for one, and interpreted it gives the definition."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

COMPILED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from louver.torch.tokens_kernel import _tokens
for element, rounds in (("*fp8e4nv", False), ("*i8", True)):
    types = {"x": "*bf16", "y": element, "scales": "*fp32", "size": "i32", "row": "i32", "factor": "fp32", "least": "fp32"}
    source = ASTSource(_tokens, {**types, "WIDTH": "constexpr", "ROUND": "constexpr"}, {"WIDTH": 4096, "ROUND": rounds})
    ptx = triton.compile(source, GPUTarget("cuda", 90, 32), {"num_warps": 4}).asm["ptx"]
    # Both additions of the rounding stay; e4m3 is rounded by the hardware.
    assert ptx.count("add.f32") == 64 * rounds and ("cvt.rn.satfinite.e4m3x2" in ptx) != rounds, ptx
"""

# Triton's interpreter rounds e4m3 wrongly where a mantissa overflows, so only int8 is compared.
INTERPRETED = """
import contextlib, torch
from louver.torch import tokens, tokens_kernel
torch.cuda.device = lambda _: contextlib.nullcontext()
x = torch.randn(3, 7, 100).bfloat16() * torch.rand(3, 7, 1).bfloat16() * 50
x[0], x[1, 2, 3] = 0, float("nan")
for given in (x, x.repeat(1, 1, 2)[..., :100], x[2, 1]):
    q, scale = tokens_kernel.quantized_tokens(given, torch.int8, 1 / 127, tokens.LEAST)
    wanted, scales = tokens.quantized_rows(given, torch.int8)
    whole = ~scales.isnan()
    assert torch.equal(scale.isnan(), ~whole) and torch.equal(scale[whole], scales[whole])
    assert q.shape == given.shape and torch.equal(q.reshape(*scale.shape, -1)[whole], wanted.reshape(*scale.shape, -1)[whole])
"""


@pytest.mark.parametrize(("code", "interpret"), [(COMPILED, "0"), (INTERPRETED, "1")], ids=["compiled", "interpreted"])
def test_the_kernel(code: str, interpret: str) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": interpret}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True, text=True, timeout=120, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
