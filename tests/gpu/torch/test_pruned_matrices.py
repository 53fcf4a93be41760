"""Pruning by calibration on a GPU: the masks, sums and errors of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.pattern import Pattern

PATTERNS = ["2:4", "6:8", "3:5", "1:16", "2:4@3", "4:8@32", "2:8@V8"]


@pytest.mark.parametrize("text", PATTERNS)
def test_ties_keep_what_the_cpu_keeps(torch: Any, text: str, rng: np.random.Generator) -> None:
    from louver.torch.accuracy.masks import keep

    for shape in ((7, 13), (65, 259), (512, 1024)):
        score = torch.from_numpy(rng.integers(0, 4, shape).astype(np.float32))
        assert torch.equal(keep(score.cuda(), Pattern.parse(text)).cpu(), keep(score, Pattern.parse(text)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("tf32", [False, True])
def test_sums_are_those_of_f64(torch: Any, dtype: str, tf32: bool) -> None:
    from louver.torch.accuracy.moments import Moments

    torch.manual_seed(3)
    x, dense_x = (torch.randn(3, 5001, 320, device="cuda").to(getattr(torch, dtype)) for _ in range(2))
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        moments = Moments(320, "cuda", dense=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            moments.add(x, dense_x)
        assert torch.backends.cuda.matmul.allow_tf32 == tf32
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    a, b = x.double().view(-1, 320), dense_x.double().view(-1, 320)
    for mean, (left, right) in ((moments.gram, (a, a)), (moments.cross, (b, a)), (moments.dense_gram, (b, b))):
        error = (mean.double() - left.T @ right / len(a)).abs().max()
        assert float(error) < 3e-5


@pytest.mark.parametrize("text", PATTERNS)
@pytest.mark.parametrize("name", ["wanda", "sparsegpt", "admm"])
def test_errors_are_those_of_the_cpu(torch: Any, name: str, text: str) -> None:
    from louver.torch.accuracy.matrix import Method, prune_matrix
    from louver.torch.accuracy.moments import Moments

    torch.manual_seed(5)
    mix = torch.randn(322, 322) / 322**0.5 + torch.eye(322)
    dense_x = torch.randn(2000, 322) @ mix
    x = dense_x + 0.1 * torch.randn(2000, 322)
    w, pattern = torch.randn(131, 322), Pattern.parse(text)
    swaps = int(text in ("2:4", "6:8", "3:5", "2:4@3"))
    method = Method(name, correct=True, reconstruct=30, swaps=swaps)
    found = []
    for device in ("cpu", "cuda"):
        moments, held_out = Moments(322, device, dense=True), Moments(322, device, dense=True)
        moments.add(x[:1500].to(device), dense_x[:1500].to(device))
        held_out.add(x[1500:].to(device), dense_x[1500:].to(device))
        found.append(prune_matrix(w.to(device), pattern, method, moments, [held_out]))
    cpu, gpu = found
    assert gpu.damping is not None and gpu.raised == 0.0
    assert gpu.error == pytest.approx(cpu.error, rel=0.03)
    assert louver.check(gpu.weight, text) and not gpu.weight[~gpu.mask].any()
    # Rounding may turn a close choice, and with it those behind it; ADMM multiplies by TF32 on a GPU.
    turned = {"wanda": 0.001 if not swaps else 0.05, "sparsegpt": 0.1, "admm": 0.3}[name]
    assert float((gpu.mask.cpu() != cpu.mask).float().mean()) < turned
