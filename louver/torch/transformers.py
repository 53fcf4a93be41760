"""Transformers: `from_pretrained` and `save_pretrained` of models with sparse weights. Importing this registers it.

A saved model has Louver's names, `NAME.weight.values` and `NAME.weight.indices`, and the patterns in its
`quantization_config`. A program that loads it must import this module before; without it, Transformers fills the
layers with new random weights, with a table of missing names as its only warning.

A loaded model is an ordinary one: it trains, and `half` and `to` convert it.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUntypedClassDecorator=false, reportUntypedBaseClass=false

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import torch
from torch import Tensor, nn

from louver.formats.pattern import Pattern
from louver.torch.blocks import join_, joinable
from louver.torch.gated_experts import fuse_stacks_
from louver.torch.layers import dense_layers, is_hooked, sparse_layers, swappable
from louver.torch.linear import SparseWeight, pack_on_gpus_
from louver.torch.ready import checked_tokens
from louver.torch.swap import PATTERNS, Swapper, choices_of, nothing_kept, refusal


class Loading:
    """Stands between a checkpoint and a model on the meta device. Arguments as of `compress_`.

    Transformers gives each weight to `convert` when it has read it, under its name in the model, and sets what it gets
    back. A dense weight is alive only during that call.
    """

    def __init__(
        self,
        model: nn.Module,
        tokens: int | Sequence[int],
        patterns: Sequence[str | Pattern],
        skip: Collection[str],
        force: bool,
    ) -> None:
        self._patterns = [Pattern.parse(pattern) for pattern in patterns]
        self._swapper = Swapper(checked_tokens(tokens), force)
        layers = dense_layers(model)
        self._reasons: dict[str, str] = {layer.name: refusal(layer, skip) or "it was not loaded" for layer in layers}
        self._waiting = {
            name: layer for layer in layers if refusal(layer, skip) is None for name in layer.parameter_names
        }
        self._swapped: set[str] = set()

    def takes(self, name: str) -> bool:
        """Whether a parameter of the dense model is a weight that may become sparse, or that has become it."""
        return name in self._waiting or name in self._swapped

    def convert(
        self, input_dict: Mapping[str, Any], *, missing_keys: set[str] | None = None, **_: Any
    ) -> dict[str, Tensor]:
        """The parameters to set in place of those that were read."""
        made: dict[str, Tensor] = {}
        for name, given in input_dict.items():
            # A list has one tensor, see `transformers.core_model_loading`.
            w: Tensor = given[0] if isinstance(given, list) else given
            if name in self._waiting and w.shape == self._waiting[name].stored.shape:
                made |= self._parts(name, w)
            elif name not in self._swapped:
                made[name] = w
        if missing_keys is not None:
            missing_keys -= self._swapped
        return made

    def _parts(self, name: str, w: Tensor) -> dict[str, Tensor]:
        layer = self._waiting[name]
        for each in layer.parameter_names:
            del self._waiting[each]
        layer.store(nn.Parameter(w, layer.stored.requires_grad))
        (choice,) = choices_of([layer], self._patterns, ())
        row = self._swapper.row(choice)
        self._reasons[layer.name] = row.reason if choice.pattern is None else ""
        if row.done != "sparse":
            return {name: w}
        self._swapped |= set(layer.parameter_names)
        return {f"{name}.{part}": each.detach() for part, each in layer.placed.weight.named_parameters()}

    def check(self) -> None:
        """Raises ValueError if no weight that was read keeps a pattern."""
        if all(self._reasons.values()):
            raise nothing_kept(self._reasons, self._patterns)


# Their types are not known without Transformers, which checks of Louver do not need.
_auto: Any = import_module("transformers.quantizers.auto")
_Quantizer: Any = import_module("transformers.quantizers.base").HfQuantizer
_Configuration: Any = import_module("transformers.utils.quantization_config").QuantizationConfigMixin

METHOD: Final = "louver"
VERSION: Final = 1
"""The version of the configuration. Readers reject any other."""


@_auto.register_quantization_config(METHOD)
class LouverConfig(_Configuration):
    """What `config.json` says about a model's sparse layers, or how to compress a dense checkpoint.

    layers: pattern and element type of each sparse layer by name, as saved. None for a dense checkpoint, whose layers
        are compressed one by one while they are read; then tokens, patterns, skip and force are those of `compress_`.

    Raises ValueError for a configuration of another version, and for a layer without a pattern.
    """

    def __init__(
        self,
        layers: Mapping[str, Mapping[str, str]] | None = None,
        *,
        tokens: int | Sequence[int] = (1, 16, 2048),
        patterns: Sequence[str] = PATTERNS,
        skip: Collection[str] = (),
        force: bool = False,
        version: int = VERSION,
        quant_method: str = METHOD,
        **_: Any,
    ) -> None:
        if version != VERSION:
            raise ValueError(
                f"this Louver reads configurations of version {VERSION}, got version {version!r}: use the Louver that saved the "
                "model, or a newer one"
            )
        self.quant_method, self.version = quant_method, version
        self.layers = None if layers is None else {name: _checked(name, layer) for name, layer in layers.items()}
        self.tokens, self.patterns, self.skip, self.force = tokens, tuple(patterns), tuple(skip), force

    def to_dict(self) -> dict[str, Any]:
        """What a file needs."""
        return {"quant_method": self.quant_method, "version": self.version, "layers": self.layers}


def _checked(name: str, layer: Mapping[str, str]) -> dict[str, str]:
    pattern, dtype = layer.get("pattern"), layer.get("dtype")
    if not isinstance(getattr(torch, dtype or "", None), torch.dtype):
        raise ValueError(f"{name}: a sparse layer has a pattern and a dtype such as 'bfloat16', got {dict(layer)}")
    scale = layer.get("scale")
    if scale not in (None, "row"):
        raise ValueError(f'{name}: the scales of a quantized layer are those of its rows, "row", got {scale!r}')
    return {"pattern": str(Pattern.parse(pattern)), "dtype": str(dtype), **({"scale": scale} if scale else {})}


@_auto.register_quantizer(METHOD)
class LouverQuantizer(_Quantizer):
    """Swaps the layers that a configuration names before they are loaded, or compresses dense ones while they are."""

    requires_calibration = False
    _loading: Loading | None = None
    """Of a dense checkpoint."""

    def is_serializable(self, *_: Any, **__: Any) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        return True

    @property
    def is_compileable(self) -> bool:
        return True

    def param_needs_quantization(self, model: Any, param_name: str, **_: Any) -> bool:
        return self._loading is not None and self._loading.takes(param_name)

    def get_quantize_ops(self) -> Any:
        return self._loading

    def param_element_size(self, model: Any, param_name: str, param: Any) -> float:
        """Bytes of an element, for the plan of devices and memory: half of the values, and half a byte for four."""
        size: int = param.element_size()
        return size / 2 + 1 / 8 if self.param_needs_quantization(model, param_name) else size

    def _process_model_before_weight_loading(self, model: Any, **_: Any) -> Any:
        config = self.quantization_config
        layers: Mapping[str, Mapping[str, str]] | None = config.layers
        if not self.pre_quantized:
            self._loading = Loading(model, config.tokens, config.patterns, config.skip, config.force)
            return model
        places = {name: layer for layer in swappable(model) for name in layer.names}
        unknown = [name for name in (layers or ()) if name not in places]
        if layers is None or unknown:
            named = "no layers" if layers is None else f"{unknown[0]!r}, which is no linear layer of the model"
            raise ValueError(
                f"the quantization_config of a saved model names its sparse layers, got {named}: the files belong to another model"
            )
        for name, layer in layers.items():
            kept: torch.dtype = getattr(torch, layer["dtype"])
            dense = places[name]
            dense.put(dense.like(layer["pattern"], kept if kept.itemsize == 1 else None, scaled="scale" in layer))
        return model

    def _process_model_after_weight_loading(self, model: Any, **_: Any) -> Any:
        # Sparse weights of 16 bits are converted and trained as dense ones are, which Transformers refuses otherwise.
        self.remove_quantization_config(model)
        for module in model.modules():
            if hasattr(module, "config"):
                module.config._is_quantized = False
        if self._loading is not None:
            self._loading.check()
        # Hooks bring weights that a device_map offloads.
        empty = [
            name
            for name, module in model.named_modules()
            if isinstance(module, SparseWeight) and module.values.is_meta and not is_hooked(module)
        ]
        if empty:
            raise ValueError(f"a saved model has values and indices of its sparse layers, got none for {empty[0]}")
        join_(joinable(model))
        fuse_stacks_(model)
        pack_on_gpus_(model)
        return describe_(model)


def describe_(model: Any) -> Any:
    """Write the sparse layers of a model of Transformers to its configuration, or remove them if it has none."""
    layers = {
        layer.name: {
            "pattern": layer.module.weight.pattern,
            "dtype": str(layer.module.weight.dtype).removeprefix("torch."),
            **({} if layer.module.weight.scale is None else {"scale": "row"}),
        }
        for layer in sparse_layers(model)
    }
    config: Any = model.config
    if layers:
        config.quantization_config = LouverConfig(layers)
    elif isinstance(getattr(config, "quantization_config", None), LouverConfig):
        del config.quantization_config
    return model
