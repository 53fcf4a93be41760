"""Tiny random models of Transformers, by one rule for all configurations: sizes are divided, repeats are cut."""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

FEW = 4
"""Experts, and the most layers."""


def tiny_config(kind: str, factor: int) -> Any:
    """The default configuration of an architecture with sizes divided by a factor."""
    config = CONFIG_MAPPING[kind]()
    fields = shrunk(config.to_dict(), factor)
    for name in ("auto_map", "quantization_config", "transformers_version"):
        fields.pop(name, None)
    return CONFIG_MAPPING[kind].from_dict(fields)


def shrunk(fields: dict[str, Any], factor: int) -> dict[str, Any]:
    vocabulary = fields.get("vocab_size")
    vocabulary = max(128, vocabulary // (16 * factor)) if isinstance(vocabulary, int) else 128
    return {name: _field(name, value, factor, vocabulary) for name, value in fields.items()}


def _field(name: str, value: Any, factor: int, vocabulary: int) -> Any:
    if isinstance(value, dict):
        return shrunk(value, factor) if name.endswith("config") else value
    if type(value) is list and name in ("layer_types", "mlp_layer_types", "layers_block_type", "block_types"):
        return value[:FEW]
    if type(value) is list and value and all(type(each) is int for each in value):
        if name in ("depths", "num_layers", "layers"):
            return [min(each, 2) for each in value]
        return [_field(name, each, factor, vocabulary) for each in value]
    if type(value) is not int:
        return value
    if name == "vocab_size":
        return vocabulary
    if name.endswith(("_token_id", "token_index")) or name in ("image_token_id", "video_token_id"):
        return value % vocabulary
    if ("layers" in name and "feat" not in name) or name in (
        "n_layer",
        "num_blocks",
        "depth",
        "n_layers",
        "num_hidden_layers",
    ):
        return min(value, FEW)
    if "expert" in name and "size" not in name and "dim" not in name and "intermediate" not in name:
        return min(value, FEW if "per" not in name else 2)
    if name in ("n_group", "topk_group"):
        return 1
    if (
        "image_size" in name
        or "patch" in name
        or "kernel" in name
        or "stride" in name
        or "channels" in name
        or "position" in name
    ):
        return value
    return max(value // factor, 8) if value >= 64 else value


FACTORS = (64, 32, 16, 8, 4)
MOST = 6_000_000
"""Parameters of a tiny model."""


def tiny_model(kind: str, cls: Any, factor: int) -> Any:
    """A model with random weights that all differ. Raises ValueError for one that is not tiny."""
    config = tiny_config(kind, factor)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in cls(copy.deepcopy(config)).parameters())
    if size > MOST:
        raise ValueError(f"{kind} has {size} parameters")
    torch.manual_seed(0)
    model = cls(config).eval().float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.copy_(torch.randn(parameter.shape) * 0.05)
    return model


def architectures() -> dict[str, str]:
    """The class of each architecture that Transformers knows, by its kind: the first task of a list that has one."""
    found: dict[str, str] = {}
    for task in TASKS:
        for kind, name in getattr(modeling_auto, f"MODEL_{task}MAPPING_NAMES").items():
            found.setdefault(kind, name if isinstance(name, str) else name[0])
    return found


TASKS = (
    "FOR_CAUSAL_LM_", "FOR_SEQ_TO_SEQ_CAUSAL_LM_", "FOR_IMAGE_TEXT_TO_TEXT_", "FOR_MASKED_LM_", "FOR_IMAGE_CLASSIFICATION_",
    "FOR_CTC_", "FOR_SPEECH_SEQ_2_SEQ_", "FOR_AUDIO_CLASSIFICATION_", "FOR_OBJECT_DETECTION_", "FOR_SEMANTIC_SEGMENTATION_",
    "FOR_DEPTH_ESTIMATION_", "FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_", "",
)  # fmt: skip
