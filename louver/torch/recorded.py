"""`louver.linear` of tensors whose gradients PyTorch records: by the operators. `louver.library` asks for it."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from louver.formats.dtypes import element_type
from louver.formats.gated import GatedTensor
from louver.formats.tensor import SparseTensor
from louver.formats.torch_tensors import check_memory
from louver.torch.core import torch_rows
from louver.torch.operators import OPS


def recorded_linear(
    x: object, s: SparseTensor, bias: Any, scale: Any, dense_scale: Any, activation: Any, out_dtype: object
) -> Tensor | None:
    """The product by `torch.ops.louver`, with gradients of x and bias. None for a call that PyTorch does not record, and
    for arguments that the operators do not take: numbers, other arrays than tensors in memory, batches of weights.
    """
    given = [each for each in (bias, scale, dense_scale) if each is not None]
    if not torch.is_grad_enabled() or not all(_in_memory(each) for each in (x, *given)):
        return None
    operand: Any = x
    matrix = len(s.shape) == 2 and s.axis == 1 and operand.dim() > 0 and operand.shape[-1] == s.shape[1]
    if not matrix or not any(each.requires_grad for each in (operand, *given)):
        return None
    values, indices = _tensor(s.values), _tensor(s.indices)
    run = OPS.gated if isinstance(s, GatedTensor) else OPS.linear
    wanted = None if out_dtype is None else getattr(torch, element_type(out_dtype).numpy.name)
    return run(operand, values, indices, bias, scale, dense_scale, str(s.pattern), activation, wanted)


def _in_memory(x: object) -> bool:
    """Whether an operand is a tensor in memory. The checks of `louver.linear` say what others are."""
    try:
        if isinstance(x, Tensor):
            check_memory(x)
            return True
    except (TypeError, ValueError):
        pass
    return False


def _tensor(array: Any) -> Tensor:
    """An array of a sparse tensor: the tensor itself, another library's memory, or a copy of host memory."""
    if isinstance(array, Tensor):
        return array
    if isinstance(array, np.ndarray):
        return torch_rows(array, getattr(torch, array.dtype.name))
    return torch.from_dlpack(array)
