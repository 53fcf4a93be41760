"""Compares what products read with the parameters of a model."""

# pyright: reportUnknownVariableType=false

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from louver.formats.dtypes import raw_bits
from louver.formats.tensor import SparseTensor
from louver.library.state import TensorState
from louver.runtime.arrays import view
from louver.runtime.memory import read_bytes
from louver.torch.core import cores, fresh
from louver.torch.linear import SparseWeight


def verify(model: nn.Module) -> dict[str, str]:
    """The sparse weights of a model whose products would not be those of their parameters: a reason for each name.

    Reads everything that earlier products keep of each weight, on its device, and makes it anew on the host. An empty
    result says that all is right. Otherwise parameters were written in a way that PyTorch does not count: call
    `refresh_()` on these weights. Parameters with illegal indices are named too.
    """
    wrong: dict[str, str] = {}
    for name, module in model.named_modules():
        # A member of a joined weight has no parameters of its own: the joined weight is compared.
        if isinstance(module, SparseWeight) and dict(module.named_parameters()) and not module.values.is_meta:
            reasons = (_reason(module, *tensor) for tensor in module.tensors())
            reason = next((each for each in reasons if each is not None), None)
            if reason is not None:
                wrong[name] = reason
    return wrong


def _reason(weight: SparseWeight, values: Tensor, indices: Tensor, entries: int) -> str | None:
    now = fresh(values, indices, weight.pattern, weight.columns, entries).to("cpu")
    try:
        now.validate()
    except ValueError as error:
        return str(error)
    for kept in cores().find(values, indices):
        reason = _difference(kept, now)
        if reason is not None:
            return f"{reason}: call refresh_() on the weight"
    return None


def _difference(kept: SparseTensor, now: SparseTensor) -> str | None:
    """What a kept tensor holds that is not that of the present one. None if all is equal."""
    if kept.pattern != now.pattern or kept.shape != now.shape:
        return None
    for name in ("values", "indices"):
        held, wanted = (raw_bits(np.ascontiguousarray(view(getattr(s, name)).to_numpy())) for s in (kept, now))
        if not np.array_equal(held, wanted):
            return f"products read other {name} than the parameter's"
    for form in kept.derived.of(TensorState).forms():
        if form.memory is kept.values:
            continue
        stored = read_bytes(form.address, form.nbytes, ordinal=form.ordinal, stream=0)
        if bytes(stored) != np.ascontiguousarray(form.form.host(now)).tobytes():
            return f"{type(form.form).__name__} on cuda:{form.ordinal} is not that of the parameter"
    return None
