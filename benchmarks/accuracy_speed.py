"""Times of patterns on the shapes of Llama 3 8B, for `benchmarks/accuracy.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import nn

import louver
from louver.torch import SparseLinear
from louver.torch.gain import measure

FAST: Final = ("2:8@V128", "2:4", "4:8@128")
"""Patterns with a kernel, in the order in which a weight's is looked for: 2:8 of vectors keeps 2:4 too."""

TOKENS: Final = (16, 2048)

SHAPES: Final[Mapping[str, tuple[int, int]]] = {
    "q_proj": (4096, 4096),
    "k_proj": (1024, 4096),
    "v_proj": (1024, 4096),
    "o_proj": (4096, 4096),
    "gate_proj": (14336, 4096),
    "up_proj": (14336, 4096),
    "down_proj": (4096, 14336),
}
"""Outputs and inputs of the layers of a block."""


def speeds(device: torch.device) -> list[dict[str, Any]]:
    """Times each kind of layer, dense and with each fast pattern, in bf16: µs by tokens."""
    rows: list[dict[str, Any]] = []
    for shape in dict.fromkeys(SHAPES.values()):
        dense = nn.Linear(shape[1], shape[0], bias=False, device=device, dtype=torch.bfloat16)
        for pattern in FAST:
            pruned = nn.Linear(shape[1], shape[0], bias=False, device="meta", dtype=torch.bfloat16)
            pruned.weight = nn.Parameter(louver.prune(dense.weight.detach(), pattern), False)
            gain = measure(dense, SparseLinear.of(pruned, pattern), TOKENS)
            for kind in (name for name, each in SHAPES.items() if each == shape):
                row = {"layer": kind, "shape": list(shape), "pattern": pattern}
                rows.append({**row, "dense_us": gain.dense_us, "sparse_us": gain.sparse_us})
    return rows
