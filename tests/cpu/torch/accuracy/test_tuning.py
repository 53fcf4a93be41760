"""`tune`: kept values of attention and MLP by Adam against the dense model; masks stay, and it never gets worse."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import louver
import louver.torch
from support.tiny_models import ids, result, tiny

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

from louver.torch.accuracy import tuning, walk  # noqa: E402

nn = torch.nn


@pytest.mark.parametrize("kind", ["llama", "qwen2_moe", "gpt2", "bert", "t5"])
def test_tuning_brings_the_output_closer_and_keeps_the_pattern(kind: str) -> None:
    model, tokens, test = tiny(torch, transformers, kind), ids(torch, 64), ids(torch, 16, seed=2)
    dense = result(torch, model, test)
    losses: list[float] = []
    for steps in (0, 30):
        pruned = copy.deepcopy(model)
        report = louver.torch.prune_(pruned, method="wanda", calibration=tokens, tune=steps)
        losses.append(float((result(torch, pruned, test) - dense).norm()))
        assert {row.zeros for row in report.changed} == {0.5}
        assert any(row.reason.endswith("; tuned") for row in report) is (steps > 0)
        weight = next(
            p
            for n, p in pruned.named_parameters()
            if n.endswith(("o_proj.weight", "dense.weight", "o.weight")) or "c_proj" in n
        )
        weight = weight.detach().t() if kind == "gpt2" else weight.detach()
        assert louver.check(weight.contiguous().numpy(), "2:4").ok
    assert losses[1] < 0.985 * losses[0]


def test_each_part_is_tuned_once_behind_its_last_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[list[str], Any]] = []
    tune = tuning.tune

    def watched(streams: Any, block: Any, weights: Any, kept: Any, add: Any, steps: int) -> Any:
        new, used = tune(streams, block, weights, kept, add, steps)
        told.append((sorted(name.removesuffix(".weight").split(".")[-1] for name in used), add))
        return new, used

    monkeypatch.setattr(walk, "tune", watched)
    louver.torch.prune_(tiny(torch, transformers, "llama"), method="wanda", calibration=ids(torch, 16), tune=2)
    part = [(["k_proj", "o_proj", "q_proj", "v_proj"], 0), (["down_proj", "gate_proj", "up_proj"], None)]
    assert told == 2 * part
    told.clear()
    # Cross-attention's keys and values are pruned with the first part, on which they have no influence.
    louver.torch.prune_(tiny(torch, transformers, "t5"), method="wanda", calibration=ids(torch, 16), tune=2)
    assert [names for names, _ in told[-3:]] == [["k", "o", "q", "v"], ["k", "o", "q", "v"], ["wi", "wo"]]


class Plain(nn.Module):
    """A block without a residual addition: it is tuned whole."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x: Any) -> Any:
        return self.down(torch.relu(self.up(x)))


def test_a_block_without_parts_is_tuned_whole() -> None:
    torch.manual_seed(2)
    model = nn.Sequential(Plain(), Plain())
    x, test = torch.randn(256, 8), torch.randn(64, 8)
    dense = model(test).detach()
    losses = []
    for steps in (0, 60):
        pruned = copy.deepcopy(model)
        louver.torch.prune_(pruned, method="wanda", calibration=x, tune=steps)
        losses.append(float((pruned(test).detach() - dense).norm()))
    assert losses[1] < 0.95 * losses[0]


def test_values_stay_where_tuning_helps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "RATE", 10.0)
    model = tiny(torch, transformers, "llama")
    other = copy.deepcopy(model)
    louver.torch.prune_(model, method="wanda", calibration=ids(torch, 16))
    louver.torch.prune_(other, method="wanda", calibration=ids(torch, 16), tune=3)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
