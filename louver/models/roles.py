"""What a tensor of a checkpoint is, and whether it is pruned: the records that `analyze` gives and that commands obey."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from louver.formats.schema import Form


class Role(StrEnum):
    """What a model does with a tensor."""

    WEIGHT = "weight"
    """A matrix product, or a grouped product of experts, contracts one of its axes."""
    CONVOLUTION = "convolution"
    """A convolution contracts its input channels."""
    HEAD = "head"
    """The product that gives a score for each token of the vocabulary."""
    ROUTER = "router"
    """The product that chooses experts."""
    EMBEDDING = "embedding"
    """A table whose rows are looked up."""
    NORM = "norm"
    BIAS = "bias"
    SCALE = "scale"
    """Scales or zero points of a quantized weight."""
    STATE = "state"
    """Any other parameter that no product reads: decay of a state-space model, relative positions, buffers."""
    PACKED = "packed"
    """A weight, or a part of one, in a form that Louver does not read: GPTQ, AWQ, MXFP4, NVFP4, blocks of GGUF."""
    UNKNOWN = "unknown"


class Evidence(StrEnum):
    """Where a role comes from. The first of these that exists decides."""

    MODEL = "model"
    """The model itself, built from its configuration with fake tensors and run once."""
    CONFIG = "config"
    """`config.json`: architecture, quantization_config, tie_word_embeddings."""
    SIBLINGS = "siblings"
    """Other tensors of the checkpoint that belong to this one: scales, zero points, bitmasks."""
    NAMES = "names"
    """The tensor's name and shape."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How stored elements of a quantized weight become numbers: element · scale. See `louver.models.scaled`.

    name: of the scales' tensor; "inv" in it, as in `weight_scale_inv`, does not mean a division. block: elements of the weight that share a scale, along each axis of the weight.
    """

    name: str
    block: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.block):
            raise ValueError(f"{self.name}: a scale covers at least one element along each axis, got {self.block}")


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """A tensor of a checkpoint: what it is, and the decision.

    name: in the checkpoint. form: as stored. axis: the contracted axis, counted from 0; None if no product reads it.
    ties: names of other tensors that are the same parameter. scale: of a quantized weight that Louver reads.
    prune: whether `louver prune` prunes it. reason: why, or why not, in a user's words. evidence: of the role.
    """

    name: str
    form: Form
    role: Role
    evidence: Evidence
    prune: bool
    reason: str
    axis: int | None = None
    ties: tuple[str, ...] = ()
    scale: Scale | None = None

    def __post_init__(self) -> None:
        if self.axis is not None and not 0 <= self.axis < len(self.form.shape):
            raise ValueError(f"{self.name}: the contracted axis is one of {len(self.form.shape)}, got {self.axis}")
        if self.prune and self.axis is None:
            raise ValueError(f"{self.name}: a tensor that is pruned has a contracted axis")
        if self.scale is not None and len(self.scale.block) != len(self.form.shape):
            raise ValueError(f"{self.name}: a scale's block has one size for each axis, got {self.scale.block}")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The tensors of a checkpoint by name, in its order. notes: what a user should know about the whole checkpoint."""

    tensors: Mapping[str, TensorFacts]
    notes: tuple[str, ...] = ()

    @property
    def pruned(self) -> tuple[TensorFacts, ...]:
        return tuple(facts for facts in self.tensors.values() if facts.prune)

    @property
    def examples(self) -> str:
        """The largest tensors and the reasons of their decisions."""
        largest = sorted(self.tensors.values(), key=lambda each: -each.form.nbytes)[:3]
        return "; ".join(f"{each.name}: {each.reason}" for each in largest)
