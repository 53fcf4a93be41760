"""The predicted gain of a layer: what `allocate` weighs on a CPU, and what `compress_` tells where it times nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import louver.torch

torch: Any = pytest.importorskip("torch")

from louver.advice.formats import Format  # noqa: E402
from louver.advice.rates import (  # noqa: E402
    known,
    predicted,
)
from louver.formats.pattern import Pattern  # noqa: E402
from louver.torch.accuracy.allocate import LayerTimes  # noqa: E402
from louver.torch.gain import predict  # noqa: E402

NAME = "NVIDIA H200"


def test_a_gain_is_of_both_formats_at_each_number_of_tokens() -> None:
    gain = predict(torch.zeros(4096, 2048, dtype=torch.float16), "2:4", (1, 300), NAME)
    device = known()[NAME]
    assert gain is not None
    for n in (1, 300):
        assert gain.dense_us[n] == predicted(Format("f16"), 4096, n, 2048, device).us
        assert gain.sparse_us[n] == predicted(Format("f16", "2:4"), 4096, n, 2048, device).us
    assert 0.5 < gain.relative < 0.9
    # f32 on a CPU is taken to become bf16.
    assert predict(torch.zeros(4096, 2048), "2:4", (1,), NAME) == predict(
        torch.zeros(4096, 2048, dtype=torch.bfloat16), "2:4", (1,), NAME
    )


def test_no_gain_is_predicted_without_rates() -> None:
    weight = torch.zeros(64, 64, dtype=torch.float16)
    assert predict(weight, "2:4", (1,), "NVIDIA A100") is None
    assert predict(weight[None], "2:4", (1,), NAME) is None
    assert predict(weight, "1:2", (1,), NAME) is None, "a weight of bf16 has no product of 1:2"
    assert predict(weight.to(torch.float8_e5m2), "2:4", (1,), NAME) is None
    layer: Any = SimpleNamespace(name="proj", weight=weight.to(torch.float8_e5m2), module=SimpleNamespace(bias=None))
    with pytest.raises(ValueError, match="times of e5m2 are predicted for no GPU, got proj: move the model to a GPU"):
        LayerTimes((1,)).of(layer, Pattern(2, 4))


@pytest.mark.parametrize("device", [NAME, "NVIDIA A100"])
def test_compress_tells_the_gain_where_it_times_nothing(device: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("louver.torch.swap.device_at_hand", lambda: device)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64, dtype=torch.float16))
    louver.torch.prune_(model)
    told = (
        f"; {NAME}: {predict(model[0].weight, '2:4', (8,), NAME).relative:.2f} of the dense time at 8 tokens, predicted"
    )
    if device != NAME:
        told = ""
    kept = louver.torch.compress_(model, tokens=8)["0"].reason
    assert kept == f"cpu: only a GPU multiplies sparse weights fast; force=True swaps anyway{told}"
    assert louver.torch.compress_(model, tokens=8, force=True)["0"].reason == (
        f"it keeps 2:4{told}; swapped without timing"
    )
