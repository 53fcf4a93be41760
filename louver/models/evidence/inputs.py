"""Inputs for one run of a model, from its configuration and the names of its arguments."""

# Torch has no complete types.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch

_TOKENS: Final = 8
_MOST: Final = 1 << 16
"""Largest size of a configuration's field that is taken for the size of an input."""


def tries(module: Any, config: Any) -> Iterator[dict[str, Any]]:
    """Arguments for a model's `forward`, the most natural ones first. Integers are real; the rest is made by the caller's mode."""
    parameters = inspect.signature(module.forward).parameters
    makers = {name: maker for name, maker in _MAKERS.items() if name in parameters}
    texts = [name for name in makers if name in _TEXTS]
    others = [name for name in makers if name not in _TEXTS]
    main = getattr(module, "main_input_name", "input_ids")
    orders = [
        [name for name in makers if name == main or name.startswith("decoder_") or name in _BESIDE],
        list(makers),
        texts,
        [*others],
        [name for name in others if name not in _BESIDE],
    ]
    seen: list[list[str]] = []
    for names in orders:
        if names and names not in seen:
            seen.append(names)
            for variant in range(_VARIANTS if any(name in _SEVERAL for name in names) else 1):
                yield {name: makers[name](config, variant) for name in names}


def _fields(config: Any) -> list[Any]:
    """The configuration, and those nested in it."""
    nested = [value for value in vars(config).values() if hasattr(value, "to_dict") and value is not config]
    return [config, *(inner for each in nested for inner in _fields(each))]


def _size(config: Any, *names: str, default: int) -> int:
    """The first of the fields that is a usable size; of a list the last number."""
    for each in _fields(config):
        for name in names:
            value = getattr(each, name, None)
            if isinstance(value, dict):
                value = value.get("height") or value.get("longest_edge")
            if isinstance(value, (list, tuple)) and value:
                value = value[-1]
            if type(value) is int and 0 < value < _MOST:
                return value
    return default


def _ids(config: Any, variant: int) -> torch.Tensor:
    vocabulary = _size(config, "vocab_size", default=16)
    end = getattr(config, "eos_token_id", None)
    end = end if type(end) is int and 0 <= end < vocabulary else vocabulary - 1
    return torch.tensor([[(3 + place) % vocabulary for place in range(_TOKENS - 1)] + [end]])


def _image(config: Any, variant: int) -> torch.Tensor:
    size = _size(config, "image_size", "img_size", default=224)
    channels = _size(config, "num_channels", "in_channels", "in_chans", default=3)
    if variant == 1:
        patch = _size(config, "patch_size", default=14) ** 2 * _size(config, "temporal_patch_size", default=1)
        return torch.empty(16, channels * patch)
    return torch.empty(*((1, 1) if variant == 2 else (1,)), channels, size, size)


def _video(config: Any, variant: int) -> torch.Tensor:
    return torch.empty(1, _size(config, "num_frames", default=2), *_image(config, 0).shape[1:])


def _features(config: Any, variant: int) -> torch.Tensor:
    bins = _size(config, "num_mel_bins", "feature_size", "input_feat_per_channel", "input_size", "mel_bins", default=80)
    frames = 2 * _size(config, "max_source_positions", default=100)
    return torch.empty(1, frames, bins) if variant == 1 else torch.empty(1, bins, frames)


def _sound(config: Any, variant: int) -> torch.Tensor:
    bins = _size(config, "num_mel_bins", default=128)
    return (
        torch.empty(1, 16000)
        if variant == 0
        else torch.empty(1, 1, 16000)
        if variant == 1
        else torch.empty(1, _size(config, "max_length", default=1024), bins)
    )


def _hidden(config: Any, variant: int) -> torch.Tensor:
    return torch.empty(1, _TOKENS, _size(config, "hidden_size", "d_model", default=16))


_MAKERS: Final[Mapping[str, Callable[[Any, int], torch.Tensor]]] = {
    "input_ids": _ids,
    "decoder_input_ids": _ids,
    "pixel_values": _image,
    "pixel_values_videos": _video,
    "input_features": _features,
    "input_values": _sound,
    "encoder_hidden_states": _hidden,
    "hidden_states": lambda config, variant: _image(config, 1) if variant else _hidden(config, 0),
    "bbox": lambda config, variant: torch.zeros(1, _TOKENS, 4, dtype=torch.long),
    "grid_thw": lambda config, variant: torch.tensor([[1, 4, 4]]),
    "image_grid_thw": lambda config, variant: torch.tensor([[1, 4, 4]]),
}
_TEXTS: Final = ("input_ids", "decoder_input_ids")
_BESIDE: Final = ("bbox", "grid_thw")
_SEVERAL: Final = ("pixel_values", "input_features", "input_values", "hidden_states")
_VARIANTS: Final = 3
