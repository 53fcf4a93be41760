"""`prune_` by calibration: what it checks before it changes anything, what it tells, and what it leaves behind."""

from __future__ import annotations

import copy
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import louver
import louver.torch
from support.tiny_models import ids, tiny

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

from louver.torch.accuracy import prune  # noqa: E402
from louver.torch.accuracy.matrix import DAMPINGS  # noqa: E402

nn = torch.nn


@pytest.fixture
def llama() -> Any:
    return tiny(torch, transformers, "llama")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "obs"}, ValueError, "a method is one of magnitude, wanda, sparsegpt, admm, got 'obs'"),
        ({"method": "wanda", "correct": True}, ValueError, "correct=True changes values, which wanda alone leaves"),
        ({"reconstruct": -1}, ValueError, "reconstruct is a number of rounds, 0 or more, got -1"),
        ({"tune": True}, ValueError, "tune is a number of steps, 0 or more, got True"),
        ({"held_out": ids}, ValueError, "held_out= goes with a calibration, got none: method='magnitude' alone"),
        ({"resume": "there"}, ValueError, "resume= goes with a calibration, got none"),
        ({"blocks": "model.layers"}, ValueError, "blocks= goes with a calibration, got none"),
        ({"calibration": [1, 2]}, TypeError, r"calibration is a tensor of token ids \[rows, length\], got list"),
        ({"calibration": {}}, ValueError, "calibration has one text at least, got none"),
        (
            {"calibration": torch.rand(4, 6)},
            ValueError,
            r"calibration has token ids as int64 \[rows, length\], got torch.float32 \[4, 6\]: pack text",
        ),
        ({"calibration": ids(torch, 6)[0]}, ValueError, r"int64 \[rows, length\], got torch.int64 \[24\]"),
        (
            {"calibration": {"code": ids(torch, 6) + 80}},
            ValueError,
            "calibration 'code' has ids from 0 to 98, the model's vocabulary, got .* to 178: use the model's own tokenizer",
        ),
        ({"calibration": ids(torch, 6), "held_out": -ids(torch, 6)}, ValueError, "held_out has ids from 0 to 98"),
        ({"calibration": ids(torch, 6), "blocks": "layers"}, ValueError, "got 'layers': no module of this name"),
        (
            {"calibration": ids(torch, 6), "per_layer": {"model.layers.0.q": "2:4"}},
            ValueError,
            "per_layer names linear layers, got 'model.layers.0.q'; the layers are model.layers.0.self_attn.q_proj, ",
        ),
        ({"per_layer": {"q": "2:4"}}, ValueError, "per_layer names linear layers, got 'q'"),
        (
            {"calibration": ids(torch, 6), "skip": ("*",)},
            ValueError,
            "(?s)no linear layer is left to prune to 2:4, got",
        ),
        ({"calibration": ids(torch, 6), "method": "sparsegpt", "swaps": 1, "pattern": "2:8@V16"}, ValueError, "swaps"),
        (
            {"transposable": True, "pattern": "4:8"},
            ValueError,
            "transposable masks are 2:4, got 4:8: leave transposable",
        ),
        (
            {"transposable": True, "per_layer": {"model.layers.0.self_attn.q_proj": "1:2"}},
            ValueError,
            "transposable masks are 2:4, got 1:2",
        ),
        ({"transposable": 1}, TypeError, "transposable is True or False, got an object of type int"),
        (
            {"transposable": True, "swaps": 1, "calibration": ids(torch, 6)},
            ValueError,
            "swaps choose masks along the rows alone, got swaps=1 and transposable=True: leave one out",
        ),
    ],
)
def test_bad_input_names_the_rule_and_changes_nothing(
    llama: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    before = copy.deepcopy(llama.state_dict())
    with pytest.raises(error, match=message):
        louver.torch.prune_(llama, **options)
    assert all(torch.equal(x, before[name]) for name, x in llama.state_dict().items())


@pytest.mark.parametrize("method", ["magnitude", "wanda", "sparsegpt", "admm"])
def test_transposable_masks(llama: Any, method: str) -> None:
    calibration = None if method == "magnitude" else ids(torch, 6)
    report = louver.torch.prune_(llama, method=method, calibration=calibration, transposable=True)
    pruned = [row for row in report.rows if row.done == "pruned"]
    assert len(pruned) == 14
    for row in pruned:
        weight = llama.get_submodule(row.name).weight.detach().float().numpy()
        assert all(louver.check(weight, "2:4", axis=axis).ok for axis in (0, 1)), row.name
        assert 0.4 < (weight == 0).mean() < 0.6
    louver.torch.compress_(llama, force=True)
    assert all(
        layer.weight.is_transposable for layer in llama.modules() if isinstance(layer, louver.torch.SparseLinear)
    )


def test_an_encoder_writes_no_text_of_its_own() -> None:
    with pytest.raises(TypeError):
        louver.torch.prune_(tiny(torch, transformers, "bert"), method="wanda")


def test_a_model_on_meta_is_refused(llama: Any) -> None:
    with pytest.raises(ValueError, match="load the weights first"):
        louver.torch.prune_(llama.to("meta"), method="wanda", calibration=ids(torch, 6))


def test_without_a_calibration_the_model_writes_it(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    generate = prune.generate_tokens
    monkeypatch.setattr(prune, "generate_tokens", lambda model, rows, length: generate(model, rows // 8, 20))
    report = louver.torch.prune_(llama, method="wanda")
    assert report["model.layers.0.mlp.up_proj"].tokens == 14 * 20 and list(report.held_out) == ["own"]


def test_each_text_holds_out_its_last_eighth(llama: Any) -> None:
    texts = {"articles": ids(torch, 24), "code": ids(torch, 16, 10), "few": ids(torch, 7)}
    report = louver.torch.prune_(llama, method="sparsegpt", reconstruct=10, calibration=texts)
    row = report["model.layers.1.self_attn.o_proj"]
    assert row.tokens == 21 * 24 + 14 * 10 + 7 * 24
    assert list(row.held_out) == ["articles", "code"]
    mean = (row.held_out["articles"] * row.held_out["code"]) ** 0.5
    assert row.error == pytest.approx(mean, rel=1e-6) and row.damping in DAMPINGS


def test_weights_that_are_no_plain_parameters_stay() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    model[0].weight = nn.Parameter(louver.torch.SparseTensor.of(torch.randn(8, 8), "2:4", prune=True), False)
    report = louver.torch.prune_(model)
    assert report["0"].reason.startswith("its weight is a SparseTensor: prune the model before it is distributed")
    assert report["1"].done == "pruned"


def test_modes_and_grads_come_back_and_weights_can_be_trained(llama: Any) -> None:
    llama.train()
    llama.model.layers[1].mlp.eval()
    parameters = list(llama.parameters())
    with torch.inference_mode():
        louver.torch.prune_(llama, method="sparsegpt", calibration=ids(torch, 16), tune=2)
    assert llama.training and llama.model.layers[0].mlp.training and not llama.model.layers[1].mlp.training
    assert all(a is b and a.requires_grad for a, b in zip(parameters, llama.parameters(), strict=True))
    llama(ids(torch, 2), labels=ids(torch, 2)).loss.backward()
    assert llama.model.layers[0].mlp.up_proj.weight.grad.abs().sum() > 0


def test_progress_goes_to_a_function_or_a_terminal(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int, float]] = []
    louver.torch.prune_(
        copy.deepcopy(llama), method="wanda", calibration=ids(torch, 8), progress=lambda *state: told.append(state)
    )
    assert [state[:2] for state in told] == [(1, 2), (2, 2)] and told[0][2] > 0 and told[1][2] == 0
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", screen)
    louver.torch.prune_(llama, method="wanda", calibration=ids(torch, 8))
    assert "\rpruned 1 of 2 blocks, 0:0" in screen.getvalue() and screen.getvalue().endswith("0:00 left \n")


def test_half_precision_is_written_in_its_own_type(llama: Any) -> None:
    llama.bfloat16()
    report = louver.torch.prune_(llama, calibration=ids(torch, 16), method="sparsegpt", correct=True, reconstruct=10)
    weight = llama.model.layers[1].mlp.down_proj.weight
    assert weight.dtype == torch.bfloat16 and bool(weight.isfinite().all())
    assert report["model.layers.1.mlp.down_proj"].zeros == 0.5


def test_the_report_as_table_json_and_plot(llama: Any, tmp_path: Path) -> None:
    report = louver.torch.prune_(
        llama, method="sparsegpt", reconstruct=5, calibration={"a": ids(torch, 16), "b": ids(torch, 16, seed=4)}
    )
    lines = str(report).splitlines()
    assert lines[0].split() == ["layer", "shape", "weight", "MB", "zeros", "error", "damping", "tokens", "s", "reason"]
    assert "50.0%" in lines[1] and lines[1].endswith("by sparsegpt, reconstruct=5")
    rows = json.loads(report.json())
    assert (
        rows[0]["tokens"] == 2 * 14 * 24 and set(rows[0]["held_out"]) == {"a", "b"} and rows[0]["method"] == "sparsegpt"
    )
    pytest.importorskip("matplotlib")
    report.plot(tmp_path / "errors.png")
    assert (tmp_path / "errors.png").read_bytes()[:4] == b"\x89PNG"
    plain = louver.torch.prune_(nn.Sequential(nn.Linear(8, 8)))
    assert plain.rows[0].zeros == 0.5
    with pytest.raises(ValueError, match="a plot shows errors, got none: prune with calibration="):
        plain.plot(tmp_path / "none.png")


def test_texts_that_differ_are_told() -> None:
    """A text of one repeated token has inputs that the calibration never saw."""
    torch.manual_seed(3)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16)) for _ in range(2)))
    narrow = torch.randn(64, 2) @ torch.randn(2, 16)
    wide = torch.randn(64, 16)
    report = louver.torch.prune_(
        model, method="sparsegpt", reconstruct=20, calibration=narrow, held_out={"like": narrow[:8], "other": wide}
    )
    assert any(
        "the layers' error on 'other' is" in w and "calibrate with more text like 'other'" in w for w in report.warnings
    )
    assert str(report).splitlines()[-1].startswith("warning: ")


def test_too_little_text_and_dependent_inputs_are_told() -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    report = louver.torch.prune_(model, method="sparsegpt", damping=0.0, calibration=torch.randn(6, 16))
    row = report["0"]
    assert row.warnings[0] == "6 tokens for 16 input features: calibrate with more text"
    assert row.raised > 0 and row.warnings[1].startswith("damping raised by ")
    assert torch.equal(model[0].weight == 0, louver.prune(model[0].weight.detach(), "2:4") == 0)
