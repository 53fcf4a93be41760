"""A model of Transformers in a checkpoint's folder, whose blocks come from the files one at a time.

Transformers builds the model, and its own rules load each tensor, so that renamed, stacked and fused tensors find their
parameters. The way back is checked for each block: names and values must be those of the checkpoint.
"""

# PyTorch's and Transformers' stubs leave many types unknown.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

from louver.formats.checkpoint import Checkpoint, listed, open_checkpoint
from louver.formats.container import DTYPES
from louver.formats.schema import DenseForm
from louver.formats.torch_tensors import of_host
from louver.models.analyze import analyze
from louver.models.evidence import running
from louver.models.evidence.config import NAME, read_config
from louver.models.evidence.found import is_float, is_fp8
from louver.models.roles import ModelFacts
from louver.models.scaled import Factors, numbers
from louver.models.source import Source
from louver.torch.accuracy.blocks import Chain, find_chains

DEQUANTIZED: Final = torch.bfloat16
"""The type of dequantized weights, if the configuration names none."""


class _Later:
    """Stands for a tensor that is loaded later. Transformers takes it for one of the same shape and type, without data."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self._meta = torch.empty(shape, dtype=dtype, device="meta")
        self.shape, self.dtype, self.device = self._meta.shape, dtype, self._meta.device

    def __getitem__(self, item: object) -> _Later:
        return self

    def to(self, device: object = None, dtype: torch.dtype | None = None, **_: object) -> Tensor:
        return self._meta if dtype is None else self._meta.to(dtype)

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point


class Folder:
    """A causal model in a folder of Transformers. Parameters of its blocks are on `meta` but for blocks that are loaded.

    model: in evaluation mode, all but its blocks on `device`. chain: its blocks. behind: by parameter of the model, the
    checkpoint's tensors of which it is made. facts: what each tensor is.
    """

    def __init__(self, checkpoint: Checkpoint, facts: ModelFacts, device: torch.device, blocks: str | None = None) -> None:
        """blocks: name of the list of blocks. Raises ValueError for a folder that Transformers cannot load whole, with
        the tensors that lack.
        """
        self.facts, self.device = facts, device
        self._source = Source.of(checkpoint)
        config, _ = read_config(checkpoint.path.parent)
        if config.path is None or not isinstance(config.fields.get("model_type"), str):
            raise ValueError(
                f"a calibrated method runs the model that {NAME} describes, got {checkpoint.path.parent} without a "
                f"{NAME} that names a model_type: prune by magnitude, without --method"
            )
        names = [name for name, tensor in checkpoint.tensors.items() if is_float(tensor.form) or is_fp8(tensor.form)]
        shapes = {name: tuple(checkpoint.tensors[name].form.shape) for name in names}
        bare, self.behind = running.loaded(config.path, config.fields, shapes)
        self.chain = self._longest(find_chains(bare, blocks), shapes)
        self._names = [self._of_block(name) for name in self.chain.names]
        described, kind = running.described(config.path, config.fields)
        self._dense = getattr(described, "dtype", None) or DEQUANTIZED
        self.model = self._built(described, kind, shapes)
        self._blocks = [self.model.get_submodule(name) for name in self.chain.names]
        self._empty = [{**dict(block.named_parameters()), **dict(block.named_buffers())} for block in self._blocks]
        self._conversions: dict[int, Any] = {}

    def load(self, index: int) -> nn.Module:
        """The dense block `index` on the device."""
        self.fill(index, {name: self.read(name) for name in self._names[index]})
        self._conversions[index] = self.model._weight_conversions
        return self._blocks[index]

    def store(self, index: int, block: nn.Module) -> None:
        """Release the block's memory. What was pruned, the caller has written."""
        for name, tensor in self._empty[index].items():
            if tensor.is_meta:
                _put(block, name, tensor)

    def fill(self, index: int, tensors: Mapping[str, Tensor]) -> None:
        """Load a block from tensors by the checkpoint's names. Raises ValueError for one that Transformers does not load."""
        self._load(tensors)
        block, prefix = self._blocks[index], self.chain.names[index]
        missing = [f"{prefix}.{name}" for name, tensor in block.named_parameters() if tensor.is_meta]
        if missing:
            raise ValueError(f"each parameter of a block comes from the checkpoint, got none for {listed(missing)}")

    def over(self, index: int, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The parameters of a loaded block that these tensors of the checkpoint change, by name. The block stays as it is."""
        prefix, block = self.chain.names[index], self._blocks[index]
        before = dict(block.named_parameters())
        changed = {name: self.behind[f"{prefix}.{name}"] for name in before}
        changed = {name: made_of for name, made_of in changed.items() if not made_of.isdisjoint(tensors)}
        wanted = frozenset().union(*changed.values())
        try:
            self.fill(index, {name: tensors[name] if name in tensors else self.read(name) for name in wanted})
            after = dict(block.named_parameters())
            return {name: after[name].detach() for name in changed}
        finally:
            for name, parameter in before.items():
                _put(block, name, parameter)

    def back(self, index: int, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The checkpoint's tensors of a loaded block with other weights by the parameter's name in the block: those that
        change. Raises ValueError if the checkpoint stores them in another way than Transformers would.
        """
        from transformers.core_model_loading import revert_weight_conversion

        prefix, block = self.chain.names[index], self._blocks[index]
        state = {f"{prefix}.{name}": tensor.detach() for name, tensor in block.named_parameters()}
        changed = {f"{prefix}.{name}": weight.to(state[f"{prefix}.{name}"].dtype) for name, weight in weights.items()}
        wanted = frozenset().union(*(self.behind[name] for name in changed))
        self.model._weight_conversions = self._conversions[index]
        with torch.no_grad():
            made = revert_weight_conversion(self.model, {**state, **changed})
        for name in sorted(wanted):
            shape = self._source.tensors[name].form.shape
            if name not in made or tuple(made[name].shape) != shape:
                got = list(made[name].shape) if name in made else "none of this name"
                raise ValueError(f"{name} is stored with shape {list(shape)}, Transformers would store {got}: exclude it")
        return {name: made[name] for name in wanted}

    def read(self, name: str, stored: Callable[[str], Any] | None = None) -> Tensor:
        """A tensor's numbers on the CPU, dequantized in f32. stored: reads arrays in the place of the checkpoint's."""
        array = (stored or self._source.array)(name)
        scale = self.facts.tensors[name].scale
        if scale is not None:
            factors = Factors.of((stored or self._source.array)(scale.name), scale, array.shape)
            rows = range(math.prod(array.shape[:-1]))
            array = numbers(array, factors.at(rows, range(array.shape[-1])).reshape(array.shape))
        return of_host(array)

    def stored(self, name: str) -> Any:
        """A tensor's elements as stored."""
        return self._source.array(name)

    def _longest(self, chains: Iterable[Chain], shapes: Mapping[str, tuple[int, ...]]) -> Chain:
        """The chain with the most elements to prune."""

        def size(chain: Chain) -> int:
            names = {name for block in chain.names for name in self._of_block(block)}
            return sum(math.prod(shapes[name]) for name in names if self.facts.tensors[name].prune)

        return max(chains, key=size)

    def _of_block(self, block: str) -> list[str]:
        names = {name for parameter, made_of in self.behind.items() if parameter.startswith(f"{block}.") for name in made_of}
        return sorted(names)

    def _built(self, config: Any, kind: Any, shapes: Mapping[str, tuple[int, ...]]) -> Any:
        later = frozenset(name for names in self._names for name in names)
        tensors = {name: self._later(name) if name in later else self.read(name) for name in shapes}
        with running.quiet(), torch.random.fork_rng(devices=[]):
            model, info = kind.from_pretrained(None, config=config, state_dict=tensors, output_loading_info=True)
        lacking = [*info["missing_keys"], *(each[0] for each in info["mismatched_keys"])]
        if lacking:
            raise ValueError(f"the checkpoint holds every parameter of its model, got none that fits {listed(sorted(lacking))}")
        model.eval()
        model._apply(lambda tensor: tensor if tensor.is_meta else tensor.to(self.device))
        return model

    def _later(self, name: str) -> Any:
        form = self._source.tensors[name].form
        if not isinstance(form, DenseForm):
            raise ValueError(f"{name} is compressed ({form}): run louver decompress first")
        return _Later(form.shape, self._dense if is_fp8(form) else getattr(torch, DTYPES[form.dtype].name))

    def _load(self, tensors: Mapping[str, Tensor]) -> None:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import convert_and_load_state_dict_in_model
        from transformers.modeling_utils import LoadStateDictConfig

        config = LoadStateDictConfig(
            weight_mapping=get_model_conversion_mapping(self.model), dtype=self._dense, device_map={"": self.device}
        )
        with running.quiet(), torch.no_grad():
            info, _ = convert_and_load_state_dict_in_model(self.model, dict(tensors), config)
        wrong = [*info.unexpected_keys, *(each[0] for each in info.mismatched_keys), *info.conversion_errors]
        if wrong:
            raise ValueError(f"Transformers does not load {listed(sorted(map(str, wrong)))}: exclude its block's tensors")


def _put(module: nn.Module, name: str, tensor: Tensor) -> None:
    """Put a parameter or a buffer in its place."""
    path, _, attribute = name.rpartition(".")
    setattr(module.get_submodule(path), attribute, tensor)
