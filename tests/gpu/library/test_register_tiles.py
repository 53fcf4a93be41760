"""Register tiles of other targets on this GPU, through plans: random products beside float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.dtypes import element_type
from louver.formats.pattern import lifted_pattern
from louver.library.numerics import accumulation, compare
from louver.measure.operands import as_torch

FORMS = [
    *(("sm_80", a, out) for a, out in (("f16", "f16"), ("bf16", "f32"), ("s8", "s32"), ("f32", "f32"))),
    *(("sm_86", a, out) for a, out in (("f16", "f32"), ("s8", "f16"))),
    *(("sm_89", a, out) for a, out in (("e4m3", "bf16"), ("f16", "e4m3"))),
    *(("sm_120a", a, out) for a, out in (("f16", "f16"), ("e4m3", "f16"), ("f32", "f32"))),
]


@pytest.mark.parametrize(("target", "a", "out"), FORMS)
def test_random_products(torch: Any, rng: np.random.Generator, target: str, a: str, out: str) -> None:
    """Sizes that no tile divides. A plan reads rows of whole 16 bytes."""
    whole = 16 // element_type(a).bytes
    sizes = ((300, 65 * whole), (129, 125 * whole), (4096, 2048))
    # Large tiles of emulated products take the assembler long.
    for m, k in sizes[:2] if a == "e4m3" else sizes:
        w = louver.prune((rng.standard_normal((m, k)) * 4).astype(element_type(a).numpy), lifted_pattern(a))
        s = louver.compress(w, lifted_pattern(a))
        for n in (1, 17, 300):
            x = (rng.standard_normal((n, k)) * 4).astype(element_type(a).numpy)
            given = as_torch(torch, x).cuda()
            y = louver.plan("linear", s, n, like=given, out_dtype=out, target=target)(given)
            wide = [each.astype(np.float64) for each in (w, x)]
            exact, magnitude = wide[0] @ wide[1].T, np.abs(wide[0]) @ np.abs(wide[1]).T
            got = y.double().T.cpu().numpy()
            agreement = compare(got, exact, magnitude, k, out, accumulation(a))
            assert agreement.ok, (target, m, n, k, agreement)


def test_a_plan_of_another_target_is_captured(torch: Any, rng: np.random.Generator) -> None:
    w = louver.prune(rng.standard_normal((256, 512)).astype(np.float16), "2:4")
    x = torch.randn(64, 512, dtype=torch.float16, device="cuda")
    y = torch.empty(64, 256, dtype=torch.float16, device="cuda")
    plan = louver.plan("linear", louver.compress(w, "2:4"), 64, like=x, target="sm_80")
    plan(x, out=y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan(x, out=y)
    before = y.clone()
    y.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, before) and bool(y.any())


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_89"])
@pytest.mark.parametrize("signed", [True, False])
def test_pairs_of_4_bit_integers(torch: Any, rng: np.random.Generator, target: str, signed: bool) -> None:
    """Exact, also where this GPU's assembler builds the instruction from others."""
    least, most, kind, dtype = (-8, 8, "s4x2", np.int8) if signed else (0, 16, "u4x2", np.uint8)
    for m, k in ((300, 2080), (129, 416), (2048, 4096)):
        made: Any = kind
        s = louver.compress(louver.pack_pairs(rng.integers(least, most, (m, k)), made), "2:4", method="magnitude")
        wide = louver.unpack_pairs(np.asarray(s)).astype(np.int64)
        for n in (1, 17, 300):
            x = rng.integers(least, most, (n, k))
            given = torch.from_numpy(louver.pack_pairs(x, made).view(dtype)).cuda()
            y = louver.plan("linear", s, n, like=given, target=target)(given)
            assert np.array_equal(y.cpu().numpy(), x @ wide.T), (target, m, n, k)
