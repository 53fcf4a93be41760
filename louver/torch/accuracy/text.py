"""Text from a model itself, and how well a model predicts text: perplexity, and divergence from a dense model."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from louver.torch.accuracy.decoding import Decoder
from louver.torch.accuracy.scores import PART, logits_of, takes

SHARE: Final = 0.4
"""Of the free memory of a GPU, for the cache of rows that are generated together. Growing it takes as much again."""

HOST_ROWS: Final = 64
"""Rows that a CPU generates together."""

_PROBE: Final = (64, 9)
"""Rows and tokens of the run that finds the bytes of a token in the cache."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How a model predicts the next tokens of a text.

    perplexity: exp of the mean negative log likelihood; each token but the first of its row counts.
    kl: mean KL(dense ‖ model) of the next-token distributions, in nats; top1: share of tokens for which both have the
    same most likely one; None without a dense model. counted: tokens.
    """

    perplexity: float
    kl: float | None
    top1: float | None
    counted: int


@contextlib.contextmanager
def evaluating(*models: nn.Module | None) -> Generator[None]:
    """Evaluation mode without gradients. Each module's own mode comes back."""
    modes = [(module, module.training) for model in models if model is not None for module in model.modules()]
    for module, _ in modes:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def device_of(model: nn.Module) -> torch.device:
    """Where a model's parameters are. Raises ValueError for a model without any, or with some on `meta`."""
    parameter = next(model.parameters(), None)
    if parameter is None or any(each.is_meta for each in model.parameters()):
        raise ValueError(
            f"a model has its weights in memory, got {type(model).__name__} without them: load the weights first"
        )
    return parameter.device


def check_tokens(tokens: object, name: str = "tokens") -> Tensor:
    """Integers [rows, length] with two tokens or more in a row. Raises TypeError or ValueError for others."""
    if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.is_complex():
        got = f"a tensor of {tokens.dtype}" if isinstance(tokens, Tensor) else type(tokens).__name__
        raise TypeError(f"{name} are a tensor of integers [rows, length], got {got}")
    if tokens.ndim != 2 or tokens.shape[0] < 1 or tokens.shape[1] < 2:
        raise ValueError(
            f"{name} are [rows, length] with at least one row of two tokens, got shape {list(tokens.shape)}"
        )
    return tokens


def evaluate(model: nn.Module, tokens: Tensor, teacher: nn.Module | None = None) -> Evaluation:
    """Perplexity of a causal model on tokens [rows, length], and its divergence from a dense model.

    Rows are apart: no context is carried from one to the next. Some rows at a time go through the model, so that scores
    [rows, length, vocabulary] are never held whole. Sums are in f64, logarithms in f32. A model that gives NaN has a
    perplexity of NaN. Raises ValueError for tokens that are not [rows, length], TypeError for others than integers.
    """
    text = check_tokens(tokens)
    device = device_of(model)
    sums = torch.zeros(3, dtype=torch.float64, device=device)
    with evaluating(model, teacher):
        vocabulary = logits_of(model, text[:1, :2].long().to(device)).shape[-1]
        for chunk in chunks(text, vocabulary, device):
            rows = chunk.long().to(device)
            scores = logits_of(model, rows)
            dense = None if teacher is None else logits_of(teacher, rows.to(device_of(teacher))).to(device)
            sums += sums_of(rows, scores, dense)
    return evaluation_of(sums, text, teacher is not None)


def chunks(text: Tensor, vocabulary: int, device: torch.device) -> tuple[Tensor, ...]:
    """The rows that go through a model together: a device holds scores of two models, and f32 copies of a part of them."""
    return text.split(max(1, _limit(device) // (vocabulary * text.shape[1])))


def sums_of(rows: Tensor, scores: Tensor, dense: Tensor | None) -> Tensor:
    """Of rows of tokens: sums over the predicted tokens of the negative log likelihood, of the KL, and of the tokens
    whose most likely one is the dense model's. scores, dense: [rows, length, vocabulary].
    """
    scores, following = scores[:, :-1].flatten(0, 1), rows[:, 1:].flatten()
    dense = None if dense is None else dense[:, :-1].flatten(0, 1)
    size = max(1, _limit(scores.device) // 16 // scores.shape[-1])
    spans = [slice(at, at + size) for at in range(0, len(following), size)]
    return torch.stack(
        [_sums(scores[span], following[span], None if dense is None else dense[span]) for span in spans]
    ).sum(0)


def evaluation_of(sums: Tensor, text: Tensor, compared: bool) -> Evaluation:
    """What sums over the rows of a text say. compared: whether with a dense model."""
    counted = text.shape[0] * (text.shape[1] - 1)
    surprise, kl, same = (sums / counted).tolist()
    perplexity = math.exp(surprise) if not surprise > 700 else math.inf
    return Evaluation(perplexity, *((max(kl, 0.0), same) if compared else (None, None)), counted)


def _limit(device: torch.device) -> int:
    """Scores of one model that a device holds: 2 GB of them on a GPU."""
    return 4 * PART if device.type == "cuda" else PART // 16


def _sums(scores: Tensor, following: Tensor, dense: Tensor | None) -> Tensor:
    """Of some tokens: negative log likelihood, KL, and how many have the same most likely next token."""
    log = scores.float().log_softmax(-1)
    surprise = -log.gather(1, following[:, None]).double().sum()
    if dense is None:
        return torch.stack([surprise, torch.zeros_like(surprise), torch.zeros_like(surprise)])
    dense_log = dense.float().log_softmax(-1)
    kl = (dense_log.exp() * (dense_log - log)).sum(-1).double().sum()
    same = (scores.argmax(-1) == dense.argmax(-1)).sum().double()
    return torch.stack([surprise, kl, same])


def generate_tokens(model: nn.Module, rows: int, length: int, *, seed: int = 0, temperature: float = 1.0) -> Tensor:
    """Text that a causal model of Transformers writes itself, as tokens [rows, length] of int64 on its device.

    Each token is drawn from the model's own distribution, so the text is the model's view of what it was trained on.
    Half of the rows start with the token that begins a text, the others with any token. An end of a text is followed
    by the next text. The same seed gives the same tokens on the same device with the same free memory.

    Raises TypeError for a model without a cache of keys and values, and ValueError for bad numbers.
    """
    for name, value, least in (("rows", rows, 1), ("length", length, 2), ("seed", seed, 0)):
        if type(value) is not int or value < least:
            raise ValueError(f"{name} is an integer of {least} or more, got {value!r}")
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature is a positive number, got {temperature!r}")
    device = device_of(model)
    generator = torch.Generator(device).manual_seed(seed)
    with evaluating(model):
        first = _first(model, rows, generator)
        parts = first.split(_together(model, first, length))
        return torch.cat([_continued(model, part, length, generator, float(temperature)) for part in parts])


def _first(model: nn.Module, rows: int, generator: torch.Generator) -> Tensor:
    table: Any = getattr(model, "get_input_embeddings", lambda: None)()
    if not hasattr(table, "num_embeddings") or not takes(model, "use_cache"):
        raise TypeError(
            f"text is generated by a causal model of Transformers, got {type(model).__name__}: give text as tokens instead"
        )
    first = torch.randint(table.num_embeddings, (rows,), generator=generator, device=generator.device)
    begin = getattr(getattr(model, "config", None), "bos_token_id", None)
    if type(begin) is int and 0 <= begin < table.num_embeddings:
        first[::2] = begin
    return first


class _Cached:
    """A model with its cache: each call gives the scores [rows, vocabulary] after one more token of each row."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        # The name of the cache, which differs between versions of Transformers, in calls and in their output.
        self._name = "cache" if takes(model, "cache") else "past_key_values"
        self._cache: Any = None

    def __call__(self, token: Tensor, at: int) -> Tensor:
        given = {} if self._cache is None else {self._name: self._cache}
        made: Any = self._model(token[:, None], use_cache=True, **given)
        self._cache = getattr(made, self._name, None)
        if self._cache is None:
            raise TypeError(
                f"text is generated with a cache of keys and values, got {type(self._model).__name__} without one: give text as tokens instead"
            )
        return made.logits[:, -1]


def _continued(model: nn.Module, first: Tensor, length: int, generator: torch.Generator, temperature: float) -> Tensor:
    if first.is_cuda:
        begin = generator.get_state()
        # Models with other attention, or other state, write by their own cache.
        with contextlib.suppress(ValueError, RuntimeError):
            decoder = Decoder(model, first, length)
            out = _written(decoder, first, length, generator, temperature)
            decoder.check(out[:2, :-1])
            return out
        generator.set_state(begin)
    return _written(_Cached(model), first, length, generator, temperature)


def _written(
    scored: Callable[[Tensor, int], Tensor], first: Tensor, length: int, generator: torch.Generator, temperature: float
) -> Tensor:
    out = torch.empty(len(first), length, dtype=torch.long, device=first.device)
    out[:, 0] = first
    for at in range(1, length):
        scores = scored(out[:, at - 1], at - 1)
        size = max(1, PART // 4 // scores.shape[1])
        torch.cat([_drawn(part, generator, temperature) for part in scores.split(size)], out=out[:, at])
    return out


def _drawn(scores: Tensor, generator: torch.Generator, temperature: float) -> Tensor:
    """A token for each row of scores, by the Gumbel-max trick, without waiting for the device."""
    noise = torch.empty_like(scores, dtype=torch.float32).exponential_(generator=generator)
    return (scores.float() / temperature - noise.log_()).argmax(-1)


def _together(model: nn.Module, first: Tensor, length: int) -> int:
    """Rows whose cache fits, of the length that they will have."""
    if first.device.type != "cuda":
        return HOST_ROWS
    rows, tokens = _PROBE
    before = torch.cuda.memory_allocated(first.device)
    scored = _Cached(model)
    token = first[:1].expand(rows)
    scores = scored(token, 0)
    vocabulary = scores.shape[1]
    del scores
    for at in range(1, tokens):
        scored(token, at)
    taken = (torch.cuda.memory_allocated(first.device) - before) / (rows * tokens)
    free = torch.cuda.mem_get_info(first.device)[0]
    free += torch.cuda.memory_reserved(first.device) - torch.cuda.memory_allocated(first.device)
    return max(1, int(SHARE * free / (taken * length + 8 * vocabulary)))
