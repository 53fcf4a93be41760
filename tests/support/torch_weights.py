"""Sparse weights of PyTorch tensors, with their dense form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PATTERNS = (("2:4", "bfloat16"), ("1:2", "float32"), ("2:16", "float16"), ("4:8@4", "float32"), ("2:8@V16", "bfloat16"))
"""Every kind of pattern, with an element type."""


@dataclass(frozen=True)
class Weight:
    """values and indices, as of Louver's files; dense: [rows, size] with zeros."""

    values: Any
    indices: Any
    dense: Any
    pattern: str

    @property
    def arrays(self) -> tuple[Any, Any]:
        return self.values, self.indices


def sparse_weight(
    torch: Any, rows: int, size: int, pattern: str = "2:4", dtype: str = "bfloat16", device: str = "cpu"
) -> Weight:
    """A random weight that keeps a pattern."""
    from louver.torch.core import compressed

    kind = getattr(torch, dtype)
    w = torch.randint(-8, 9, (rows, size)) if dtype == "int8" else torch.randn(rows, size)
    values, indices, _ = compressed(w.to(kind).to(device), pattern, prune=True)
    dense = torch.ops.louver.dense(values, indices, size, pattern)
    return Weight(values, indices, dense, pattern)


def close(torch: Any, y: Any, expected: Any, relative: float = 0.02) -> None:
    """Compare with a result of the same shape, relative to its largest magnitude."""
    assert y.shape == expected.shape
    y, expected = y.detach().double(), expected.detach().double()
    torch.testing.assert_close(y, expected, rtol=0, atol=relative * float(expected.abs().max()))
