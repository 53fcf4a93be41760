"""Distillation, text and allocation on a GPU: bf16 products, compiled blocks, measured times."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import louver
import louver.torch

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

from louver.torch.accuracy.text import evaluate, generate_tokens  # noqa: E402


@pytest.fixture(scope="module")
def dense() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=1000, hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.05, tie_word_embeddings=True,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval().to("cuda", torch.bfloat16)


@pytest.mark.parametrize("moving", [False, True])
def test_a_pruned_model_learns_in_compiled_blocks(dense: Any, moving: bool) -> None:
    # Values settle in the second half only where masks move in the first one.
    model = copy.deepcopy(dense)
    louver.torch.prune_(model)
    text = generate_tokens(dense, 64, 64, seed=4)
    before = evaluate(model, text, dense)
    report = louver.torch.distill_(
        model,
        teacher=dense,
        steps=120 if moving else 60,
        batch=16,
        length=64,
        generate=20_000,
        moving=moving,
        rate=2e-3,
    )
    after = evaluate(model, text, dense)
    assert after.kl < 0.75 * before.kl, (before, after)
    assert report.notes == () and (report.moved > 0) == moving
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            assert louver.check(module.weight.detach(), "2:4").ok
    assert all(block._compiled_call_impl is None for block in (*model.model.layers, *dense.model.layers))


def test_text_is_written_by_replays(dense: Any, monkeypatch: Any) -> None:
    from louver.torch.accuracy import text

    def slow(*_: Any) -> Any:
        raise AssertionError("written by the model's own cache")

    together = text._together
    monkeypatch.setattr(text, "_together", lambda *args: min(50, together(*args)))
    cold = generate_tokens(dense, 70, 40, temperature=1e-6)
    assert torch.equal(cold, generate_tokens(dense, 70, 40, temperature=1e-6))
    with torch.no_grad():
        likely = dense(cold).logits[:, :-1].argmax(-1)
    assert (likely == cold[:, 1:]).float().mean() > 0.97
    monkeypatch.setattr(text, "_Cached", slow)
    monkeypatch.setattr(text, "_together", lambda *args: 50)
    assert torch.equal(cold, generate_tokens(dense, 70, 40, temperature=1e-6))


def test_values_of_sparse_layers_train(dense: Any) -> None:
    model = copy.deepcopy(dense)
    louver.torch.prune_(model)
    louver.torch.compress_(model, force=True)
    text = generate_tokens(dense, 64, 64, seed=4)
    before = evaluate(model, text, dense)
    louver.torch.distill_(model, teacher=dense, steps=30, batch=16, length=64, generate=20_000, rate=2e-3)
    assert evaluate(model, text, dense).kl < before.kl
    assert louver.torch.verify(model) == {}


def test_an_interrupted_run_goes_on(dense: Any, tmp_path: Any, monkeypatch: Any) -> None:
    from louver.torch.accuracy import loop

    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    model = copy.deepcopy(dense)
    louver.torch.prune_(model)
    options: Any = {"teacher": dense, "steps": 60, "batch": 16, "length": 64, "generate": 20_000, "resume": tmp_path}

    def interrupt(point: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        louver.torch.distill_(model, progress=interrupt, **options)
    # Nothing was saved before the first point was told.
    seen: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        louver.torch.distill_(
            model, progress=lambda p: seen.append(p.step) or (p.step == 40 and interrupt(p)), **options
        )
    report = louver.torch.distill_(model, **options)
    assert seen == [20, 40] and [point.step for point in report.curve] == [20, 40, 60]


def test_allocations_by_measured_time(dense: Any) -> None:
    torch.manual_seed(1)
    config = copy.deepcopy(dense.config)
    config.hidden_size, config.intermediate_size, config.head_dim = 4096, 8192, 64
    config.num_attention_heads, config.num_key_value_heads, config.num_hidden_layers = 64, 16, 2
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()
    text = torch.randint(1000, (16, 128))
    found = louver.torch.allocate(model, "1.15x", calibration=text, patterns=("2:4",), tokens=(16, 2048))
    assert found.measured and found.speedup >= 1.15
    assert {"2:4", None} == set(found.values())
