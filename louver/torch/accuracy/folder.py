"""A model of Transformers in a checkpoint's folder, whose blocks come from the files one at a time.

Transformers builds the model, and its own rules load each tensor, so that renamed, stacked and fused tensors find their
parameters. The way back is by its rules, too; it must lead to the checkpoint's names and shapes.
"""

# PyTorch and Transformers have no complete types.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn

from louver.formats.checkpoint import Checkpoint, listed
from louver.formats.container import DTYPES
from louver.formats.schema import BitmaskForm, DenseForm, SparseForm
from louver.formats.torch_tensors import of_host
from louver.models.evidence import running
from louver.models.evidence.config import NAME, read_config
from louver.models.evidence.found import is_float, is_fp8
from louver.models.pruning import Given
from louver.models.roles import ModelFacts
from louver.models.scaled import Factors, numbers
from louver.models.steps import Source
from louver.torch.accuracy.blocks import Chain, find_chains
from louver.torch.accuracy.rounded import rounded

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
    """A causal model in a folder of Transformers, for `calibrate`: it gives the blocks of its chain.

    model: in evaluation mode, on `device`; parameters of its blocks are on `meta` unless a block is loaded.
    chain: its blocks. behind: by the name of a parameter, the checkpoint's tensors of which it is made.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        facts: ModelFacts,
        device: torch.device,
        blocks: str | None = None,
        *,
        outside: bool = True,
    ) -> None:
        """blocks: name of the list of blocks. outside: load the parameters outside of the blocks.

        Raises ValueError for a model that Transformers cannot load whole.
        """
        self.facts, self.device = facts, device
        self._source = Source.of(checkpoint.files)
        config, _ = read_config(checkpoint.path.parent)
        if config.path is None or not isinstance(config.fields.get("model_type"), str):
            raise ValueError(
                f"a calibrated method runs the model that {NAME} describes, got {checkpoint.path.parent} without a {NAME} "
                "that names a model_type: leave out --method"
            )
        forms = {name: tensor.form for name, tensor in checkpoint.tensors.items()}
        sparse = [name for name, form in forms.items() if isinstance(form, SparseForm | BitmaskForm)]
        if sparse:
            raise ValueError(
                f"a model runs with dense weights, got {listed(sparse)} compressed: run louver decompress first"
            )
        shapes = {name: tuple(form.shape) for name, form in forms.items() if is_float(form) or is_fp8(form)}
        bare, self.behind = running.loaded(config.path, config.fields, shapes)
        self.chain = self._largest(find_chains(bare, blocks))
        described, kind = running.described(config.path, config.fields)
        self._dense = getattr(described, "dtype", None) or DEQUANTIZED
        self.model = self._built(described, kind, shapes, outside)
        self._empty = {name: dict(_tensors(self.model.get_submodule(name))) for name in self.chain.names}

    def load(self, index: int) -> nn.Module:
        """The dense block `index` on the device. A block that is loaded stays as it is."""
        name = self.chain.names[index]
        block = self.model.get_submodule(name)
        if any(tensor.is_meta for _, tensor in _tensors(block)):
            self._fill(name, {each: self.read(each) for each in self._of_block(name)})
            self._conversions[name] = self.model._weight_conversions
        return block

    def store(self, index: int, block: nn.Module) -> None:
        """Release the memory of a block. Who changed it, has written it."""
        for name, tensor in self._empty[self.chain.names[index]].items():
            if tensor.is_meta:
                _put(block, name, tensor)

    def only(self, index: int) -> nn.Module:
        """The dense block `index`, without the memory of others."""
        for other, name in enumerate(self.chain.names):
            if other != index:
                self.store(other, self.model.get_submodule(name))
        return self.load(index)

    def over(self, name: str, given: Mapping[str, Given]) -> dict[str, Tensor]:
        """The parameters of a loaded block that given tensors change, by name. The block stays as it is."""
        block = self.model.get_submodule(name)
        before = dict(block.named_parameters())
        made_of = {each: self.behind[f"{name}.{each}"] for each in before}
        changed = [each for each in before if not made_of[each].isdisjoint(given)]
        try:
            wanted = frozenset[str]().union(*(made_of[each] for each in changed))
            self._fill(name, {each: self.read(each, given) for each in sorted(wanted)})
            after = dict(block.named_parameters())
            return {each: after[each].detach() for each in changed}
        finally:
            for each, parameter in before.items():
                _put(block, each, parameter)

    def own_parameters(self, name: str) -> dict[str, nn.Parameter]:
        """The parameters of a block by their names in it; for an empty name those outside of the blocks."""
        if name:
            return dict(self.model.get_submodule(name).named_parameters())
        inside = tuple(f"{block}." for block in self.chain.names)
        return {each: p for each, p in self.model.named_parameters() if not each.startswith(inside)}

    def back(
        self, name: str, weights: Mapping[str, Tensor], *, changed: bool = False
    ) -> tuple[dict[str, Any], dict[str, float]]:
        """The checkpoint's tensors of a loaded block with other weights, as it stores them, and the loss by rounding.

        weights: by names of `own_parameters`. changed: leave tensors out that are the checkpoint's. The arrays are on the
        host, by name: tensors and scales. The losses are relative, by parameter. Raises ValueError if Transformers would
        store a tensor in another way.
        """
        from transformers.core_model_loading import revert_weight_conversion

        prefix = f"{name}." if name else ""
        state = {f"{prefix}{each}": parameter.detach() for each, parameter in self.own_parameters(name).items()}
        new = {f"{prefix}{each}": weight.to(state[f"{prefix}{each}"].dtype) for each, weight in weights.items()}
        self.model._weight_conversions = self._conversions[name]
        made = revert_weight_conversion(self.model, {**state, **new})
        arrays: dict[str, Any] = {}
        losses: dict[str, float] = {}
        for full in new:
            found = [self._stored(each, made.get(each), arrays, changed) for each in sorted(self.behind[full])]
            losses[full.removeprefix(prefix)] = max(found, default=0.0)
        return arrays, losses

    @property
    def vocabulary(self) -> int:
        """Tokens that the model knows."""
        return self.model.get_input_embeddings().weight.shape[0]

    @contextmanager
    def whole(self) -> Generator[Any]:
        """The model with all blocks loaded, as they are in the files. Raises MemoryError if it does not fit on the device."""
        try:
            for index in range(len(self.chain.names)):
                self.load(index)
            yield self.model
        except torch.OutOfMemoryError as error:
            raise MemoryError(
                f"the whole model runs on one device, got {self.device} where it does not fit ({error}): give a text "
                "with --calibration FILE, and leave out --distill"
            ) from error
        finally:
            for index, name in enumerate(self.chain.names):
                self.store(index, self.model.get_submodule(name))

    @contextmanager
    def outside(self, given: Mapping[str, Given]) -> Generator[None]:
        """Given tensors in the place of those outside of the blocks, meanwhile."""
        before = self.own_parameters("")
        changed = [name for name in before if not self.behind[name].isdisjoint(given)]
        try:
            if changed:
                wanted = frozenset[str]().union(*(self.behind[name] for name in changed))
                self._load({each: self.read(each, given) for each in sorted(wanted)})
            yield
        finally:
            for name in changed:
                _put(self.model, name, before[name])

    def read(self, name: str, given: Mapping[str, Given] | None = None) -> Tensor:
        """A tensor's numbers on the CPU; dequantized in f32. given: tensors in the place of the checkpoint's."""
        return of_host(_dequantized(self._array(name, given), self._factors(name, given)))

    def _stored(self, name: str, new: Tensor | None, arrays: dict[str, Any], changed: bool) -> float:
        """Put a tensor into `arrays` as the checkpoint stores it, with its scales. Returns the relative loss."""
        shape = self._source.tensors[name].form.shape
        if new is None or tuple(new.shape) != shape:
            got = "none of this name" if new is None else f"shape {list(new.shape)}"
            raise ValueError(f"{name} is stored with shape {list(shape)}, Transformers would store {got}: --exclude it")
        array, factors = self._array(name), self._factors(name)
        dense = of_host(_dequantized(array, factors)).to(new.device).to(new.dtype)
        if name in arrays or (changed and torch.equal(new, dense)):
            return 0.0
        result = rounded(new, dense, of_host(array).to(new.device), factors)
        arrays[name] = result.stored.cpu()
        scale = self.facts.tensors[name].scale
        if scale is not None and result.scales is not None:
            stored = self._array(scale.name)
            arrays[scale.name] = result.scales.reshape(stored.shape).view(stored.dtype)
        return result.loss

    def _array(self, name: str, given: Mapping[str, Given] | None = None) -> Any:
        return given[name].array() if given and name in given else self._source.array(name)

    def _factors(self, name: str, given: Mapping[str, Given] | None = None) -> Factors | None:
        scale = self.facts.tensors[name].scale
        if scale is None:
            return None
        return Factors.of(self._array(scale.name, given), scale, self._source.tensors[name].form.shape)

    def _largest(self, chains: Iterable[Chain]) -> Chain:
        """The chain with the most elements to prune."""

        def size(chain: Chain) -> int:
            facts = {each: self.facts.tensors[each] for name in chain.names for each in self._of_block(name)}
            return sum(math.prod(each.form.shape) for each in facts.values() if each.prune)

        return max(chains, key=size)

    def _of_block(self, block: str) -> list[str]:
        """The checkpoint's tensors of a block."""
        parts = (made_of for name, made_of in self.behind.items() if name.startswith(f"{block}."))
        return sorted(frozenset[str]().union(*parts))

    def _built(self, config: Any, kind: Any, shapes: Iterable[str], outside: bool) -> Any:
        later = {each for name in self.chain.names for each in self._of_block(name)} if outside else {*shapes}
        tensors = {name: self._later(name) if name in later else self.read(name) for name in shapes}
        with running.quiet(), torch.random.fork_rng(devices=[]):
            model, info = kind.from_pretrained(None, config=config, state_dict=tensors, output_loading_info=True)
        lacking = sorted({*info["missing_keys"], *(each[0] for each in info["mismatched_keys"])})
        if lacking:
            raise ValueError(
                f"a checkpoint holds every parameter of its model, got none that Transformers takes for {listed(lacking)}"
            )
        self._conversions = {"": model._weight_conversions}
        return model.eval()._apply(lambda tensor: tensor if tensor.is_meta else tensor.to(self.device))

    def _later(self, name: str) -> Any:
        form = self._source.tensors[name].form
        assert isinstance(form, DenseForm)
        return _Later(form.shape, self._dense if is_fp8(form) else getattr(torch, DTYPES[form.dtype].name))

    def _fill(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Load tensors of the checkpoint into a block. Raises ValueError if a parameter gets none."""
        self._load(tensors)
        block = self.model.get_submodule(name)
        empty = [f"{name}.{each}" for each, tensor in _tensors(block) if tensor.is_meta]
        if empty:
            raise ValueError(f"each parameter of a block comes from the checkpoint, got none for {listed(empty)}")

    def _load(self, tensors: Mapping[str, Tensor]) -> None:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import convert_and_load_state_dict_in_model
        from transformers.modeling_utils import LoadStateDictConfig

        mapping: Any = get_model_conversion_mapping(self.model)
        config = LoadStateDictConfig(weight_mapping=mapping, dtype=self._dense, device_map={"": self.device})
        with running.quiet(), torch.no_grad():
            info, _ = convert_and_load_state_dict_in_model(self.model, dict(tensors), config)
        wrong = sorted({*info.unexpected_keys, *(each[0] for each in info.mismatched_keys), *info.conversion_errors})
        if wrong:
            raise ValueError(f"Transformers loads each tensor of a block, got {listed(wrong)} that it does not")


def _dequantized(array: Any, factors: Factors | None) -> Any:
    if factors is None:
        return array
    rows, columns = range(math.prod(array.shape[:-1])), range(array.shape[-1])
    return numbers(array, factors.at(rows, columns).reshape(array.shape))


def _tensors(block: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters and buffers of a block."""
    yield from block.named_parameters()
    yield from block.named_buffers()


def _put(module: nn.Module, name: str, tensor: Tensor) -> None:
    """Put a parameter or a buffer in its place."""
    path, _, attribute = name.rpartition(".")
    setattr(module.get_submodule(path), attribute, tensor)
