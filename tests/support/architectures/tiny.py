"""Tiny random models of Transformers, by one rule for all configurations: sizes are divided, repeats are cut."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

FEW = 4
"""Experts, and the most layers."""

MANY = 16
"""More choices than this are of tokens, not of experts."""


@dataclass(frozen=True)
class Rule:
    """How a configuration shrinks. Sizes are divided by `factor` and rounded up to multiples of `step`.

    heads: sizes of heads stay and their number is divided, so that what depends on a head's size still fits.
    """

    factor: int
    step: int = 1
    heads: bool = False

    def size(self, value: int) -> int:
        value = max(value // self.factor, 8) if value >= 64 else value
        return -(-value // self.step) * self.step if value >= 8 else value


FACTORS = (64, 32, 16, 8, 4)


def rules(kind: str) -> list[Rule]:
    """The rules to try for an architecture, the smallest results first."""
    fields = CONFIG_MAPPING[kind]().to_dict()
    known = (each.get(name) for each in (fields.get("text_config") or {}, fields) for name in HEADS)
    heads = next((each for each in known if type(each) is int), 1)
    divisors = [factor for factor in range(FACTORS[0], 1, -1) if heads % factor == 0]
    plain, rounded = ([Rule(factor, step) for factor in FACTORS] for step in (1, 16))
    return [*plain, *rounded, *(Rule(factor, 16, heads=True) for factor in divisors)]


HEADS = ("num_attention_heads", "num_heads", "n_heads", "n_head", "encoder_attention_heads")


def tiny_config(kind: str, rule: Rule) -> Any:
    """The default configuration of an architecture, made smaller by a rule."""
    fields = shrunk(CONFIG_MAPPING[kind]().to_dict(), rule)
    for name in ("auto_map", "quantization_config", "transformers_version"):
        fields.pop(name, None)
    return CONFIG_MAPPING[kind].from_dict(fields)


def shrunk(fields: dict[str, Any], rule: Rule) -> dict[str, Any]:
    vocabulary = fields.get("vocab_size")
    vocabulary = max(128, vocabulary // (16 * rule.factor)) if isinstance(vocabulary, int) else 128
    layers = next((fields[name] for name in LAYERS if type(fields.get(name)) is int), 0)
    kept = _kept(fields, layers)
    small: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "per_layer_config" and value:
            places = {str(layer): place for place, layer in enumerate(kept)}
            small[name] = {
                places[str(layer)]: shrunk(each, rule) for layer, each in value.items() if str(layer) in places
            }
        elif name == "head_dim" and value is None and type(fields.get("num_attention_heads")) is int:
            small[name] = small.get("hidden_size", 64) // small.get("num_attention_heads", 1)
        elif type(value) is list and layers > FEW and len(value) == layers:
            small[name] = [_field(name, value[layer], rule, vocabulary) for layer in kept]
        elif type(value) is list and layers > FEW and "layer" in name and name.endswith(("indices", "idx", "ids")):
            small[name] = [kept.index(layer) for layer in value if layer in kept] or [FEW // 2][: len(value)]
        else:
            small[name] = _field(name, value, rule, vocabulary)
    for name in [name for name in small if name.endswith("_offset") and name.replace("offset", "period") in small]:
        small[name] %= small[name.replace("offset", "period")]
    return small


LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")


def _kept(fields: dict[str, Any], layers: int) -> list[int]:
    """The layers that stay: one of each kind that lists of names give, then last and first ones, in order."""
    lists = [value for value in fields.values() if type(value) is list and len(value) == layers]
    kinds = list(zip(*(each for each in lists if all(type(kind) is str for kind in each)), strict=True))
    firsts = [kinds.index(kind) for kind in dict.fromkeys(kinds)]
    order = dict.fromkeys((*firsts, layers - 1, 0, layers - 2, 1, *range(layers)))
    return sorted([layer for layer in order if layer >= 0][:FEW])


def _field(name: str, value: Any, rule: Rule, vocabulary: int) -> Any:
    if isinstance(value, dict):
        return shrunk(value, rule) if name.endswith("config") or "model_type" in value else value
    if name in ("out_features", "_out_features", "out_indices", "_out_indices"):
        return _stages(value)
    if type(value) is list and name in ("layer_types", "mlp_layer_types", "layers_block_type", "block_types"):
        return value[:FEW]
    if type(value) is list and value and all(type(each) is int for each in value):
        if name in ("depths", "num_layers", "layers"):
            return [min(each, 2) for each in value]
        return [_field(name, each, rule, vocabulary) for each in value]
    if value is None and name.endswith("experts_per_tok"):
        return 2
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
    if name.endswith("_group"):
        return 1
    if name.endswith(("top_k", "topk", "moe_k")) and value <= MANY:
        return min(value, 2)
    if name.endswith("_period"):
        return value if value <= FEW else 2
    if "expert" in name and "size" not in name and "dim" not in name and "intermediate" not in name:
        return min(value, FEW if "per" not in name else 2)
    if (
        "image_size" in name
        or "patch" in name
        or "kernel" in name
        or "stride" in name
        or "channels" in name
        or "position" in name
    ):
        return value
    if rule.heads and ("head" in name or name == "d_kv"):
        return value if "dim" in name or "d_" in name or "size" in name else max(value // rule.factor, 1)
    return rule.size(value)


def _stages(value: Any) -> Any:
    """Stages that a backbone gives, if it has only a few: as many as before, the last ones."""
    numbers = [int(str(each).removeprefix("stage")) for each in value or [] if str(each) != "stem"]
    if not numbers or max(numbers) <= FEW or len(numbers) > FEW:
        return value
    last = range(FEW + 1 - len(numbers), FEW + 1)
    return [f"stage{each}" if isinstance(value[0], str) else each for each in last]


MOST = 20_000_000
"""Parameters of a tiny model."""


def tiny_model(kind: str, rule: Rule) -> Any:
    """A model with random weights that all differ. Raises ValueError for one that is not tiny."""
    cls, config = class_of(kind), tiny_config(kind, rule)
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


def architectures() -> dict[str, list[str]]:
    """The classes of each architecture that Transformers knows, by its kind: one for each task of a list."""
    found: dict[str, list[str]] = {}
    for task in TASKS:
        for kind, name in getattr(modeling_auto, f"MODEL_{task}MAPPING_NAMES").items():
            found.setdefault(kind, []).append(name if isinstance(name, str) else name[0])
    return found


def class_of(kind: str) -> Any:
    """The first class of an architecture's own configuration. Classes of a nested configuration are parts of the model."""
    classes = [getattr(transformers, name) for name in architectures()[kind]]
    own = (each for each in classes if getattr(each, "config_class", None) is CONFIG_MAPPING[kind])
    return next(own, classes[0])


TASKS = (
    "FOR_CAUSAL_LM_", "FOR_SEQ_TO_SEQ_CAUSAL_LM_", "FOR_IMAGE_TEXT_TO_TEXT_", "FOR_MASKED_LM_", "FOR_IMAGE_CLASSIFICATION_",
    "FOR_CTC_", "FOR_SPEECH_SEQ_2_SEQ_", "FOR_AUDIO_CLASSIFICATION_", "FOR_OBJECT_DETECTION_", "FOR_SEMANTIC_SEGMENTATION_",
    "FOR_DEPTH_ESTIMATION_", "FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_", "",
)  # fmt: skip
