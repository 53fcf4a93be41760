"""`prune_`, `compress_` and `decompress_` of a model: lossless, all or nothing, with a reason for each layer."""

from __future__ import annotations

import copy
import functools
import gc
import importlib
import json
import weakref
from pathlib import Path
from typing import Any

import pytest

import louver
import louver.torch
from support.torch_weights import close

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

from louver.torch import gain, swap  # noqa: E402
from louver.torch.linear import SparseLinear  # noqa: E402

nn = torch.nn


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.short = nn.Linear(48, 96), nn.Linear(96, 48, bias=False), nn.Linear(3, 48)
        self.router = nn.Linear(48, 4)
        self.experts = nn.ModuleList(nn.Linear(48, 48) for _ in range(4))
        self.score = nn.Linear(48, 1)

    def forward(self, x: Any) -> Any:
        chosen = self.router(x).softmax(-1)
        mixed = sum(chosen[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))
        return x + self.down(torch.relu(self.up(x))) + mixed + self.short(x[..., :3]) + self.score(x)


class Model(nn.Module):
    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 48)
        self.block = Block()
        self.again = self.block.up
        self.head = nn.Linear(48, 100, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, ids: Any) -> Any:
        return self.head(self.block(self.embedding(ids)))


SWAPPED = ["block.up", "block.down", *(f"block.experts.{i}" for i in range(4))]


@pytest.fixture
def model() -> Any:
    torch.manual_seed(9)
    return Model().bfloat16().eval()


def ids() -> Any:
    return torch.arange(12).reshape(2, 6)


def test_prune_compress_run_and_back(model: Any) -> None:
    pruned = louver.torch.prune_(model)
    assert [row.name for row in pruned.changed] == SWAPPED
    dense, expected = {name: x.clone() for name, x in model.state_dict().items()}, model(ids())
    report = louver.torch.compress_(model, force=True)
    assert [row.name for row in report.changed] == SWAPPED
    assert type(model.block.up) is SparseLinear and model.again is model.block.up
    close(torch, model(ids()), expected, 0.03)
    assert list(model.block.down.state_dict()) == ["weight.values", "weight.indices"]
    back = louver.torch.decompress_(model)
    assert [row.name for row in back] == SWAPPED
    assert type(model.block.up) is nn.Linear and model.again is model.block.up
    assert all(torch.equal(x, dense[name]) for name, x in model.state_dict().items())
    assert torch.equal(model(ids()), expected)


def test_the_report_gives_each_layer_a_reason(model: Any) -> None:
    louver.torch.prune_(model)
    report = louver.torch.compress_(model, force=True)
    reasons = {row.name: row.reason for row in report}
    assert reasons["head"] == "it gives a score for each token; heads stay dense by default"
    assert reasons["block.router"] == "it chooses experts; routers stay dense by default"
    assert reasons["block.score"] == "it gives a single score; heads stay dense by default"
    assert (
        reasons["block.short"]
        == "3 input features are less than a group of 2:4; 48 of 96 groups have more non-zeros than 1:2 keeps"
    )
    up = report["block.up"]
    assert (up.done, up.pattern, up.shape, up.bytes) == ("sparse", "2:4", (96, 48), (9216, 5184))
    assert json.loads(report.json())[0]["name"] == "block.up"
    text = str(report)
    assert "block.experts.3  48 × 48   sparse 2:4" in text and text.endswith(
        f"6 of {len(report)} layers changed, 0.0 MB before, 0.0 MB after, 0.1 MB at once"
    )
    with pytest.raises(KeyError, match="'x' is no linear layer; the layers are block.up"):
        report["x"]


def test_the_report_counts_one_weight_twice(model: Any) -> None:
    louver.torch.prune_(model)
    report = louver.torch.compress_(model, force=True)
    before = sum(row.bytes[0] for row in report)
    assert report.peak_bytes == before + report["block.up"].bytes[1]
    assert louver.torch.prune_(Model().bfloat16()).peak_bytes == before


def test_tied_weights_and_shared_experts_stay(model: Any) -> None:
    tied = Model(tied=True)
    tied.block.experts[1].weight = tied.block.experts[0].weight
    reasons = {row.name: row.reason for row in louver.torch.prune_(tied)}
    assert (
        reasons["head"]
        == "it gives a score for each token; heads stay dense by default; one parameter with embedding.weight"
    )
    assert reasons["block.experts.0"] == "one parameter with block.experts.1.weight"


def test_nothing_is_swapped_on_a_cpu_without_force(model: Any) -> None:
    louver.torch.prune_(model)
    report = louver.torch.compress_(model)
    assert not report.changed
    reason = report["block.up"].reason
    assert reason.startswith("cpu: only a GPU multiplies sparse weights fast; force=True swaps anyway; NVIDIA H200: ")
    assert reason.endswith(" of the dense time at 1, 16, 2048 tokens, predicted")
    assert not any(isinstance(module, SparseLinear) for module in model.modules())


def test_layers_are_skipped_by_name(model: Any) -> None:
    report = louver.torch.prune_(model, skip=("block.experts.*",))
    assert [row.name for row in report.changed] == ["block.up", "block.down"]
    assert report["block.experts.2"].reason == "skipped by 'block.experts.*'"


@pytest.mark.parametrize("pattern", ["2:4", "2:8@V16", "1:4", "4:8@4"])
def test_other_patterns(model: Any, pattern: str) -> None:
    louver.torch.prune_(model, pattern)
    expected = model(ids())
    report = louver.torch.compress_(model, patterns=(pattern,), force=True)
    assert {row.pattern for row in report.changed} == {pattern}
    close(torch, model(ids()), expected, 0.03)


def test_modules_that_read_weights_or_have_hooks_stay() -> None:
    model = nn.Sequential(
        nn.TransformerEncoderLayer(48, 2, 96), nn.Linear(48, 48), nn.Linear(48, 48), nn.Linear(48, 48)
    )
    model[1].register_forward_hook(lambda *_: None)
    model[2].forward = functools.partial(model[2].forward)
    report = louver.torch.prune_(model)
    assert [row.name for row in report.changed] == ["3"]
    assert report["0.linear1"].reason == "TransformerEncoderLayer reads the weight itself"
    assert report["0.self_attn.out_proj"].reason == "it is a NonDynamicallyQuantizableLinear, not a torch.nn.Linear"
    assert report["1"].reason == report["2"].reason == "it has hooks: attach them after the swap"


def test_negative_zeros_are_counted(model: Any) -> None:
    louver.torch.prune_(model)
    weight = model.block.up.weight
    with torch.no_grad():
        weight[weight == 0] = -0.0
    report = louver.torch.compress_(model, force=True)
    assert report["block.up"].negative_zeros_dropped == 96 * 24
    louver.torch.decompress_(model)
    assert torch.equal(model.block.up.weight, weight)


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), KeyboardInterrupt()])
def test_an_error_leaves_nothing_half_swapped(
    model: Any, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    louver.torch.prune_(model)
    before, made = {name: x.clone() for name, x in model.state_dict().items()}, SparseLinear.of
    calls = iter(range(100))

    def fails(layer: Any, pattern: Any) -> Any:
        if next(calls) == 3:
            raise error
        return made(layer, pattern)

    monkeypatch.setattr(SparseLinear, "of", fails)
    with pytest.raises(type(error)):
        louver.torch.compress_(model, force=True)
    after = model.state_dict()
    assert list(after) == list(before) and all(torch.equal(x, before[name]) for name, x in after.items())


def test_no_dense_copy_is_kept(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    louver.torch.prune_(model)
    alive = [weakref.ref(module.weight) for module in (model.block.up, model.block.down, *model.block.experts)]
    counts = []
    made = SparseLinear.of

    def counted(layer: Any, pattern: Any) -> Any:
        gc.collect()
        counts.append(sum(each() is not None for each in alive))
        return made(layer, pattern)

    monkeypatch.setattr(SparseLinear, "of", counted)
    louver.torch.compress_(model, force=True)
    assert counts == [6, 5, 4, 3, 2, 1]


def test_layers_are_swapped_where_they_are_measured_faster(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With times as a GPU would give: the weight up gains, all others lose."""
    louver.torch.prune_(model)
    measured = []

    def times(dense: Any, sparse: Any, tokens: Any) -> Any:
        measured.append((sparse.out_features, sparse.in_features))
        sparse_us = {1: 2.0, 16: 3.0 if sparse.out_features == 96 else 9.0}
        return gain.Gain({1: 3.0, 16: 4.0}, sparse_us)

    monkeypatch.setattr(swap, "measure", times)
    monkeypatch.setattr(swap, "_multiplies_fast", lambda weight: True)
    report = louver.torch.compress_(model, tokens=(1, 16))
    assert [row.name for row in report.changed] == ["block.up"]
    assert report["block.up"].reason == "swapped: 0.71 of the dense time at 1, 16 tokens"
    assert report["block.down"].reason == "takes 1.46 of the dense time at 1, 16 tokens"
    assert report["block.down"].sparse_us == {1: 2.0, 16: 9.0}
    assert measured == [(96, 48), (48, 96), (48, 48)]


def test_bad_input_names_the_rule(model: Any) -> None:
    with pytest.raises(ValueError, match=r"tokens are positive numbers, at least one, got \(0,\)"):
        louver.torch.compress_(model, tokens=(0,))
    with pytest.raises(
        ValueError,
        match=r"(?s)no weight keeps 2:4 or 1:2: call louver.torch.prune_\(model, …\) first.*block.up: .* groups have more",
    ):
        louver.torch.compress_(model, force=True)
    with pytest.raises(ValueError, match="got ReLU without one"):
        louver.torch.compress_(nn.ReLU())
    assert len(louver.torch.decompress_(model)) == 0
    with pytest.raises(ValueError, match="a pattern is written"):
        louver.torch.prune_(model, "two of four")
    with pytest.raises(ValueError, match=r"(?s)no linear layer is left to prune to 2:4, got.*skipped by"):
        louver.torch.prune_(model, skip=("*",))
    with pytest.raises(ValueError, match="load the weights first"):
        louver.torch.prune_(copy.deepcopy(model).to("meta"))
    with pytest.raises(ValueError, match="a weight of torch.float64"):
        louver.torch.prune_(copy.deepcopy(model).double())


def test_names_of_the_room() -> None:
    assert "compress_" in dir(louver.torch)
    with pytest.raises(AttributeError, match="louver.torch has no attribute 'compress'; its public names are Report"):
        _ = louver.torch.compress


def test_no_file_hides_a_public_name() -> None:
    """Python sets a submodule as an attribute of its package, where it would hide a function of its name."""
    files = {path.stem for path in Path(louver.torch.__file__).parent.glob("*.py")}
    assert not files & set(louver.torch.__all__)


def test_a_weight_has_the_pattern_that_gpus_multiply_in_its_type() -> None:
    """A weight of f32 that keeps 1:2 keeps 2:4 too, of which GPUs have no products in f32."""
    patterns: list[str] = []
    for dtype, pattern in ((torch.float32, "1:2"), (torch.bfloat16, "1:2"), (torch.float32, "2:4")):
        model = torch.nn.Sequential(torch.nn.Linear(64, 32)).to(dtype)
        louver.torch.prune_(model, pattern)
        (row,) = louver.torch.compress_(model, force=True)
        patterns.append(row.pattern)
    assert patterns == ["1:2", "2:4", "2:4"]


@pytest.mark.parametrize("how", ["prune", "parametrize"])
def test_weights_that_are_no_parameters_stay(how: str) -> None:
    made = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    if how == "prune":
        importlib.import_module("torch.nn.utils.prune").l1_unstructured(made[0], "weight", 0.5)
    else:
        torch.nn.utils.parametrizations.weight_norm(made[0])
    before = made[0].weight.detach().clone()
    louver.torch.prune_(made)
    reason = louver.torch.compress_(made, force=True)["0"].reason
    assert reason.startswith("its weight is no parameter, but computed of others: make it one by torch.nn.utils.")
    assert torch.equal(made[0].weight, before) and isinstance(made[1], SparseLinear)
