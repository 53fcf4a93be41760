"""The interfaces of vLLM that Louver stands on: one table, compared with the installed vLLM before anything is registered."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

VERSIONS: Final = "0.28.0 to 0.33.0"
"""The versions of vLLM whose interfaces pass. `make test-vllm` says of one version whether it serves."""


class InterfaceError(RuntimeError):
    """An interface of the installed vLLM is not the one that Louver was written for."""


@dataclass(frozen=True, slots=True)
class Interface:
    """A function, class or field of vLLM.

    module, name: where it is. parameters: those that Louver passes, or takes in a method that it overrides, in order;
    None for what is not called.
    overridden: whether vLLM calls Louver: then there are no parameters but these. Else further ones have defaults.
    """

    module: str
    name: str
    parameters: tuple[str, ...] | None = None
    overridden: bool = False

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"

    def difference(self) -> str | None:
        """How the installed vLLM differs."""
        try:
            owner: Any = import_module(self.module)
            *parents, last = self.name.split(".")
            for parent in parents:
                owner = getattr(owner, parent)
        except (ImportError, AttributeError) as error:
            return f"it cannot be imported: {error}"
        if not hasattr(owner, last) and last not in getattr(owner, "__annotations__", {}):
            return "it does not exist"
        return None if self.parameters is None else self._of_signature(getattr(owner, last))

    def _of_signature(self, function: Any) -> str | None:
        found = inspect.signature(function).parameters
        names = tuple(name for name, each in found.items() if each.kind is not inspect.Parameter.VAR_KEYWORD)
        own = self.parameters or ()
        later = [found[name] for name in names[len(own) :]]
        needed = [each for each in later if self.overridden or each.default is inspect.Parameter.empty]
        if names[: len(own)] == own and not needed:
            return None
        return f"its parameters are {', '.join(names) or 'none'}; Louver knows {', '.join(own) or 'none'}"


_LINEAR: Final = "vllm.model_executor.layers.linear"
_BASE: Final = "vllm.model_executor.layers.quantization.base_config"
_LOADER: Final = "vllm.model_executor.model_loader"
_CREATE: Final = (
    "self",
    "layer",
    "input_size_per_partition",
    "output_partition_sizes",
    "input_size",
    "output_size",
    "params_dtype",
)

INTERFACES: Final = (
    # What Louver calls and reads.
    Interface("vllm.model_executor.layers.quantization", "register_quantization_config", ("quantization",)),
    Interface(_LINEAR, "register_weight_loader_v2_supported_method", ("cls",)),
    Interface(_LINEAR, "LinearBase"),
    Interface(_LINEAR, "UnquantizedLinearMethod.create_weights", _CREATE),
    Interface(_LINEAR, "UnquantizedLinearMethod.process_weights_after_loading", ("self", "layer")),
    Interface(_LINEAR, "UnquantizedLinearMethod.apply", ("self", "layer", "x", "bias")),
    Interface("vllm.model_executor.parameter", "ChannelQuantScaleParameter", ("output_dim",)),
    Interface(_LOADER, "register_model_loader", ("load_format",)),
    Interface(f"{_LOADER}.default_loader", "DefaultModelLoader", ("load_config",)),
    Interface("vllm.config", "get_current_vllm_config", ()),
    Interface("vllm.config", "VllmConfig.additional_config"),
    Interface("vllm.config", "VllmConfig.lora_config"),
    Interface("vllm.config", "VllmConfig.compute_hash", ("self",)),
    Interface("vllm.config", "CompilationConfig.cudagraph_capture_sizes"),
    Interface("vllm.config", "LoadConfig.load_format"),
    Interface("vllm.envs", "VLLM_BATCH_INVARIANT"),
    # What Louver overrides.
    Interface(_BASE, "QuantizationConfig.get_name", ("self",), overridden=True),
    Interface(_BASE, "QuantizationConfig.get_supported_act_dtypes", ("self",), overridden=True),
    Interface(_BASE, "QuantizationConfig.get_min_capability", (), overridden=True),
    Interface(_BASE, "QuantizationConfig.get_config_filenames", (), overridden=True),
    Interface(_BASE, "QuantizationConfig.from_config", ("config",), overridden=True),
    Interface(
        _BASE,
        "QuantizationConfig.override_quantization_method",
        ("hf_quant_cfg", "user_quant", "hf_config"),
        overridden=True,
    ),
    Interface(_BASE, "QuantizationConfig.get_quant_method", ("self", "layer", "prefix"), overridden=True),
    Interface(_BASE, "QuantizationConfig.apply_vllm_mapper", ("self", "hf_to_vllm_mapper"), overridden=True),
    Interface(
        _BASE,
        "QuantizationConfig.maybe_update_config",
        ("self", "model_name", "hf_config", "revision"),
        overridden=True,
    ),
    Interface(_LINEAR, "LinearMethodBase.create_weights", _CREATE, overridden=True),
    Interface(_LINEAR, "LinearMethodBase.apply", ("self", "layer", "x", "bias"), overridden=True),
    Interface(_BASE, "QuantizeMethodBase.process_weights_after_loading", ("self", "layer"), overridden=True),
    Interface(
        f"{_LOADER}.default_loader",
        "DefaultModelLoader.get_all_weights",
        ("self", "model_config", "model"),
        overridden=True,
    ),
)


def check() -> None:
    """Raises InterfaceError, which names the first interface that differs and the versions that pass."""
    try:
        version = installed()
    except ModuleNotFoundError:
        raise InterfaceError(f"Louver serves with vLLM {VERSIONS}, which is not installed: pip install vllm") from None
    for interface in INTERFACES:
        difference = interface.difference()
        if difference is not None:
            raise InterfaceError(
                f"Louver serves with vLLM {VERSIONS}, got {version}, where {interface} differs: {difference}. Install a "
                "version that passes, or a newer Louver"
            )


def installed() -> str:
    """The version of the installed vLLM."""
    return str(getattr(import_module("vllm"), "__version__", "an unknown version"))
