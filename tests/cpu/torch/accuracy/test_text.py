"""Text from a model, and evaluation on text, against whole tensors of logits."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

from louver.torch.accuracy import scores, text  # noqa: E402
from louver.torch.accuracy.decoding import Decoder  # noqa: E402

SIZES = {"vocab_size": 99, "num_hidden_layers": 2, "num_attention_heads": 4}


def llama(seed: int = 0, **more: Any) -> Any:
    torch.manual_seed(seed)
    config = dict(SIZES, hidden_size=64, intermediate_size=96, num_key_value_heads=2, initializer_range=0.1)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**config, **more})).eval()


def gemma(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = dict(SIZES, hidden_size=64, intermediate_size=96, num_key_value_heads=2, head_dim=16)
    return transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(**config, initializer_range=0.1, final_logit_softcapping=5.0)
    ).eval()


def gpt2(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = transformers.GPT2Config(vocab_size=99, n_embd=64, n_layer=2, n_head=4, bos_token_id=3, eos_token_id=3)
    return transformers.GPT2LMHeadModel(config).eval()


MODELS = pytest.mark.parametrize("make", [llama, gemma, gpt2])


@MODELS
def test_the_text_is_drawn_from_the_model(make: Any) -> None:
    model = make().train()
    written = text.generate_tokens(model, 71, 19, seed=5)
    assert written.shape == (71, 19) and written.dtype == torch.int64
    assert torch.equal(written, text.generate_tokens(model, 71, 19, seed=5))
    assert not torch.equal(written, text.generate_tokens(model, 71, 19, seed=6))
    assert model.training and (written[::2, 0] == model.config.bos_token_id).all()
    assert len(written[1::2, 0].unique()) > 10
    # A cold model takes its most likely token each time, which a pass without a cache finds too.
    cold = text.generate_tokens(model, 3, 12, temperature=1e-6)
    with torch.no_grad():
        assert torch.equal(cold[:, 1:], model.eval()(cold).logits[:, :-1].argmax(-1))


@pytest.mark.parametrize("make", [llama, gpt2])
def test_steps_over_kept_keys_score_as_whole_passes_do(make: Any) -> None:
    model, tokens = make(), torch.randint(99, (5, 17))
    with torch.no_grad():
        expected = model(tokens).logits
        decoder = Decoder(model, tokens[:, 0], 20)
        for at in range(17):
            assert torch.allclose(decoder(tokens[:, at], at), expected[:, at], atol=1e-4)
        decoder.check(tokens[:2])
        with pytest.raises(ValueError, match="scores of kept keys are those of a whole pass, got a difference of"):
            decoder.check(tokens[2:4])


def test_models_without_such_attention_write_by_their_cache() -> None:
    model = llama(attn_implementation="eager")
    with torch.no_grad(), pytest.raises(ValueError, match="LlamaForCausalLM calls no scaled_dot_product_attention"):
        Decoder(model, torch.arange(3), 9)
    with pytest.raises(ValueError, match="a Linear takes no position_ids and attention_mask"):
        Decoder(torch.nn.Linear(2, 2), torch.arange(3), 9)


def test_frequencies_are_those_of_the_model() -> None:
    model = llama(initializer_range=0.3)
    written = text.generate_tokens(model, 4000, 2, seed=1)
    with torch.no_grad():
        expected = model(written[:1, :1]).logits[0, 0].softmax(-1)
    found = torch.bincount(written[::2, 1], minlength=99) / 2000
    assert (found - expected).abs().max() < 5 * (expected.max() / 2000).sqrt()


@MODELS
@pytest.mark.parametrize("limit", [1 << 28, 16 * 99 * 13])
def test_evaluation_is_that_of_whole_logits(make: Any, limit: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(text, "PART", limit)
    model, dense = make(), make(1)
    tokens = torch.randint(99, (7, 13))
    found = text.evaluate(model, tokens, dense)
    with torch.no_grad():
        mine, theirs = (m(tokens).logits[:, :-1].double().log_softmax(-1) for m in (model, dense))
    surprise = -mine.gather(2, tokens[:, 1:, None]).mean().item()
    assert found.counted == 7 * 12
    assert found.perplexity == pytest.approx(math.exp(surprise), rel=1e-6)
    assert found.kl == pytest.approx((theirs.exp() * (theirs - mine)).sum(-1).mean().item(), rel=1e-4)
    assert found.top1 == pytest.approx((mine.argmax(-1) == theirs.argmax(-1)).double().mean().item())
    alone = text.evaluate(model, tokens)
    assert alone.perplexity == found.perplexity and alone.kl is None and alone.top1 is None


def test_a_model_of_nan_has_a_perplexity_of_nan() -> None:
    model = llama()
    model.model.norm.weight.data[3] = math.nan
    assert math.isnan(text.evaluate(model, torch.randint(99, (2, 5))).perplexity)


@MODELS
def test_the_head_apart_gives_the_models_logits_and_the_divergence_their_gradient(make: Any, monkeypatch: Any) -> None:
    model, dense = make().requires_grad_(False), make(1).requires_grad_(False)
    tokens = torch.randint(99, (4, 11))
    logits = model(tokens).logits
    with scores.apart(model, tokens[:1, :4]) as head, scores.apart(dense, tokens[:1, :4]) as dense_head:
        assert head.plain == (make is not gemma)
        hidden = head.hidden(tokens).flatten(0, 1).requires_grad_()
        dense_hidden = dense_head.hidden(tokens).flatten(0, 1)
        assert torch.allclose(head.scores(hidden), logits.flatten(0, 1), atol=1e-5)
        log, dense_log = head.scores(hidden).log_softmax(-1), dense_head.scores(dense_hidden).log_softmax(-1)
        expected = (dense_log.exp() * (dense_log - log)).sum(-1).mean()
        gradient = torch.autograd.grad(expected, hidden)[0]
        monkeypatch.setattr(scores, "PART", 99 * 10)
        found = scores.divergence(hidden, dense_hidden, head, dense_head)
        (3 * found).backward()
    assert found.item() == pytest.approx(expected.item(), rel=1e-4)
    assert torch.allclose(hidden.grad, 3 * gradient, atol=1e-3 * gradient.abs().max())
    assert torch.equal(model(tokens).logits, logits)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rows": 0}, ValueError, "rows is an integer of 1 or more, got 0"),
        ({"length": 1}, ValueError, "length is an integer of 2 or more, got 1"),
        ({"seed": -1}, ValueError, "seed is an integer of 0 or more, got -1"),
        ({"temperature": 0}, ValueError, "temperature is a positive number, got 0"),
        ({"model": torch.nn.Linear(3, 3)}, TypeError, "causal model of Transformers, got Linear: give text as tokens"),
    ],
)
def test_bad_requests_for_text(change: Any, error: Any, message: str) -> None:
    given = {"model": llama(), "rows": 2, "length": 3, "seed": 0, "temperature": 1.0}
    given.update(change)
    with pytest.raises(error, match=message):
        text.generate_tokens(given.pop("model"), given.pop("rows"), given.pop("length"), **given)


@pytest.mark.parametrize(
    ("tokens", "error", "message"),
    [
        (torch.randn(3, 4), TypeError, "tokens are a tensor of integers .rows, length., got a tensor of torch.float32"),
        ([[1, 2]], TypeError, "got list"),
        (torch.arange(4), ValueError, r"at least one row of two tokens, got shape \[4\]"),
        (torch.zeros(3, 1, dtype=torch.int64), ValueError, r"got shape \[3, 1\]"),
    ],
)
def test_bad_tokens(tokens: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        text.evaluate(llama(), tokens)


def test_models_that_score_no_tokens() -> None:
    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(9, 4)

        def forward(self, tokens: Any) -> Any:
            return self.table(tokens).sum(-1)

    with pytest.raises(TypeError, match=r"scores \[rows, length, vocabulary\] .* got shape \[1, 2\] of Two"):
        text.evaluate(Two(), torch.zeros(1, 2, dtype=torch.int64))
    with torch.device("meta"):
        empty = Two()
    with pytest.raises(ValueError, match="weights in memory, got Two without them: load the weights first"):
        text.evaluate(empty, torch.zeros(1, 2, dtype=torch.int64))
