"""The quantization `louver` of vLLM: which layers it serves, and what a user and a checkpoint say about them."""

# pyright: reportUntypedBaseClass=false, reportUntypedClassDecorator=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import hashlib
import inspect
import logging
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_module_registration_hook

from louver.formats.schema import WEIGHT
from louver.torch.linear import SparseWeight
from louver.torch.ready import prepare_weight
from louver.torch.report import Report, Row
from louver.torch.vllm.choose import ROUNDED, Chooser, Options
from louver.torch.vllm.stream import Stored, of_files, of_layers

# Their types are not known without vLLM, which checks of Louver do not need.
_quantization: Any = import_module("vllm.model_executor.layers.quantization")
_Base: Any = import_module("vllm.model_executor.layers.quantization.base_config").QuantizationConfig

NAME: Final = "louver"
"""The name of the quantization, and of the load format."""

TOGETHER: Final = "one product with its activation"
"""Said of gate and up projections that are."""

_BITMASKS: Final = ("sparse-24-bitmask", "sparse-bitmask")


@_quantization.register_quantization_config(NAME)
class LouverConfig(_Base):
    """What is served sparse. options: of the user. layers: those that the checkpoint stores sparse, as `config.json` says
    it; None if it says nothing.

    stored: the weights that are stored sparse, by the name in the checkpoint. report: what was done with each layer.
    """

    def __init__(
        self,
        options: Options | None = None,
        layers: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        super().__init__()
        self._chooser = Chooser(options or Options())
        self.stored: dict[str, Stored] = {} if layers is None else of_layers(layers)
        self._by_layer = {name.removesuffix(WEIGHT): each for name, each in self.stored.items()}
        self._has_bitmasks = False
        self._waiting: set[str] = set()
        self._others: dict[str, Any] = {}
        self._blocks: list[tuple[Any, Any]] = []
        self._layers: list[Any] = []
        self._hook: Any = None

    def get_name(self) -> str:
        return NAME

    def get_supported_act_dtypes(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16, torch.float32]

    @classmethod
    def get_min_capability(cls) -> int:
        # The first GPUs with sparse tensor cores.
        return 80

    @staticmethod
    def get_config_filenames() -> list[str]:
        return []

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LouverConfig:
        """The quantization that `quantization_config` of a model, or of `--hf-overrides`, describes.

        Raises ValueError for another version, for unknown options, and for their values.
        """
        if config.get("quant_method") != NAME:
            made = cls()
            made._has_bitmasks = (config.get("sparsity_config") or {}).get("format") in _BITMASKS
            return made
        # Transformers has the same configuration, which checks itself.
        known: Any = import_module("louver.torch.transformers").LouverConfig
        own = {name: value for name, value in config.items() if name != "to"}
        names = [name for name in inspect.signature(known).parameters if name != "_"]
        unknown = next((name for name in own if name not in names), None)
        if unknown is not None:
            raise ValueError(f"options of quantization {NAME!r} are {', '.join([*names, 'to'])}, got {unknown!r}")
        read = known(**own)
        tokens = (read.tokens,) if isinstance(read.tokens, int) else tuple(read.tokens)
        return cls(Options(tokens, read.patterns, read.skip, read.force, config.get("to")), read.layers)

    @classmethod
    def override_quantization_method(
        cls, hf_quant_cfg: dict[str, Any], user_quant: str | None, hf_config: Any = None
    ) -> str | None:
        """Take Louver's models, and those that compressed-tensors says are sparse and not quantized."""
        config = hf_quant_cfg or {}
        sparsity = config.get("sparsity_config") or {}
        kept = sparsity.get("format") in ("dense", *_BITMASKS) and not config.get("config_groups")
        return NAME if config.get("quant_method") == NAME or kept else None

    def apply_vllm_mapper(self, hf_to_vllm_mapper: Any) -> None:
        """Take vLLM's names of layers."""
        self._by_layer = hf_to_vllm_mapper.apply_dict(self._by_layer)

    def maybe_update_config(self, model_name: str, hf_config: Any = None, revision: str | None = None) -> None:
        """Look at the files, if `config.json` does not say which layers are stored sparse. Raises FormatError for damage, and
        ValueError for bitmasks that are not in a local folder.
        """
        if self.stored:
            return
        self.stored = of_files(model_name)
        self._by_layer = {name.removesuffix(WEIGHT): each for name, each in self.stored.items()}
        if self._has_bitmasks and not self.stored:
            raise ValueError(
                f"weights with bitmasks are served from a local folder with their safetensors files, got {model_name!r}: download the "
                "model, and name its folder"
            )

    def stored_of(self, prefix: str) -> list[Stored]:
        """The stored weights that make the weight of a layer. Raises ValueError if some of them are of 8 bits and some not."""
        parent, _, last = prefix.rpartition(".")
        members = self.packed_modules_mapping.get(last, [last])
        names = [f"{parent}.{member}" if parent else member for member in members]
        found = {name: self._by_layer[name] for name in names if name in self._by_layer}
        scaled = [name for name, each in found.items() if each.scaled]
        if scaled and len(scaled) < len(names):
            other = next(name for name in names if name not in scaled)
            raise ValueError(
                f"vLLM makes one weight {prefix} of {', '.join(members)}, which all have 8 bits or none, got {scaled[0]} with and "
                f"{other} without: quantize all of them, or leave all"
            )
        return list(found.values())

    def get_quant_method(self, layer: Any, prefix: str) -> Any:
        """Louver's method for linear layers. Experts, embeddings and heads stay vLLM's.

        Raises ValueError for a checkpoint that vLLM's own loaders cannot read.
        """
        linear: Any = import_module("vllm.model_executor.layers.linear")
        vllm_config: Any = import_module("vllm.config").get_current_vllm_config()
        found = vllm_config.load_config.load_format
        if self.stored and found != NAME:
            raise ValueError(
                f"sparse files, such as {next(iter(self.stored))!r}, are read by --load-format {NAME}, got {found!r}"
            )
        if not isinstance(layer, linear.LinearBase):
            self._others[prefix] = layer
            return None
        self._waiting.add(prefix)
        if self._hook is None:
            # A layer does not know the block that it is a part of.
            note = weakref.WeakMethod(self._note_block)
            self._hook = register_module_module_registration_hook(lambda *given: (own := note()) and own(*given))
            weakref.finalize(self, self._hook.remove)
        return import_module("louver.torch.vllm.method").LouverLinearMethod(self, prefix, vllm_config)

    def _note_block(self, block: Any, name: str, layer: Any) -> None:
        if getattr(getattr(layer, "quant_method", None), "config", None) is self:
            self._blocks.append((block, layer))

    def choose(
        self,
        name: str,
        w: Tensor,
        bias: Tensor | None,
        codes: Tensor | None,
        scale: Tensor | None,
    ) -> SparseWeight | None:
        """The sparse weight that a layer is served with; None if it stays vLLM's. `done` follows."""
        invariant = import_module("vllm.envs").VLLM_BATCH_INVARIANT
        refused = "VLLM_BATCH_INVARIANT asks for vLLM's own products" if invariant else None
        patterns = [each.pattern for each in self.stored_of(name) if each.pattern is not None]
        return self._chooser.choose(
            name, w, bias, codes=codes, scale=scale, patterns=list(dict.fromkeys(patterns)), refused=refused
        )

    def done(self, name: str, layer: Any, vllm_config: Any) -> None:
        """Note that a layer has what it multiplies by. After the last one: join blocks, prepare captures, and report."""
        self._waiting.discard(name)
        self._layers.append(layer)
        if self._waiting:
            return
        self._hook.remove()
        self._hook = None
        # Adapters of vLLM add to the outputs of gate and up, so these stay apart.
        for block, pair in [] if vllm_config.lora_config else self._blocks:
            if pair.quant_method.join(pair, block):
                row = self._chooser.rows[pair.quant_method.prefix]
                self._chooser.rows[row.name] = replace(row, reason=f"{row.reason}; {TOGETHER}")
        for each in self._layers:
            prepare_layer(each, vllm_config.compilation_config.cudagraph_capture_sizes)
        self._report_others()
        for held in (self._blocks, self._layers, self._others):
            held.clear()
        logging.getLogger("vllm.louver").info("served by Louver where it says sparse:\n%s", self.report)
        describe(vllm_config, self.report)

    @property
    def report(self) -> Report:
        """What was done with each layer, and why."""
        return Report(tuple(self._chooser.rows.values()))

    def _report_others(self) -> None:
        for name, layer in self._others.items():
            matrices = [each for each in layer.parameters() if each.dim() > 1]
            if matrices:
                size = sum(each.nbytes for each in matrices)
                reason = f"a {type(layer).__name__} stays vLLM's: Louver serves linear layers"
                self._chooser.rows[name] = Row(name, "dense", reason, tuple(matrices[0].shape), "", (size, size))


def prepare_layer(layer: Any, sizes: Sequence[int] | None) -> None:
    """Compile what captures of these sizes need, and derive the forms that they read."""
    weight, gated = layer.louver.weight, layer.louver.gated
    if weight is None or not weight.values.is_cuda or not sizes:
        return
    kind = {} if gated is None else {"activation": gated.activation, "gated": True}
    prepare_weight(weight, tuple(sizes), bias=getattr(layer, "bias", None) is not None, **kind)


def describe(vllm_config: Any, report: Report) -> None:
    """Make the choices a part of the hash of vLLM's compiled graphs, which it keeps on disk and runs without a look at the
    layers. Raises RuntimeError if the hash does not change.
    """
    others, before = vllm_config.additional_config, vllm_config.compute_hash()
    # A draft model has a report of its own.
    rows = [others.get(NAME, "")]
    for row in report:
        said = [text for text in (ROUNDED, TOGETHER) if text in row.reason]
        rows.append(f"{row.name} {row.done} {row.pattern} {said}")
    vllm_config.additional_config = {**others, NAME: hashlib.sha256("\n".join(rows).encode()).hexdigest()}
    if vllm_config.compute_hash() == before:
        raise RuntimeError(
            "vLLM's hash of compiled graphs does not depend on additional_config, so that it could run a graph of other "
            "layers: serve with --enforce-eager, or with another version of vLLM"
        )
