"""`prepare` of a model: its errors; a GPU is needed for the rest."""

from __future__ import annotations

from typing import Any

import pytest

import louver.torch

torch: Any = pytest.importorskip("torch")


def test_bad_input_names_the_rule() -> None:
    with pytest.raises(ValueError, match="a model to prepare has layers of louver.torch.SparseLinear, got Linear"):
        louver.torch.prepare(torch.nn.Linear(8, 8), 1)
    with pytest.raises(ValueError, match="layers to prepare are on a GPU, got 0 on cpu: move the model"):
        louver.torch.prepare(torch.nn.Sequential(louver.torch.SparseLinear(48, 8)), (1, 16))
    with pytest.raises(ValueError, match=r"tokens are positive numbers, at least one, got \(\)"):
        louver.torch.prepare(torch.nn.Linear(8, 8), ())
