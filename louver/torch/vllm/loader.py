"""The load format `louver` of vLLM: vLLM's own loader, which gets dense weights in the place of sparse ones."""

# pyright: reportUntypedBaseClass=false, reportUntypedClassDecorator=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import copy
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from louver.torch.vllm.config import NAME, LouverConfig
from louver.torch.vllm.stream import dense_weights

_loaders: Any = import_module("vllm.model_executor.model_loader")
_Default: Any = import_module("vllm.model_executor.model_loader.default_loader").DefaultModelLoader


@_loaders.register_model_loader(NAME)
class LouverLoader(_Default):
    """Reads Louver's files and bitmasks of compressed-tensors, also dense files. So merged layers, experts and the division
    among GPUs are vLLM's.
    """

    def __init__(self, load_config: Any) -> None:
        plain = copy.copy(load_config)
        plain.load_format = "auto"
        super().__init__(plain)

    def get_all_weights(self, model_config: Any, model: Any) -> Iterator[tuple[str, Tensor]]:
        configs = (getattr(module, "quant_config", None) for module in model.modules())
        config = next((each for each in configs if isinstance(each, LouverConfig)), None)
        if config is None:
            raise ValueError(f"--load-format {NAME} reads models of --quantization {NAME}, got a model without")
        device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
        weights = super().get_all_weights(model_config, model)
        return dense_weights(weights, config.stored, device, model_config.dtype)
