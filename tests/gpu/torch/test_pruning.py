"""Calibrated pruning on a GPU: the same as on the host, whichever of the two holds model and activations."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import louver
import louver.torch
from support.tiny_models import ids, result, tiny

transformers: Any = pytest.importorskip("transformers")

CALL = {"method": "sparsegpt", "correct": True, "reconstruct": 20, "tune": 5}


@pytest.mark.parametrize("kind", ["llama", "qwen2_moe", "gpt2", "bert", "t5"])
def test_a_gpu_prunes_as_well_as_the_host(torch: Any, kind: str) -> None:
    model, tokens, test = tiny(torch, transformers, kind), ids(torch, 48), ids(torch, 16, seed=2)
    dense = result(torch, model, test)
    losses: dict[str, float] = {}
    for name, home, device in (("host", "cpu", None), ("gpu", "cuda", None), ("visit", "cpu", "cuda")):
        pruned = copy.deepcopy(model).to(home)
        report = louver.torch.prune_(pruned, calibration=tokens, device=device, **CALL)
        assert all(parameter.device.type == home for parameter in pruned.parameters())
        assert {row.zeros for row in report.changed} == {0.5} and not report.warnings
        losses[name] = float((result(torch, pruned.cpu(), test) - dense).norm() / dense.norm())
    assert max(losses.values()) < 1.25 * min(losses.values()), losses


def test_activations_on_the_host_change_no_bit(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without `tune`: gradients of attention are summed in any order.
    call = {**CALL, "tune": 0}
    model = tiny(torch, transformers, "llama").cuda().bfloat16()
    other = copy.deepcopy(model)
    louver.torch.prune_(model, calibration=ids(torch, 48), **call)
    monkeypatch.setattr("louver.torch.accuracy.streams._SHARE", 0.0)
    louver.torch.prune_(other, calibration=ids(torch, 48), **call)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_a_pruned_model_compresses(torch: Any) -> None:
    model = tiny(torch, transformers, "llama", hidden_size=64, intermediate_size=128).cuda().bfloat16()
    louver.torch.prune_(model, calibration=ids(torch, 16), method="sparsegpt", damping=0.1, permute=True)
    expected = result(torch, model, ids(torch, 4).cuda())
    assert len(louver.torch.compress_(model, force=True).changed) == 14
    got = result(torch, model, ids(torch, 4).cuda())
    assert float((got - expected).float().norm()) < 0.05 * float(expected.float().norm())
