"""What pruning, compressing or decompressing did to one weight."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One weight. shape: in elements. dtype: the written element type.

    dense_bytes: dense size in that type. stored_bytes: written size, dense or compressed.
    error: relative Frobenius error, ‖w − written‖ / ‖w‖ over finite elements of the original w, both dequantized; 0 for
        a zero weight. nonfinite: infinities and NaNs of the original. negative_zeros: -0.0 that became +0.0.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    dense_bytes: int
    stored_bytes: int
    error: float
    nonfinite: int = 0
    negative_zeros: int = 0

    def __post_init__(self) -> None:
        if self.dense_bytes < 0 or self.stored_bytes < 0:
            raise ValueError(f"sizes are not negative, got {self.dense_bytes} and {self.stored_bytes} bytes")
        if not self.error >= 0:
            raise ValueError(f"{self.name}: the error is a number from 0, got {self.error}: the weight may hold NaN")

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def ratio(self) -> float:
        return self.dense_bytes / self.stored_bytes if self.stored_bytes else 1.0
