"""PEFT: LoRA adapters beside sparse weights.

PEFT looks up its layers by the class of the layer that they adapt, in its own list and in that of the configuration.
`lora` adds `SparseLinear` to the latter. The adapter trains, is saved and loaded as every other one; the sparse weight
keeps its values, so an adapter is never merged into it.
"""

# pyright: reportUntypedBaseClass=false, reportUnknownMemberType=false

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any

from louver.torch.linear import SparseLinear

# Their types are not known without PEFT, which checks of Louver do not need.
_Linear: Any = import_module("peft.tuners.lora").Linear


class SparseLora(_Linear):
    """An adapter beside a `SparseLinear`: base(x) + scaling · B(A(dropout(x)))."""

    def _get_in_out_features(self, module: Any) -> tuple[int, int]:
        # PEFT's own finds these too, with a warning for each layer.
        return module.in_features, module.out_features

    def merge(self, *arguments: Any, **options: Any) -> None:
        """Raises RuntimeError: the sum of a sparse weight and an adapter keeps no pattern. Merges into a dense layer."""
        if isinstance(self.get_base_layer(), SparseLinear):
            raise RuntimeError(
                f"an adapter is not merged into a sparse weight, because the sum keeps no pattern, got one beside "
                f"{self.get_base_layer()}: keep the adapter, or call louver.torch.decompress_(model) before merging"
            )
        super().merge(*arguments, **options)


def lora(config: Any) -> Any:
    """Make a `peft.LoraConfig` adapt layers of `SparseLinear` too. Changes and returns it.

    `get_peft_model(model, lora(LoraConfig(target_modules=[…])))`, and to load a saved adapter
    `PeftModel.from_pretrained(model, path, config=lora(LoraConfig.from_pretrained(path)))`.

    Raises ValueError for variants and initial values of LoRA that read the weight, and for "all-linear", which finds
    layers of `torch.nn.Linear` alone; ImportError for a version of PEFT that takes no layers of others.
    """
    register: Any = getattr(config, "_register_custom_module", None)
    if register is None:
        raise ImportError(
            f"louver.torch.peft needs LoraConfig._register_custom_module, which PEFT 0.17 to 0.21 have, got {type(config)} "
            "without it: install such a version"
        )
    if config.target_modules == "all-linear":
        raise ValueError('target_modules are names of layers, got "all-linear", which finds no sparse ones: name them')
    start = config.init_lora_weights
    if not isinstance(start, bool) and start != "gaussian":
        raise ValueError(
            f'adapters beside a sparse weight start with init_lora_weights True, False or "gaussian", got {start!r}'
        )
    variants = [each.name for each in fields(config) if each.name == "use_dora" or each.metadata.get("is_lora_variant")]
    asked = [name for name in variants if getattr(config, name)]
    if asked:
        raise ValueError(f"adapters beside a sparse weight are plain LoRA, got {', '.join(asked)}: leave it out")
    register({SparseLinear: SparseLora})
    return config
