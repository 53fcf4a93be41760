"""The linear method of vLLM's layers: vLLM loads dense weights, Louver compresses what it has loaded."""

# pyright: reportUnknownMemberType=false
# pyright: reportUntypedBaseClass=false, reportUntypedClassDecorator=false

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from louver.torch.linear import SparseWeight
from louver.torch.operators import multiply
from louver.torch.vllm.choose import TYPES, sparse_weight
from louver.torch.vllm.gated import Gated, by_turns, found

if TYPE_CHECKING:
    from louver.torch.vllm.config import LouverConfig

# Their types are not known without vLLM, which checks of Louver do not need.
_linear: Any = import_module("vllm.model_executor.layers.linear")
_parameter: Any = import_module("vllm.model_executor.parameter")


@dataclass(frozen=True, slots=True)
class Held:
    """What a layer multiplies by; None: by its dense weight, as vLLM does. gated: of a weight by turns, in one product with
    its activation.

    It hides the weight from the list of the layer's parameters. vLLM reloads those by writes that PyTorch does not
    count, after it has processed the new ones; the forms that Louver derives from a weight would stay the old ones.
    """

    weight: SparseWeight | None
    gated: Gated | None = None


@_linear.register_weight_loader_v2_supported_method
class LouverLinearMethod(_linear.LinearMethodBase):
    """Serves a linear layer with a sparse weight where `config` decides so, else as vLLM does.

    vLLM's method is a part, not the base: vLLM reads the dense weight of layers whose method is of that class.
    """

    def __init__(self, config: LouverConfig, prefix: str, vllm_config: Any) -> None:
        super().__init__()
        self.config, self.prefix, self.vllm_config = config, prefix, vllm_config
        self.dense = _linear.UnquantizedLinearMethod()

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
        """Create vLLM's dense weight, in the type that the checkpoint has, so that vLLM's loaders fill it.

        Raises ValueError where the checkpoint says that the weight is sparse, and this division among GPUs cuts groups of
        its pattern.
        """
        stored = self.config.stored_of(self.prefix)
        for each in stored:
            each.check_division(self.prefix, input_size, input_size_per_partition, output_partition_sizes)
        scaled = any(each.scaled for each in stored)
        kind = TYPES["e4m3"] if scaled else params_dtype
        sizes = input_size_per_partition, output_partition_sizes, input_size, output_size, kind
        loader = extra_weight_attrs["weight_loader"]
        self.dense.create_weights(layer, *sizes, **extra_weight_attrs)
        layer.input_size_per_partition = input_size_per_partition
        if scaled:
            rows = torch.empty(sum(output_partition_sizes), 1, dtype=torch.float32)
            scale = _parameter.ChannelQuantScaleParameter(data=rows, output_dim=0, weight_loader=loader)
            layer.register_parameter("weight_scale", scale)
        self.dtype = params_dtype

    def process_weights_after_loading(self, layer: Any) -> None:
        """Compress the weight that was loaded, or leave it to vLLM. After a reload, write the new weight to the memory of
        the old one, which captured graphs read.

        Raises ValueError if a reloaded weight does not keep the pattern of the old one.
        """
        w, codes, scale = self._loaded(layer)
        held: Held | None = getattr(layer, "louver", None)
        first = held is None
        if held is None:
            weight = self.config.choose(self.prefix, w, getattr(layer, "bias", None), codes, scale)
            held = layer.louver = Held(weight)
            if weight is not None and w.is_cuda:
                weight.pack_()
        elif held.weight is not None:
            self._reload(held, held.weight, w, codes, scale)
        if held.weight is None:
            layer.weight.data = w
            self.dense.process_weights_after_loading(layer)
        else:
            # vLLM and adapters ask a weight for its type and device.
            layer.weight = nn.Parameter(w.new_empty(0), False)
            if codes is not None:
                del layer.weight_scale
        if first:
            self.config.done(self.prefix, layer, self.vllm_config)

    def apply(self, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x @ weight.T + bias."""
        weight, gated = layer.louver.weight, layer.louver.gated
        if weight is None:
            return self.dense.apply(layer, x, bias)
        return multiply(
            x,
            weight.values,
            weight.places,
            bias,
            weight.pattern,
            scale=weight.scale,
            activation=None if gated is None else gated.activation,
            gated=gated is not None,
        )

    def join(self, layer: Any, block: nn.Module) -> bool:
        """Make gate, up projection and activation one product, if the layer is a sparse pair of them in `block`. Returns
        whether it did. A trial of the block is made in every process, also where the layer has stayed dense.
        """
        sizes = getattr(layer, "output_partition_sizes", ())
        whole = not (getattr(layer, "gather_output", False) or layer.skip_bias_add)
        if len(sizes) != 2 or sizes[0] != sizes[1] or not whole:
            return False
        gated, weight = found(block, layer), layer.louver.weight
        turned = None if gated is None or weight is None else by_turns(weight)
        if gated is None or turned is None:
            return False
        if turned.values.is_cuda:
            turned.pack_()
        layer.louver = Held(turned, gated)
        setattr(block, gated.child, nn.Identity())
        return True

    def _loaded(self, layer: Any) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The dense weight as it is multiplied, and codes and scales [rows] of one that is stored in 8 bits."""
        codes: Tensor = layer.weight.data
        if "weight_scale" not in layer._parameters:
            return codes, None, None
        scale: Tensor = layer.weight_scale.data[:, 0]
        return (codes.float() * scale[:, None]).to(self.dtype), codes, scale

    def _reload(self, held: Held, weight: SparseWeight, w: Tensor, codes: Tensor | None, scale: Tensor | None) -> None:
        to = weight.dtype if weight.scale is not None else None
        try:
            made = sparse_weight(w, weight.pattern, self.prefix, codes, scale, to)
        except ValueError as error:
            raise ValueError(
                f"a reloaded weight keeps the pattern of the one before, got another one for {self.prefix}: {error}. Prune the "
                "new weights, or start vLLM again"
            ) from error
        weight.rewrite_(made if held.gated is None else cast("SparseWeight", by_turns(made)))
