"""What the weights of plain PyTorch modules are for: by their classes and places, then by names."""

from __future__ import annotations

from typing import Any

import pytest

import louver

torch: Any = pytest.importorskip("torch")

from louver.formats.pattern import Pattern  # noqa: E402
from louver.models.live import live  # noqa: E402
from louver.models.roles import Role  # noqa: E402
from louver.torch.held import offending  # noqa: E402

nn = torch.nn


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.image = nn.Conv2d(3, 16, 2)
        self.back = nn.ConvTranspose2d(16, 3, 2)
        self.inner = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 16))
        self.choose, self.num_experts = nn.Linear(16, 6), 6
        self.tokens = nn.Linear(16, 50)
        self.classifier = nn.Linear(16, 9)
        self.free = nn.Parameter(torch.randn(4, 16))


def test_roles_of_plain_modules() -> None:
    facts = live(Mixed()).tensors
    found = {name: (each.role, each.axis) for name, each in facts.items() if len(each.form.shape) > 1}
    assert found == {
        "table.weight": (Role.EMBEDDING, None),
        "image.weight": (Role.CONVOLUTION, 1),
        "back.weight": (Role.CONVOLUTION, 0),
        "inner.0.weight": (Role.WEIGHT, 1),
        "inner.2.weight": (Role.WEIGHT, 1),
        "choose.weight": (Role.ROUTER, 1),
        "tokens.weight": (Role.HEAD, 1),
        "classifier.weight": (Role.HEAD, 1),
        "free": (Role.UNKNOWN, None),
    }
    assert facts["choose.weight"].reason == "it chooses experts; routers stay dense by default"
    assert facts["inner.0.weight"].prune and not facts["classifier.weight"].prune


def test_shared_modules_and_parameters_have_all_their_names() -> None:
    whole = nn.ModuleDict({"a": nn.Linear(8, 8), "b": nn.Linear(8, 8), "c": nn.Linear(8, 8)})
    whole["d"], whole["b"].weight = whole["a"], whole["c"].weight
    ties = {name: each.ties for name, each in live(whole).tensors.items() if name.endswith("weight")}
    assert ties == {
        "a.weight": ("d.weight",), "b.weight": ("c.weight",), "c.weight": ("b.weight",), "d.weight": ("a.weight",),
    }  # fmt: skip


@pytest.mark.parametrize("pattern", ["2:4", "1:2", "4:8@4", "2:8@V16"])
def test_groups_that_break_a_pattern_are_counted(pattern: str) -> None:
    weights = [torch.randn(16, 24), torch.randn(3, 16, 40), torch.randn(32, 24).mT.contiguous().mT]
    reports = [louver.check(w, pattern) for w in weights]
    counts = offending(weights, Pattern.parse(pattern))
    assert counts == [(report.offending, report.groups) for report in reports] and counts[0][0] > 0
    assert offending([], Pattern.parse(pattern)) == []
