"""torchao: sparse weights by its `quantize_`, through a configuration of its own kind.

torchao looks up what to do with a module by the class of the configuration. Importing this module registers
`SparseConfig` there.
"""

# Their types are not known without torchao, which checks of Louver do not need.
# pyright: reportUntypedBaseClass=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch import nn

from louver.formats.pattern import Pattern
from louver.torch.layers import dense_layers, swappable
from louver.torch.quantized import Quantized, check_quantized, quantize_
from louver.torch.swap import choices_of, compress_


def _interface(module: str, name: str) -> Any:
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ImportError(
            f"louver.torch.torchao needs {module}.{name}, which torchao 0.9 to 0.18 have, got {type(error).__name__}: {error}: "
            "install such a version, or call louver.torch.compress_(model), which needs no torchao"
        ) from error


_Config: Any = _interface("torchao.core.config", "AOBaseConfig")
_register: Any = _interface("torchao.quantization.transform_module", "register_quantize_module_handler")


@dataclass(frozen=True)
class SparseConfig(_Config):
    """`torchao.quantization.quantize_(model, SparseConfig())` swaps each linear layer whose weight keeps a pattern for
    `louver.torch.SparseLinear`, without timing. Values stay equal. Other layers stay dense, with a warning that says why.

    pattern: that weights keep, see `louver.torch.prune_`.
    to: round the sparse weights to 8 bits as `louver.torch.quantize_` does, "e4m3" or "int8"; None leaves their type.

    torchao gives one module at a time, so q, k and v, and gate and up, stay apart, and a configuration of Transformers
    does not learn of the swap. `louver.torch.compress_` does both, and leaves the layers that would be slower.

    Raises ValueError for another pattern or type.
    """

    pattern: str = "2:4"
    to: Quantized | None = None

    def __post_init__(self) -> None:
        Pattern.parse(self.pattern)
        if self.to is not None:
            check_quantized(self.to)


@_register(SparseConfig)
def _swapped(module: nn.Module, config: SparseConfig) -> nn.Module:
    """The module with its layers swapped; a layer becomes another module."""
    held = nn.Sequential(module)
    layers = dense_layers(held) if swappable(held) else []
    choices = choices_of(layers, [Pattern.parse(config.pattern)], ())
    left = [f"{choice.layer.module} stays dense: {choice.reason}" for choice in choices if choice.pattern is None]
    for said in left if choices else [f"{module} stays as it is: it is no linear layer"]:
        warnings.warn(said, stacklevel=2)
    if len(left) < len(choices):
        compress_(held, patterns=[config.pattern], force=True)
        if config.to is not None:
            quantize_(held, config.to)
    return held[0]
