"""`permute=True`: channels that are free take another order, the dense block computes the same, and pruning keeps more."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import louver
import louver.torch
from support.tiny_models import ids, result, tiny

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

from louver.torch.accuracy import free  # noqa: E402
from louver.torch.accuracy.free import Permuter  # noqa: E402
from louver.torch.accuracy.walk import Walk  # noqa: E402

nn = torch.nn


def known(kind: str, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, tuple[Any, ...]], Any, Any]:
    """What is found free in a model, by consumer; and the model before and after its channels moved."""
    permuters: list[Any] = []
    made = Permuter.__init__
    monkeypatch.setattr(Permuter, "__init__", lambda self: (permuters.append(self), made(self))[1])
    model = tiny(torch, transformers, kind)
    dense = copy.deepcopy(model)
    # Nothing is pruned: only orders differ.
    monkeypatch.setattr(Walk, "_level", lambda *_: None)
    louver.torch.prune_(model, calibration=ids(torch, 8), held_out=ids(torch, 2), permute=True)
    found = {
        name.removesuffix(".weight"): ([p.removesuffix(".weight") for p in one.producers], one.parts, one.repeats)
        for name, known in permuters[0]._known.items()
        for one in known
    }
    return found, dense, model


@pytest.mark.parametrize(
    ("kind", "channels"),
    [
        (
            "llama",
            {
                "self_attn.o_proj": (["self_attn.v_proj"], 4, 1),
                "mlp.down_proj": (["mlp.gate_proj", "mlp.up_proj"], 1, 1),
            },
        ),
        (
            "qwen2_moe",
            {
                "self_attn.o_proj": (["self_attn.v_proj", "self_attn.v_proj.bias"], 2, 2),
                "mlp.shared_expert.down_proj": (["mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"], 1, 1),
            },
        ),
        ("gpt2", {"mlp.c_proj": (["mlp.c_fc", "mlp.c_fc.bias"], 1, 1)}),
        (
            "bert",
            {
                # Without rotary positions, q and k may take an order too, if it is one.
                "attention.output.dense": (
                    [f"attention.self.{n}{b}" for b in ("", ".bias") for n in ("query", "key", "value")],
                    4,
                    1,
                ),
                "output.dense": (["intermediate.dense", "intermediate.dense.bias"], 1, 1),
            },
        ),
    ],
)
def test_free_channels_are_found_by_trial(kind: str, channels: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    found, dense, model = known(kind, monkeypatch)
    assert found == channels
    test = ids(torch, 4, seed=2)
    torch.testing.assert_close(result(torch, model, test), result(torch, dense, test), rtol=1e-3, atol=1e-4)
    moved = [n for n, p in model.named_parameters() if not torch.equal(p, dense.get_parameter(n))]
    names = {name for producers, _, _ in found.values() for name in producers} | set(found)
    assert moved and {name.split(".", 3)[-1].removesuffix(".weight") for name in moved} == names


def test_pruning_keeps_more_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free, "ROUNDS", 60)
    model = tiny(torch, transformers, "llama")
    dense = result(torch, model, ids(torch, 16, seed=2))
    losses: list[float] = []
    for permute in (False, True):
        pruned = copy.deepcopy(model)
        report = louver.torch.prune_(pruned, method="wanda", calibration=ids(torch, 40), permute=permute)
        losses.append(sum(row.error or 0.0 for row in report.changed if row.name.endswith(("down_proj", "o_proj"))))
        assert ("channels in another order" in report["model.layers.1.mlp.up_proj"].reason) is permute
        for row in report.changed:
            assert louver.check(pruned.get_submodule(row.name).weight.detach().numpy(), "2:4").ok
    assert losses[1] < 0.9 * losses[0]
    # The dense stream takes the same order.
    corrected = copy.deepcopy(model)
    louver.torch.prune_(
        corrected, method="sparsegpt", correct=True, reconstruct=20, tune=5, calibration=ids(torch, 40), permute=True
    )
    plain = copy.deepcopy(model)
    louver.torch.prune_(plain, method="wanda", calibration=ids(torch, 40), permute=True)
    test = ids(torch, 16, seed=2)
    loss = [float((result(torch, each, test) - dense).norm()) for each in (corrected, plain)]
    assert loss[0] < 0.8 * loss[1]


def test_channels_that_something_else_reads_are_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    class Read(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
            self.scale = nn.Parameter(torch.rand(16))

        def forward(self, x: Any) -> Any:
            return x + self.down(torch.relu(self.up(x)) * self.scale)

    torch.manual_seed(4)
    model = nn.Sequential(Read(), Read())
    dense = copy.deepcopy(model)
    louver.torch.prune_(model, "4:4", calibration=torch.randn(16, 8), permute=True)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), dense.parameters(), strict=True))
