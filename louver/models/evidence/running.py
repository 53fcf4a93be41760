"""Builds a model of Transformers with fake tensors, loads a checkpoint's shapes into it, and runs it, whole or in parts."""

# Torch and Transformers have no complete types.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import copy
import logging
import warnings
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import huggingface_hub.constants as hub
import torch
import transformers
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from louver.models.evidence.inputs import tries
from louver.models.evidence.lineage import Watch

_LONGEST: Final = 200
"""Most characters of another library's message in a note."""


def run(path: Path, fields: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Run:
    """Run the model of a configuration file with tensors of the checkpoint's names and shapes."""
    with quiet(), torch.random.fork_rng(devices=[]):
        model = built(path, fields)
        with FakeTensorMode(allow_non_fake_inputs=True):
            made = Run(model)
            made.load(shapes)
            made.forward()
    return made


def loaded(
    path: Path, fields: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Any, dict[str, frozenset[str]]]:
    """The model of a configuration file without data, and the checkpoint's tensors that each parameter and buffer is
    made of. Raises ValueError for an unknown architecture.
    """
    with quiet(), torch.random.fork_rng(devices=[]):
        model = built(path, fields)
        with FakeTensorMode(allow_non_fake_inputs=True):
            made = Run(model)
            made.load(shapes)
    tensors = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    return model, {name: made.watch.names_of(tensor) for name, tensor in tensors}


def run_live(model: Any) -> Run:
    """Run a copy of a model in memory, with fake tensors in the place of all its tensors. Hooks do not run."""
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with quiet(), torch.random.fork_rng(devices=[]):
        made = Run(_fake_copy(model, fake))
        with fake:
            made.follow()
            made.forward()
    return made


def _fake_copy(model: Any, fake: FakeTensorMode) -> Any:
    copies: dict[int, Any] = {}
    with fake:
        for module in model.modules():
            for each in (*module._parameters.values(), *module._buffers.values(), *vars(module).values()):
                if isinstance(each, nn.Parameter):
                    copies[id(each)] = nn.Parameter(torch.empty(each.shape), False)
                elif isinstance(each, torch.Tensor):
                    copies[id(each)] = torch.empty(each.shape, dtype=each.dtype)
    copied = copy.deepcopy(model, copies)
    for module in copied.modules():
        for name, value in vars(module).items():
            if name.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called")) and isinstance(value, dict):
                value.clear()
        vars(module).pop("forward", None)
    _plainest(copied.config)
    return copied.eval()


def _plainest(config: Any) -> None:
    """Choose the implementations whose operations `lineage` knows."""
    config._attn_implementation = "eager"
    if hasattr(config, "_experts_implementation"):
        config._experts_implementation = "batched_mm"


@contextmanager
def quiet() -> Generator[None]:
    """No messages, progress bars and downloads of other libraries, until the end."""
    bars, offline = transformers.utils.logging.is_progress_bar_enabled(), hub.HF_HUB_OFFLINE
    disabled = logging.root.manager.disable
    try:
        logging.disable(logging.CRITICAL)
        transformers.utils.logging.disable_progress_bar()
        hub.HF_HUB_OFFLINE = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        hub.HF_HUB_OFFLINE = offline
        logging.disable(disabled)
        if bars:
            transformers.utils.logging.enable_progress_bar()


def built(path: Path, fields: Mapping[str, Any]) -> Any:
    """The model of a configuration file, on the meta device. Raises ValueError for an unknown architecture."""
    config, chosen = described(path, fields)
    _plainest(config)
    with ExitStack() as stack:
        for context in chosen.get_init_context(torch.float32, False, False, None):
            stack.enter_context(context)
        return chosen(config).eval()


def described(path: Path, fields: Mapping[str, Any]) -> tuple[Any, Any]:
    """The configuration in a file, without a quantization, and the model's class. Raises ValueError for an unknown
    architecture.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = fields["model_type"]
    if kind not in CONFIG_MAPPING:
        raise ValueError(f"transformers {transformers.__version__} does not know the architecture {kind!r}")
    config: Any = CONFIG_MAPPING[kind].from_pretrained(path.parent, local_files_only=True)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    return config, _class_of(config, fields.get("architectures"))


def _class_of(config: Any, architectures: object) -> Any:
    """The model's class: the one that the configuration names, else the architecture's own."""
    for name in architectures if isinstance(architectures, list) else []:
        found = getattr(transformers, str(name), None)
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            return found
    from transformers.models.auto import modeling_auto

    for mapping in (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING, modeling_auto.MODEL_MAPPING):
        if type(config) in mapping:
            return mapping[type(config)]
    raise ValueError(f"transformers has no model for the configuration {type(config).__name__}")


class _Lazy:
    """A tensor that is loaded without an operation, also by another thread: the loader slices it and converts it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.dtype = tensor.dtype
        self.shape = tensor.shape

    def __getitem__(self, item: object) -> _Lazy:
        return self

    def to(self, *args: object, **kwargs: object) -> torch.Tensor:
        return self.tensor


class Run:
    """One run of a model.

    watch: what was seen. shapes: of the named tensors. read: tensors of the checkpoint that the model uses. ties: names of the same parameter.
    partial: tensors whose module ran, but not the model. convolutions: tensors that belong to convolutions.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.watch = Watch()
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.ties: tuple[tuple[str, ...], ...] = ()
        self.partial: frozenset[str] = frozenset()
        self.convolutions: set[str] = set()
        self.notes: tuple[str, ...] = ()
        self._message = ""

    @property
    def read(self) -> list[str]:
        """The tensors that the model was seen to use."""
        return [name for name, uses in self.watch.uses.items() if uses.contracted or uses.convolved or uses.kinds]

    def load(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Load fake tensors under the checkpoint's names by the model's own rules."""
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import convert_and_load_state_dict_in_model
        from transformers.modeling_utils import LoadStateDictConfig

        self._from_meta()
        self.shapes = dict(shapes)
        tensors = {name: torch.empty(shape) for name, shape in shapes.items()}
        for name, tensor in tensors.items():
            self.watch.name(tensor, name)
        mapping: Any = get_model_conversion_mapping(self.model)
        config = LoadStateDictConfig(weight_mapping=mapping, dtype=torch.float32)
        with self.watch, torch.no_grad():
            convert_and_load_state_dict_in_model(
                self.model, {name: _Lazy(tensor) for name, tensor in tensors.items()}, config
            )
            before = dict(self.model.named_parameters(remove_duplicate=False))
            self.model.tie_weights()
        self.ties = self._ties(before)
        self._note_convolutions()

    def follow(self) -> None:
        """Follow the model's own parameters, under the first name of each."""
        for name, parameter in self.model.named_parameters():
            self.shapes[name] = tuple(parameter.shape)
            self.watch.name(parameter, name)
        self._note_convolutions()

    def _note_convolutions(self) -> None:
        for module in self.model.modules():
            if isinstance(module, nn.modules.conv._ConvNd):
                self.convolutions |= self.watch.names_of(module.weight)

    def _from_meta(self) -> None:
        """Fake tensors on the CPU in place of the model's meta tensors."""
        for module in self.model.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None and parameter.is_meta:
                    module._parameters[name] = nn.Parameter(torch.empty(parameter.shape), parameter.requires_grad)
            for name, buffer in module._buffers.items():
                if buffer is not None and buffer.is_meta:
                    module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)

    def _ties(self, before: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
        """Groups of checkpoint names that are one parameter after tying."""
        groups: defaultdict[int, set[str]] = defaultdict(set)
        for name, parameter in self.model.named_parameters(remove_duplicate=False):
            for each in (before.get(name), parameter):
                names = self.watch.names_of(each)
                groups[id(parameter)] |= names if len(names) == 1 else set()
        return tuple(tuple(sorted(group)) for group in groups.values() if len(group) > 1)

    def forward(self) -> None:
        """Run the model, then its unread models by themselves, then unread modules one by one."""
        whole = self._try(self.model)
        if any(True for _ in self._missing(self.model, True)):
            for module in self.model.modules():
                inner = module is not self.model and isinstance(module, transformers.PreTrainedModel)
                if inner and self._unread_in(module):
                    self._try(module)
        reached = set(self.read)
        for module in self.model.modules():
            if self._unread_in(module, recurse=False):
                self._run_alone(module)
        alone = set(self.read) - reached
        self.partial = frozenset(alone if whole else self.read)
        if not whole:
            self.notes = (
                f"the model did not run as a whole ({self._message or 'its inputs are not known'}): its parts ran one by one",
                *self.notes,
            )
        elif alone:
            self.notes = (*self.notes, f"{len(alone)} tensors are read only when their modules run alone")
        head = self.model.get_output_embeddings() if hasattr(self.model, "get_output_embeddings") else None
        for name in self.watch.names_of(getattr(head, "weight", None)):
            self.watch.uses[name].head = True

    def _try(self, module: Any) -> bool:
        """Run a model with the inputs that its arguments ask for. Whether one run came to its end."""
        done = False
        for arguments in tries(module, module.config):
            try:
                self._call(module, arguments)
                done = True
            except Exception as error:  # A model raises anything for inputs that it does not take.
                self._message = self._message or " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]
                continue
            if not self._unread_in(module):
                break
        return done

    def _call(self, module: Any, arguments: dict[str, Any]) -> None:
        fed: dict[str, Any] = {}
        for name, value in arguments.items():
            fed[name] = value
            if value.is_floating_point():
                fed[name] = torch.empty(value.shape)
                self.watch.feed(fed[name])
        with self.watch, torch.no_grad():
            out = module(**fed)
        self._outputs(out)

    def _outputs(self, out: Any) -> None:
        """Products whose results are scores."""
        fields = out.items() if isinstance(out, dict) else []
        for key, value in fields:
            if "logits" in key:
                for name in self.watch.results(value):
                    self.watch.uses[name].head = True

    def _unread_in(self, module: Any, recurse: bool = True) -> bool:
        return any(True for _ in self._missing(module, recurse))

    def _missing(self, module: Any, recurse: bool) -> Iterator[str]:
        for parameter in module.parameters(recurse=recurse):
            if parameter.dim() > 1:
                for name in self.watch.names_of(parameter):
                    uses = self.watch.uses.get(name)
                    if uses is None or not (uses.contracted or uses.convolved or uses.kinds):
                        yield name

    def _run_alone(self, module: Any) -> None:
        """Run one module on data of the sizes that its parameters have: sequences, then channels of signals and images."""
        sizes = {size for parameter in module.parameters(recurse=False) for size in parameter.shape}
        sizes |= {size * module.groups for size in sizes if getattr(module, "groups", 1) > 1}
        shapes: list[tuple[int, ...]] = [(1, 3, size) for size in sizes]
        for sides in ((64,), (64, 64), (16, 64, 64)):
            shapes += [(1, size, *sides) for size in sizes]
        for shape in shapes:
            data = torch.empty(shape)
            self.watch.feed(data)
            if self._runs(module, data):
                return
        self._runs(module, torch.zeros(1, 3, dtype=torch.long))

    def _runs(self, module: Any, data: torch.Tensor) -> bool:
        try:
            with self.watch, torch.no_grad():
                module(data)
        except Exception:  # A module raises anything for data that it does not take.
            return False
        return True
