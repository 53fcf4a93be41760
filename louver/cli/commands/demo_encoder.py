"""A BERT sentence encoder in NumPy with dense or sparse weights, and its tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver
from louver.formats.schema import Tensor
from louver.formats.tensor import SparseTensor
from louver.frontend.epilogue import Activation, Epilogue
from louver.library.reference import product

Array = NDArray[Any]

ARCHITECTURE = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
"""Entries of a `config.json` for which `Encoder` computes the same as the model."""


class NoEncoderError(ValueError):
    """The weights cannot embed sentences, for the reason in the text."""


@dataclass(frozen=True, slots=True)
class Bert:
    """Sizes of a BERT encoder, by their names in `config.json`. Raises NoEncoderError for impossible sizes."""

    vocab_size: int
    max_position_embeddings: int
    type_vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    layer_norm_eps: float

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            number = isinstance(value, int | float) if each.name == "layer_norm_eps" else isinstance(value, int)
            if not (number and value > 0):
                raise NoEncoderError(f"{each.name} in config.json must be a positive number, got {value!r}")
        if self.hidden_size % self.num_attention_heads:
            raise NoEncoderError(
                "num_attention_heads in config.json must divide hidden_size, "
                f"got {self.num_attention_heads} and {self.hidden_size}"
            )

    @classmethod
    def read(cls, path: Path) -> Bert:
        """Read the sizes from a `config.json`. Raises NoEncoderError for an unreadable file or another architecture."""
        if not path.is_file():
            raise NoEncoderError(f"{path} is not there")
        try:
            config = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise NoEncoderError(f"{path} cannot be read: {error}") from error
        if not isinstance(config, dict):
            raise NoEncoderError(f"{path} must hold a JSON object")
        given: dict[str, Any] = {"position_embedding_type": "absolute", **config}
        for key, value in ARCHITECTURE.items():
            if given.get(key) != value:
                raise NoEncoderError(f"{key} in {path} must be {value!r}, got {given.get(key)!r}")
        sizes: dict[str, Any] = {each.name: given.get(each.name) for each in fields(cls)}
        return cls(**sizes)

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Name and shape of every tensor that embeddings depend on."""
        wide, inner = self.hidden_size, self.intermediate_size
        yield "embeddings.word_embeddings.weight", (self.vocab_size, wide)
        yield "embeddings.position_embeddings.weight", (self.max_position_embeddings, wide)
        yield "embeddings.token_type_embeddings.weight", (self.type_vocab_size, wide)
        yield from _parameters("embeddings.LayerNorm", wide)
        for index in range(self.num_hidden_layers):
            layer = f"encoder.layer.{index}"
            for name in ("query", "key", "value"):
                yield from _parameters(f"{layer}.attention.self.{name}", wide, wide)
            yield from _parameters(f"{layer}.attention.output.dense", wide, wide)
            yield from _parameters(f"{layer}.attention.output.LayerNorm", wide)
            yield from _parameters(f"{layer}.intermediate.dense", inner, wide)
            yield from _parameters(f"{layer}.output.dense", wide, inner)
            yield from _parameters(f"{layer}.output.LayerNorm", wide)


def _parameters(name: str, *shape: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", shape
    yield f"{name}.bias", shape[:1]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Sentences as numbers. ids: int64 [sentences, length]. mask: the same shape, False after the end of a sentence."""

    ids: NDArray[np.int64]
    mask: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Encoder:
    """A BERT encoder. tensors: all of `config.shapes()`, in f32. Weights of layers may also be f16 or sparse.

    `louver.linear` multiplies sparse weights, NumPy dense ones. Both round activations to the weight's type.
    """

    config: Bert
    tensors: Mapping[str, Tensor]

    @property
    def layers(self) -> list[str]:
        """Names of the weights that `_linear` multiplies."""
        return [name for name, tensor in self.tensors.items() if name.startswith("encoder.") and len(tensor.shape) == 2]

    def embed(self, tokens: Tokens) -> NDArray[np.float32]:
        """Embeddings [sentences, hidden_size] of length 1: the mean of the last layer over each sentence's tokens."""
        sentence, place = np.nonzero(tokens.mask)
        # The rows of x are the tokens of all sentences in order, without padding.
        x = self._dense("embeddings.word_embeddings.weight")[tokens.ids[tokens.mask]]
        x = x + self._dense("embeddings.position_embeddings.weight")[place]
        x = self._normalized(x + self._dense("embeddings.token_type_embeddings.weight")[0], "embeddings.LayerNorm")
        for index in range(self.config.num_hidden_layers):
            layer = f"encoder.layer.{index}"
            mixed = self._linear(self._attention(x, tokens.mask, layer), f"{layer}.attention.output.dense")
            x = self._normalized(x + mixed, f"{layer}.attention.output.LayerNorm")
            inner = self._linear(x, f"{layer}.intermediate.dense", "gelu")
            x = self._normalized(x + self._linear(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
        sums = np.zeros((len(tokens.ids), x.shape[1]), np.float32)
        np.add.at(sums, sentence, x)
        return sums / np.linalg.norm(sums, axis=1, keepdims=True)

    def _attention(self, x: Array, mask: NDArray[np.bool_], layer: str) -> Array:
        query, key, value = (
            self._heads(x, mask, f"{layer}.attention.self.{name}") for name in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(2, 3) / np.float32(np.sqrt(query.shape[-1]))
        scores = np.where(mask[:, None, None], scores, np.float32(-np.inf))
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = weights / weights.sum(-1, keepdims=True) @ value
        return mixed.swapaxes(1, 2).reshape(*mask.shape, -1)[mask]

    def _heads(self, x: Array, mask: NDArray[np.bool_], name: str) -> Array:
        """A padded projection of the tokens: [sentences, heads, length, width of a head]."""
        padded = np.zeros((*mask.shape, x.shape[1]), np.float32)
        padded[mask] = self._linear(x, name)
        return padded.reshape(*mask.shape, self.config.num_attention_heads, -1).swapaxes(1, 2)

    def _linear(self, x: Array, name: str, activation: Activation | None = None) -> Array:
        weight, bias = self.tensors[f"{name}.weight"], self._dense(f"{name}.bias")
        if isinstance(weight, SparseTensor):
            return louver.linear(x.astype(weight.dtype.numpy), weight, bias, out_dtype="f32", activation=activation)
        rounded = x.astype(weight.dtype)
        return product(weight, rounded.T, bias, np.dtype(np.float32), Epilogue(activation=activation)).T

    def _normalized(self, x: Array, name: str) -> Array:
        centered = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt((centered**2).mean(-1, keepdims=True) + np.float32(self.config.layer_norm_eps))
        return centered / deviation * self._dense(f"{name}.weight") + self._dense(f"{name}.bias")

    def _dense(self, name: str) -> Array:
        return np.asarray(self.tensors[name])


@dataclass(frozen=True, slots=True)
class Observed(Encoder):
    """An encoder that keeps the sums of squares of its layers' inputs, [inputs] by the name of the weight."""

    squares: dict[str, Array] = field(default_factory=dict[str, Array])

    def _linear(self, x: Array, name: str, activation: Activation | None = None) -> Array:
        weight = f"{name}.weight"
        self.squares[weight] = self.squares.get(weight, np.float32(0)) + np.square(x).sum(0)
        return Encoder._linear(self, x, name, activation)


def read_encoder(config: Path, tensors: Mapping[str, Tensor]) -> Encoder:
    """The encoder that a `config.json` describes. Raises NoEncoderError unless all its tensors exist and are dense."""
    bert = Bert.read(config)
    for name, shape in bert.shapes():
        found = tensors.get(name)
        if not isinstance(found, np.ndarray) or found.shape != shape:
            got = "none" if found is None else f"{'x'.join(map(str, found.shape))} of {found.dtype}"
            raise NoEncoderError(f"by {config} there is a dense tensor {name} of shape {list(shape)}, got {got}")
    return Encoder(bert, {name: np.asarray(tensors[name]).astype(np.float32, copy=False) for name, _ in bert.shapes()})


def tokenize(path: Path, sentences: Sequence[str], config: Bert) -> Tokens:
    """The sentences as tokens by a `tokenizer.json`, truncated to the encoder's positions.

    Raises NoEncoderError without the package `tokenizers`, for an unreadable file, and for unknown tokens.
    """
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError as error:
        raise NoEncoderError("the package tokenizers is not installed: pip install tokenizers") from error
    try:
        tokenizer: Any = Tokenizer.from_file(str(path))
    except Exception as error:  # The package raises no narrower error.
        raise NoEncoderError(f"{path} cannot be read: {error}") from error
    tokenizer.enable_truncation(config.max_position_embeddings)
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(sentences)
    ids = np.array([one.ids for one in encoded], np.int64)
    mask = np.array([one.attention_mask for one in encoded], np.bool_)
    if not mask.any(axis=1).all():
        raise NoEncoderError(f"{path} makes no token of a sentence")
    if ids.max() >= config.vocab_size:
        raise NoEncoderError(
            f"{path} has the token {ids.max()}, beyond the encoder's vocabulary of {config.vocab_size}"
        )
    return Tokens(ids, mask)
