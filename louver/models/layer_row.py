"""What pruning or compressing did to one weight."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One weight. shape: [rows, columns] in elements. dtype: the stored element type.

    dense_bytes: dense size in that type. stored_bytes: written size, dense or compressed.
    error: relative Frobenius error of pruning, ‖w − pruned‖ / ‖w‖, 0 for a zero weight.
    """

    name: str
    shape: tuple[int, int]
    dtype: str
    dense_bytes: int
    stored_bytes: int
    error: float

    def __post_init__(self) -> None:
        if self.dense_bytes < 0 or self.stored_bytes < 0:
            raise ValueError(f"sizes are not negative, got {self.dense_bytes} and {self.stored_bytes} bytes")
        if not self.error >= 0:
            raise ValueError(f"{self.name}: the error is a number from 0, got {self.error}: the weight may hold NaN")

    @property
    def ratio(self) -> float:
        return self.dense_bytes / self.stored_bytes if self.stored_bytes else 1.0
