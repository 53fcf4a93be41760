"""Two sparse weights of one shape in one storage, in turns of 8 rows, as gated products read them."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportIncompatibleVariableOverride=false, reportPrivateUsage=false, reportIncompatibleMethodOverride=false

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from louver.formats.gated import GATE_ROWS
from louver.torch.linear import SparseLinear, SparseWeight, arrays_of
from louver.torch.operators import OPS, by_turns, in_order, multiply


class PairedWeight(SparseWeight):
    """The weights of a gate and of an up projection, [2·F, K]. Its two `PairRows` read and write a state_dict.

    scale: of quantized weights, the gate's elements, then those of the up projection.
    """

    @classmethod
    def joined(cls, gate: SparseWeight, up: SparseWeight) -> PairedWeight:
        """Copies both weights."""
        rows, columns = gate.shape
        trains = gate.values.requires_grad or up.values.requires_grad
        made = cls(2 * rows, columns, gate.pattern, device="meta", dtype=gate.dtype, requires_grad=trains)
        with torch.inference_mode(False), torch.no_grad():
            values, indices = (
                torch.stack([x.reshape(-1, GATE_ROWS, x.shape[1]) for x in pair], 1).flatten(0, 2)
                for pair in ((gate.values, up.values), (gate.indices, up.indices))
            )
            made.values = nn.Parameter(values, trains and values.itemsize > 1)
            made.indices = nn.Parameter(indices, False)
            if gate.scale is not None and up.scale is not None:
                made.quantized_(made.values, torch.cat([gate.scale, up.scale]), gate.dense_dtype)
        made.negative_zeros_dropped = gate.negative_zeros_dropped + up.negative_zeros_dropped
        return made

    def __call__(self) -> dict[str, Tensor | None]:
        # Programs that offload weights find them by the names of a state_dict, which has those of the members.
        if self.values.is_meta:
            raise RuntimeError(
                "weights of one product are in one storage, which is not offloaded, got it on the meta device: save the "
                "model, and load it with a device_map, which keeps offloaded blocks as they are"
            )
        return super().__call__()

    def rounded(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        values, scale = super().rounded(dtype)
        return values, in_order(scale)

    def row_scales(self, scale: Tensor) -> Tensor:
        return by_turns(scale)

    def _save_to_state_dict(self, *_: Any, **__: Any) -> None:
        """The members save their rows."""

    def _load_from_state_dict(self, *_: Any, **__: Any) -> None:
        """The members load their rows."""


class PairRows(SparseWeight):
    """One of the two weights of a pair. values and indices are views [rows / 8, 8, …] of the pair's, so writes to them
    change the pair. In a state_dict they have rows, as in every other weight.
    """

    def __init__(self, joint: PairedWeight, part: int) -> None:
        nn.Module.__init__(self)
        # A tuple, for the pair is no child of its members.
        self._pair, self.part = (joint,), part
        self.pattern, self.shape = joint.pattern, torch.Size((joint.shape[0] // 2, joint.shape[1]))
        self.negative_zeros_dropped = 0

    @property
    def joint(self) -> PairedWeight:
        return self._pair[0]

    @property
    def owner(self) -> PairedWeight:
        return self.joint

    @property
    def values(self) -> Tensor:
        return self._turns(self.joint.values)

    @property
    def indices(self) -> Tensor:
        return self._turns(self.joint.indices)

    @property
    def scale(self) -> Tensor | None:
        scale = self.joint.scale
        return None if scale is None else scale.chunk(2)[self.part]

    @property
    def dense_dtype(self) -> torch.dtype | None:
        return self.joint.dense_dtype

    def _turns(self, x: Tensor) -> Tensor:
        return x.view(-1, 2, GATE_ROWS, x.shape[1])[:, self.part]

    def _arrays(self) -> Iterator[tuple[str, Tensor]]:
        yield from (("values", self.values), ("indices", self.indices))
        if self.scale is not None:
            yield "scale", self.scale

    def separate(self) -> SparseWeight:
        """A weight of its own of these rows."""
        trains = self.joint.values.requires_grad
        made = SparseWeight(
            self.shape[0], self.shape[1], self.pattern, device="meta", dtype=self.dtype, requires_grad=trains
        )
        with torch.inference_mode(False), torch.no_grad():
            made.values = nn.Parameter(self.values.flatten(0, 1).clone(), made.values.requires_grad)
            made.indices = nn.Parameter(self.indices.flatten(0, 1).clone(), False)
            if self.scale is not None:
                made.quantized_(made.values, self.scale.clone(), self.dense_dtype)
        return made

    def dense(self) -> Tensor:
        return (
            self.separate().dense()
            if self.scale is not None
            else OPS.dense(self.values.flatten(0, 1), self.indices.flatten(0, 1), self.shape[1], self.pattern)
        )

    def refresh_(self) -> PairRows:
        self.joint.refresh_()
        return self

    def copy_(self, other: SparseWeight) -> PairRows:
        self.check_like(other)
        with torch.no_grad():
            for name, mine in self._arrays():
                mine.copy_(getattr(other, name).reshape(mine.shape))
        return self.refresh_()

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, mine in self._arrays():
            rows = mine if mine.dim() == 1 else mine.flatten(0, 1)
            destination[prefix + name] = rows if keep_vars else rows.detach()

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        known: set[str] = set()
        for name, mine in self._arrays():
            key = prefix + name
            known.add(key)
            given, shape = state_dict.get(key), [self.shape[0], *mine.shape[2:]]
            if given is None:
                missing_keys.extend([key] if strict else [])
            elif list(given.shape) != shape:
                error_msgs.append(f"{key} has shape {shape}, got {list(given.shape)} in the state_dict")
            elif mine.is_meta and not given.is_meta:
                error_msgs.append(
                    f"{key} is one of a pair on the meta device, which takes no values: call to_empty first"
                )
            else:
                with torch.no_grad():
                    mine.copy_(given.reshape(mine.shape))
        if strict:
            unexpected_keys.extend(key for key in state_dict if key.startswith(prefix) and key not in known)
        self.refresh_()


class PairedLinear(SparseLinear):
    """A layer whose weight is one of a pair. Called by itself, it multiplies by the pair and gives its own outputs."""

    @classmethod
    def member(cls, layer: SparseLinear, joint: PairedWeight, part: int) -> PairedLinear:
        """The layer as a member of a pair. They share the bias."""
        made = cls.__new__(cls)
        vars(made).update(vars(layer))
        made._modules, made._parameters = dict(layer._modules), dict(layer._parameters)
        made._modules["weight"] = PairRows(joint, part)
        return made

    def separate(self) -> SparseLinear:
        """The layer with a weight of its own."""
        made = SparseLinear.__new__(SparseLinear)
        vars(made).update(vars(self))
        made._modules, made._parameters = dict(self._modules), dict(self._parameters)
        rows: Any = self.weight
        made._modules["weight"] = rows.separate()
        return made

    def forward(self, x: Tensor) -> Tensor:
        rows: Any = self._modules["weight"]
        joint, bias = rows.joint, self._parameters["bias"]
        arrays = arrays_of(joint)
        scale = None if arrays["scale"] is None else by_turns(arrays["scale"])
        y = multiply(x, arrays["values"], arrays["indices"], None, joint.pattern, scale=scale)
        mine = y.unflatten(-1, (-1, 2, GATE_ROWS))[..., rows.part, :].flatten(-2)
        return mine if bias is None else mine + bias.to(mine.dtype)
