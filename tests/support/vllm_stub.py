"""A stand-in for vLLM: its modules with the interfaces that Louver uses, and layers that divide, merge and reload weights as
vLLM's do. Written for tests; `tests/vllm` runs the real one.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass
class LoadConfig:
    load_format: str = "auto"


@dataclass
class CompilationConfig:
    cudagraph_capture_sizes: list[int] = field(default_factory=list)


@dataclass
class VllmConfig:
    additional_config: dict[str, Any] = field(default_factory=dict)
    load_config: LoadConfig = field(default_factory=LoadConfig)
    compilation_config: CompilationConfig = field(default_factory=CompilationConfig)
    lora_config: Any = None

    def compute_hash(self) -> str:
        return json.dumps(self.additional_config, sort_keys=True)


@dataclass
class ModelConfig:
    """weights: the stream of the checkpoint."""

    weights: list[tuple[str, Tensor]]
    dtype: torch.dtype = torch.bfloat16


class Mapper:
    """Renames modules by prefix."""

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new

    def apply_dict(self, values: dict[str, Any]) -> dict[str, Any]:
        return {self.new + name.removeprefix(self.old): value for name, value in values.items()}


_PARTS = ("config", "method", "loader")


def installed(monkeypatch: Any) -> Iterator[dict[str, Any]]:
    """The modules in the place of vLLM's, as the body of a fixture. Louver's parts that import them are imported anew."""
    made = modules()

    def forget() -> None:
        for part in _PARTS:
            sys.modules.pop(f"louver.torch.vllm.{part}", None)
            vars(sys.modules["louver.torch.vllm"]).pop(part, None)

    importlib.import_module("louver.torch.vllm")
    forget()
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)
    yield made
    forget()


def modules() -> dict[str, Any]:
    """Fresh modules by name, so that a test may change them."""
    made: dict[str, Any] = {}

    def module(name: str, **members: Any) -> Any:
        made[name] = ModuleType(name)
        for key, value in members.items():
            setattr(made[name], key, value)
            if isinstance(value, type):
                value.__module__ = name
        return made[name]

    base, loaders = _bases(), _loaders()
    linear = _linear(base["QuantizeMethodBase"])
    module("vllm", __version__="0.0.stub")
    module("vllm.envs", VLLM_BATCH_INVARIANT=False)
    module("vllm.model_executor")
    module("vllm.model_executor.layers")
    config = module("vllm.config", VllmConfig=VllmConfig, CompilationConfig=CompilationConfig, LoadConfig=LoadConfig)
    config.current = VllmConfig()
    config.get_current_vllm_config = lambda: config.current
    module("vllm.model_executor.layers.quantization.base_config", **base)
    quantization = module("vllm.model_executor.layers.quantization", registered={})

    def register_quantization_config(quantization: str) -> Any:
        return lambda cls: registered.setdefault(quantization, cls)

    registered = quantization.registered
    quantization.register_quantization_config = register_quantization_config
    module("vllm.model_executor.layers.linear", **linear)
    module("vllm.model_executor.parameter", ChannelQuantScaleParameter=ChannelQuantScaleParameter)
    module("vllm.model_executor.model_loader", **loaders)
    module("vllm.model_executor.model_loader.default_loader", DefaultModelLoader=loaders["DefaultModelLoader"])
    return made


class _Parameter(nn.Parameter):
    def __new__(cls, data: Tensor, **_: Any) -> Any:
        return super().__new__(cls, data, requires_grad=False)

    def __init__(self, data: Tensor, weight_loader: Any, output_dim: int = 0, input_dim: int | None = None) -> None:
        self.weight_loader, self.output_dim, self.input_dim = weight_loader, output_dim, input_dim


class ChannelQuantScaleParameter(_Parameter):
    def __init__(self, output_dim: int, **kwargs: Any) -> None:
        super().__init__(output_dim=output_dim, **kwargs)


def _bases() -> dict[str, Any]:
    class QuantizationConfig:
        def __init__(self) -> None:
            self.packed_modules_mapping: dict[str, list[str]] = {}

        def get_name(self) -> str: ...
        def get_supported_act_dtypes(self) -> list[torch.dtype]: ...
        @classmethod
        def get_min_capability(cls) -> int: ...
        @staticmethod
        def get_config_filenames() -> list[str]: ...
        @classmethod
        def from_config(cls, config: dict[str, Any]) -> Any: ...
        @classmethod
        def override_quantization_method(cls, hf_quant_cfg: Any, user_quant: Any, hf_config: Any = None) -> Any: ...
        def get_quant_method(self, layer: nn.Module, prefix: str) -> Any: ...
        def apply_vllm_mapper(self, hf_to_vllm_mapper: Any) -> None: ...
        def maybe_update_config(self, model_name: str, hf_config: Any = None, revision: Any = None) -> None: ...

    class QuantizeMethodBase:
        def process_weights_after_loading(self, layer: nn.Module) -> None: ...

    return {"QuantizationConfig": QuantizationConfig, "QuantizeMethodBase": QuantizeMethodBase}


def _linear(base: Any) -> dict[str, Any]:
    v2: list[str] = []

    class LinearMethodBase(base):
        def create_weights(
            self,
            layer: Any,
            input_size_per_partition: int,
            output_partition_sizes: list[int],
            input_size: int,
            output_size: int,
            params_dtype: torch.dtype,
            **extra_weight_attrs: Any,
        ) -> None: ...

        def apply(self, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor: ...

    class UnquantizedLinearMethod(LinearMethodBase):
        def create_weights(
            self,
            layer: Any,
            input_size_per_partition: int,
            output_partition_sizes: list[int],
            input_size: int,
            output_size: int,
            params_dtype: torch.dtype,
            **extra_weight_attrs: Any,
        ) -> None:
            data = torch.empty(sum(output_partition_sizes), input_size_per_partition, dtype=params_dtype)
            layer.register_parameter(
                "weight", _Parameter(data, weight_loader=extra_weight_attrs["weight_loader"], input_dim=1)
            )

        def process_weights_after_loading(self, layer: Any) -> None:
            layer.processed = True

        def apply(self, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
            return functional.linear(x, layer.weight, bias)

    class LinearBase(nn.Module):
        """columns, sizes: of the whole weight. divides: the axis that is divided among `tp_size` ranks."""

        def __init__(
            self,
            columns: int,
            sizes: list[int],
            quant_config: Any,
            prefix: str,
            *,
            divides: int = 0,
            bias: bool = False,
            tp: tuple[int, int] = (0, 1),
        ) -> None:
            super().__init__()
            self.quant_config, (self.rank, size) = quant_config, tp
            self.divides = divides
            self.parts = [rows // size for rows in sizes] if divides == 0 else sizes
            part = columns // size if divides else columns
            self.output_partition_sizes, self.output_size = self.parts, sum(self.parts)
            self.gather_output = self.skip_bias_add = False
            self.return_bias = True
            self.quant_method = quant_config.get_quant_method(self, prefix)
            assert type(self.quant_method).__name__ in v2, "an old loader of vLLM would run"
            self.quant_method.create_weights(
                self, part, self.parts, columns, sum(sizes), torch.bfloat16, weight_loader=self.weight_loader
            )
            self.bias = nn.Parameter(torch.randn(sum(self.parts)).bfloat16(), False) if bias else None
            self.fresh = {
                name: (each.shape, each.dtype, each.__dict__)
                for name, each in self._parameters.items()
                if name != "bias"
            }

        def weight_loader(self, param: Any, loaded: Tensor, shard: int = 0) -> None:
            begin, rows = sum(self.parts[:shard]), self.parts[shard]
            into = param.data.narrow(0, begin, rows)
            if self.divides == 0:
                loaded = loaded.narrow(0, self.rank * rows, rows)
            elif param.input_dim is not None:
                loaded = loaded.narrow(1, self.rank * into.shape[1], into.shape[1])
            assert into.shape == loaded.shape
            into.copy_(loaded)

        def load(self, *weights: Tensor, name: str = "weight") -> Any:
            for shard, weight in enumerate(weights):
                param = getattr(self, name)
                param.weight_loader(param, weight, shard)
            return self

        def process(self) -> Any:
            self.quant_method.process_weights_after_loading(self)
            return self

        def reload(self, *weights: Tensor) -> Any:
            """As vLLM does: the layer gets fresh parameters, and what they became is copied to the old ones' memory."""
            kernel = dict(self._parameters)
            for name, (shape, dtype, attributes) in self.fresh.items():
                param: Any = _Parameter(torch.empty(shape, dtype=dtype), weight_loader=None)
                param.__dict__.update(attributes)
                self._parameters[name] = param
            self.load(*weights).process()
            for name, old in kernel.items():
                if old is not None:
                    old.data.copy_(self._parameters[name])
                self._parameters[name] = old
            return self

        def forward(self, x: Tensor) -> tuple[Tensor, None]:
            return self.quant_method.apply(self, x, self.bias), None

    def register_weight_loader_v2_supported_method(cls: Any) -> Any:
        v2.append(cls.__name__)
        return cls

    return {
        "LinearMethodBase": LinearMethodBase,
        "UnquantizedLinearMethod": UnquantizedLinearMethod,
        "LinearBase": LinearBase,
        "register_weight_loader_v2_supported_method": register_weight_loader_v2_supported_method,
    }


def _loaders() -> dict[str, Any]:
    registered: dict[str, Any] = {}

    class DefaultModelLoader:
        def __init__(self, load_config: LoadConfig) -> None:
            assert load_config.load_format == "auto", "vLLM's loader knows its own formats"

        def get_all_weights(self, model_config: ModelConfig, model: nn.Module) -> Any:
            yield from model_config.weights

    def register_model_loader(load_format: str) -> Any:
        return lambda cls: registered.setdefault(load_format, cls)

    return {
        "DefaultModelLoader": DefaultModelLoader,
        "register_model_loader": register_model_loader,
        "registered": registered,
    }
