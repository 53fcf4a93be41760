"""The copies of models that a distillation runs: in its element type, on its device, with compiled blocks."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import contextlib
import copy
import importlib
import os
from collections.abc import Generator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from louver.torch.accuracy.blocks import find_chains
from louver.torch.accuracy.scores import Head
from louver.torch.accuracy.text import device_of
from louver.torch.accuracy.trained import trained_parameters, zero_masks


def compute_type(device: torch.device) -> torch.dtype:
    """The element type of products: bf16 on a GPU, f32 on a CPU, which is slow in 16 bits."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def working_copy(model: nn.Module, device: torch.device) -> nn.Module:
    """A copy in evaluation mode, to be trained while the model stays as it is. Buffers keep their types."""
    made = copy.deepcopy(model).to(device).eval()
    # Frequencies of positions would be wrong in 16 bits.
    modules: Any = list(made.modules())
    buffers = [(module._buffers, dict(module._buffers)) for module in modules]
    made.to(compute_type(device))
    for now, before in buffers:
        now.update(before)
    for parameter in made.parameters():
        parameter.grad = None
    return made


def teacher_of(given: object, model: nn.Module) -> nn.Module:
    """The dense model: a module, one from a folder of Transformers, or from a function that makes it. None: from where
    Transformers loaded the model.

    Raises ValueError if there is none, or if it is the pruned model itself; TypeError for anything else.
    """
    if given is None:
        given = str(getattr(model, "name_or_path", ""))
        if not os.path.isdir(given):
            raise ValueError(
                "distill_ needs the dense model, got teacher=None and a model that was loaded from no folder: keep it before "
                "pruning, as in teacher = copy.deepcopy(model), or give the folder from which Transformers loads it"
            )
    if isinstance(given, str | os.PathLike):
        given = importlib.import_module("transformers").AutoModelForCausalLM.from_pretrained(given)
    elif callable(given) and not isinstance(given, nn.Module):
        given = given()
    if not isinstance(given, nn.Module):
        raise TypeError(
            f"a teacher is a torch.nn.Module, a folder, or a function that makes the module, got {type(given).__name__}"
        )
    device_of(given)
    mine = {p.data_ptr() for p in trained_parameters(model).values() if p.ndim > 1}
    shared = [name for name, p in given.named_parameters() if p.ndim > 1 and p.data_ptr() in mine]
    if shared:
        raise ValueError(
            f"a teacher has dense weights of its own, got {shared[0]} that is the pruned model's: copy the model before pruning"
        )
    theirs = dict(given.named_parameters())
    for name, mask in zero_masks(trained_parameters(model)).items():
        if name in theirs and torch.equal(theirs[name].detach() != 0, mask.to(theirs[name].device)):
            raise ValueError(
                f"a teacher has dense weights, got {name} with the zeros of the pruned model: give the model before pruning"
            )
    return given


def ready(teacher: nn.Module, device: torch.device) -> nn.Module:
    """The teacher itself, or a working copy where its type, device or mode differ."""
    fits = all(p.device == device and p.dtype == compute_type(device) for p in teacher.parameters())
    if fits and not any(module.training for module in teacher.modules()):
        return teacher
    return working_copy(teacher, device)


def compile_blocks(model: nn.Module) -> None:
    """Compile each block of a model when it first runs. Raises ValueError for a model without blocks."""
    for chain in find_chains(model):
        for name in chain.names:
            model.get_submodule(name).compile(dynamic=False)


@contextlib.contextmanager
def compiling(model: nn.Module, dense: nn.Module, device: torch.device, notes: list[str]) -> Generator[None]:
    """Prepare both models to be compiled for a while, on a GPU: the dense one's blocks are. Notes say why if not."""
    on = device.type == "cuda"
    modules: Any = list(dense.modules())
    before = [module._compiled_call_impl for module in modules]
    tables = [module for module in model.modules() if on and isinstance(module, nn.Embedding)]
    handles = [table.register_forward_hook(_with_gradient) for table in tables]
    try:
        if on:
            try:
                compile_blocks(dense)
            except ValueError as error:
                notes.append(f"the teacher is not compiled: {error}")
        yield
    finally:
        for handle in handles:
            handle.remove()
        # A teacher may be compiled by its owner.
        for module, own in zip(modules, before, strict=True):
            module._compiled_call_impl = own


def _with_gradient(module: nn.Module, args: Any, output: Tensor) -> None:
    """Let the first block's input require grad as those of all others do: one compiled block then serves for all."""
    if torch.is_grad_enabled() and not output.requires_grad:
        output.requires_grad_()


def uncompile(models: Sequence[nn.Module]) -> None:
    """Make all modules of these models run as they are written."""
    for model in models:
        modules: Any = model.modules()
        for module in modules:
            module._compiled_call_impl = None


class DenseStates:
    """The states that the dense model's head reads, by rows of the data. What fits is kept, and computed once."""

    def __init__(self, head: Head, data: Tensor, limit: int) -> None:
        """data: [rows, length], on the device. limit: bytes of states to keep."""
        self._head, self._data = head, data
        kind = next(head.model.parameters()).dtype
        fits = data.numel() * head.width * kind.itemsize <= limit
        self._kept = torch.empty(*data.shape, head.width, dtype=kind, device=data.device) if fits else None
        self._has = torch.zeros(len(data), dtype=torch.bool)

    def __call__(self, rows: Tensor, on_device: Tensor) -> Tensor:
        """The states [rows, length, width] of some rows. rows: on the host, on_device: the same where the data is."""
        with torch.no_grad():
            if self._kept is not None and bool(self._has[rows].all()):
                return self._kept[on_device]
            states = self._head.hidden(self._data[on_device])
            if self._kept is not None:
                self._kept[on_device] = states
                self._has[rows] = True
            return states
