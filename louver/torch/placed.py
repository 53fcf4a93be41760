"""Parameters that lie on several ranks, as DTensors of PyTorch: products and kernels read the part of their own rank."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from louver.formats.pattern import Pattern

_PLAIN = (nn.Parameter, Tensor)


def is_placed(x: object) -> bool:
    """Whether a tensor is a DTensor. PyTorch's module of them is not imported for it."""
    if type(x) in _PLAIN:
        return False
    loaded: Any = sys.modules.get("torch.distributed.tensor")
    return loaded is not None and isinstance(x, loaded.DTensor)


def local(x: Any) -> Any:
    """The part of this rank, through which gradients flow back with the same placements. Anything else as it is."""
    if not is_placed(x):
        return x
    _count(x)
    return x.to_local()


def part_of(x: Any) -> Any:
    """The part of this rank without gradients; a view of the parameter."""
    if not is_placed(x):
        return x
    _count(x)
    return x._local_tensor.detach()


def _count(x: Any) -> None:
    """Count writes to a DTensor as writes to its part, which PyTorch does not: what is kept of the part follows them."""
    part = x._local_tensor
    if x.is_inference() or part.is_inference() or torch.compiler.is_compiling():
        return
    if _counted().setdefault(part, x._version) != x._version:
        torch.autograd.graph.increment_version(part)
        _counted()[part] = x._version


@functools.cache
def _counted() -> WeakIdKeyDictionary:
    """The versions of DTensors that were counted, by their parts."""
    return WeakIdKeyDictionary()


def whole_of(x: Any) -> Any:
    """All of a placed tensor, on every rank; a plain one as it is."""
    return x.full_tensor() if is_placed(x) else x


def placed_as(like: Any, whole: Tensor) -> Any:
    """A tensor that all ranks have whole, placed as another one is."""
    tensors: Any = sys.modules["torch.distributed.tensor"]
    everywhere = [tensors.Replicate()] * like.device_mesh.ndim
    made = tensors.DTensor.from_local(whole, like.device_mesh, everywhere, run_check=False)
    return made.redistribute(placements=like.placements)


def beside(like: Any, part: Tensor, shape: Sequence[int]) -> Tensor:
    """The part of this rank of a tensor of this shape, placed as another tensor is; the part itself if that one is plain."""
    if not is_placed(like):
        return part
    tensors: Any = sys.modules["torch.distributed.tensor"]
    return tensors.DTensor.from_local(
        part, like.device_mesh, like.placements, run_check=False, shape=torch.Size(shape), stride=strides(shape)
    )


def replicated(x: Any) -> Tensor:
    """A placed tensor, whole on every rank."""
    tensors: Any = sys.modules["torch.distributed.tensor"]
    return x.redistribute(placements=[tensors.Replicate()] * x.device_mesh.ndim)


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Of a tensor without gaps."""
    made = [1]
    for size in reversed(shape[1:]):
        made.insert(0, made[0] * max(size, 1))
    return tuple(made)


def parts_of_columns(like: Any) -> int:
    """Into how many parts the last axis of a placed tensor is cut; 1 for a plain one."""
    if not is_placed(like):
        return 1
    last = like.ndim - 1
    cuts = [like.device_mesh.size(axis) for axis, each in enumerate(like.placements) if each.is_shard(last)]
    return cuts[0] if cuts else 1


def own_part(layer: Any) -> Any:
    """A layer of PyTorch as this rank multiplies it: by its part of the weight, without hooks. A plain one as it is."""
    if not is_placed(layer.weight):
        return layer
    rows, columns = part_of(layer.weight).shape
    made: Any = nn.Linear(columns, rows, layer.bias is not None, device="meta")
    made.weight = nn.Parameter(part_of(layer.weight), layer.weight.requires_grad)
    made.bias = None if layer.bias is None else nn.Parameter(part_of(layer.bias), layer.bias.requires_grad)
    return made


def is_placing(hook: Any) -> bool:
    """Whether a hook is one of `torch.distributed.tensor.distribute_module`, which places the input or the output."""
    return getattr(hook, "__module__", None) == "torch.distributed.tensor._api"


def take_placing(made: Any, layer: Any) -> None:
    """Give a layer what places the input and the output of another one: its layout, or hooks of PyTorch's styles."""
    made.layout = getattr(layer, "layout", None)
    if made.layout is not None:
        return
    for hooks in ("_forward_pre_hooks", "_forward_hooks"):
        getattr(made, hooks).update({key: hook for key, hook in getattr(layer, hooks).items() if is_placing(hook)})


def undivided(name: str, weight: Any, pattern: Pattern) -> str | None:
    """Why a sparse weight cannot lie as a dense one does; None if it can."""
    if not is_placed(weight):
        return None
    sharding: Any = importlib.import_module("louver.torch.parallel.styles")
    for axis, placement in enumerate(weight.placements):
        try:
            sharding.check_division(name, weight.shape, pattern, weight.dtype, placement, weight.device_mesh.size(axis))
        except ValueError as error:
            return str(error)
    return None


def averaged(numbers: Sequence[float], like: Any) -> list[float]:
    """The means over the ranks that a tensor lies on."""
    ranks = like.device_mesh.size() if is_placed(like) else 1
    return [total / ranks for total in summed(numbers, [like] * len(numbers))]


def summed(numbers: Sequence[float], like: Sequence[Any]) -> list[float]:
    """The sums over the ranks that hold each tensor, so that all ranks decide alike. Numbers of plain tensors stay.

    like: a tensor for each number. All ranks of a mesh call this with the same tensors.
    """
    found = list(numbers)
    meshes = dict.fromkeys(x.device_mesh for x in like if is_placed(x))
    for mesh in meshes:
        places = [place for place, x in enumerate(like) if is_placed(x) and x.device_mesh == mesh]
        mine = torch.tensor([found[place] for place in places], dtype=torch.float64, device=mesh.device_type)
        for axis in range(mesh.ndim):
            torch.distributed.all_reduce(mine, group=mesh.get_group(axis))
        for place, total in zip(places, mine.tolist(), strict=True):
            found[place] = total
    return found
