"""Evidence 2: what `config.json` alone says. Sizes that name roles, tied embeddings, and how weights are quantized."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

NAME: Final = "config.json"

MAX_BYTES: Final = 16 << 20
"""Most bytes of a configuration that is read: larger files are not configurations."""


@dataclass(frozen=True, slots=True)
class Config:
    """A model's configuration. fields: as in the file; empty if there is none. path: None if there is no file."""

    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    path: Path | None = None

    @property
    def vocabularies(self) -> frozenset[int]:
        """Sizes of vocabularies, of nested configurations too."""
        return frozenset(size for key, size in self._sizes() if key.endswith(("vocab_size", "num_embeddings")))

    @property
    def widths(self) -> frozenset[int]:
        """Sizes of hidden states: what products between blocks read and write, and what experts may read instead."""
        names = ("d_model", "n_embd", "dim")
        return frozenset(size for key, size in self._sizes() if key in names or key.endswith("hidden_size"))

    @property
    def inner(self) -> frozenset[int]:
        """Sizes of anything inside the model: not a vocabulary's, and no number of classes."""
        parts = ("size", "dim", "width", "d_model", "embd")
        return frozenset(
            size for key, size in self._sizes() if "vocab" not in key and any(part in key for part in parts)
        )

    @property
    def experts(self) -> frozenset[int]:
        """Numbers of experts."""
        return frozenset(size for key, size in self._sizes() if "experts" in key and "per" not in key)

    @property
    def repeats(self) -> dict[str, int]:
        """How often parts of the model are repeated: numbers of layers, blocks and experts."""
        parts = ("layer", "expert", "block", "depth", "stage")
        return {
            key: size
            for key, size in self._sizes()
            if any(part in key for part in parts) and key.startswith(("n", "depth", "encoder_l", "decoder_l"))
        }

    @property
    def tied(self) -> bool:
        """Whether the head and the embedding are one parameter."""
        return any(key == "tie_word_embeddings" and value is True for key, value in _items(self.fields))

    @property
    def quantization(self) -> Mapping[str, Any]:
        """The field quantization_config; empty if the weights are not quantized."""
        found = self.fields.get("quantization_config") or self.fields.get("compression_config")
        return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}

    @property
    def block(self) -> tuple[int, ...] | None:
        """Elements that share a scale along each axis of a weight, if the configuration says so."""
        for key, value in _items(self.quantization):
            if key in ("weight_block_size", "block_structure") and isinstance(value, list):
                sizes = cast("list[object]", value)
                if all(type(size) is int and size > 0 for size in sizes):
                    return tuple(cast("list[int]", sizes))
        return None

    def _sizes(self) -> Iterator[tuple[str, int]]:
        for key, value in _items(self.fields):
            if type(value) is int and value > 1:
                yield key, value


def read_config(folder: Path) -> tuple[Config, tuple[str, ...]]:
    """The configuration in a checkpoint's folder, and notes: a file that cannot be read is a note, not an error."""
    path = folder / NAME
    if not path.is_file():
        return Config(), ()
    if path.stat().st_size > MAX_BYTES:
        return Config(), (f"{NAME} has more than {MAX_BYTES >> 20} MiB and was not read",)
    try:
        fields = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        return Config(), (f"{NAME} was not read: {error}",)
    if not isinstance(fields, dict):
        return Config(), (f"{NAME} was not read: it is not a JSON object",)
    return Config(cast("dict[str, Any]", fields), path), ()


def _items(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """All fields, those of nested objects too."""
    for key, value in fields.items():
        yield key, value
        if isinstance(value, dict):
            yield from _items(cast("dict[str, Any]", value))
